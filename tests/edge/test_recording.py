"""The files of a recording: whole, bounded, readable after a kill, and never in the loop's way."""

from __future__ import annotations

import errno
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.core.commands import command
from stepwarden.core.worker import Outcome, WorkerState
from stepwarden.edge import recording
from stepwarden.edge.recording import Came, Recording
from stepwarden.replay.codec import UnreadableError
from stepwarden.replay.files import files_of, records_of
from stepwarden.replay.lines import Asked, Head, Known
from stepwarden.replay.play import play
from support.waiting import wait_for

MIB = 1 << 20


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "FLUSH_SECONDS", 0.05)
    monkeypatch.setattr(recording, "RETRY_SECONDS", 0.05)


def came(outcome: Outcome) -> Came:
    return Came(outcome.state, outcome.call, tuple(outcome.events))


def commands(count: int, state: WorkerState) -> Iterator[Came]:
    """So many commands of an operator who cannot decide."""
    for number in range(count):
        outcome = command(state, ("start", "stop")[number % 2], float(number), "x" * 300)
        state = outcome.state
        yield came(outcome)


def record(path: Path, batches: list[list[Came]], max_bytes: int = MIB) -> Recording:
    made = Recording(path, max_bytes, SystemClock())
    for batch in batches:
        for one in batch:
            made.put(one)
    return made


def test_what_was_put_is_read_and_judged_the_same(tmp_path: Path) -> None:
    begun = Came(WorkerState("w"), None)
    made = record(tmp_path / "recording", [[begun, *commands(20, begun.after)]])
    made.close(30)
    records = list(records_of(files_of(tmp_path)))
    assert [type(one) for one in records] == [Head, Known, *[Asked] * 20]
    own, _ = play(records, None)
    assert own.unlike == []
    assert own.calls == 20


def test_the_directory_and_its_files_are_private_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        record(tmp_path / "recording", [[Came(WorkerState("w"), None)]]).close(30)
    finally:
        os.umask(before)
    (file,) = files_of(tmp_path)
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.parent.stat().st_mode & 0o777 == 0o700


def test_the_last_line_of_a_killed_daemon_may_be_torn(tmp_path: Path) -> None:
    begun = Came(WorkerState("w"), None)
    record(tmp_path, [[begun, *commands(50, begun.after)]]).close(30)
    (file,) = files_of(tmp_path)
    whole = file.read_bytes()
    for length in range(len(whole) // 2, len(whole), 97):
        file.write_bytes(whole[:length])
        own, _ = play(records_of([file]), None)
        assert own.unlike == []


def test_old_files_go_and_what_is_left_can_be_read_without_them(tmp_path: Path) -> None:
    limit = 24_000
    states = [WorkerState("w")]
    made = Recording(tmp_path, limit, SystemClock())
    made.put(Came(states[0], None))
    names: set[str] = set()

    def one_has_gone() -> bool:
        for one in commands(60, states[-1]):
            made.put(one)
            states.append(one.after)
        there = {path.name for path in tmp_path.iterdir()}
        names.update(there)
        return there < names

    wait_for(one_has_gone, 60, "no file is removed")
    made.close(30)
    left = files_of(tmp_path)
    # The newest may have grown by all that came within one flush.
    assert sum(path.stat().st_size for path in left[:-1]) <= limit
    own, _ = play(records_of(left), None)
    assert own.unlike == []
    assert own.calls > 100


def test_a_disk_that_is_nearly_full_is_left_alone_and_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording, "FREE_SHARE", 1.1)
    made = Recording(tmp_path, MIB, SystemClock())
    made.put(Came(WorkerState("w"), None))
    wait_for(lambda: "is free" in made.trouble, 30, "no trouble is told")
    monkeypatch.setattr(recording, "FREE_SHARE", 0.0)

    def goes_on() -> bool:
        made.put(Came(WorkerState("w", deaths=1), None))
        return not made.trouble

    wait_for(goes_on, 30, "it does not go on")
    made.close(30)
    last = list(records_of(files_of(tmp_path)[-1:]))
    assert isinstance(last[-1], Known)
    assert last[-1].state.deaths == 1


def test_a_file_that_the_disk_cut_short_can_be_read_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of a write is taken, then no more; the next file goes on."""
    room = [700]

    def write(descriptor: int, packed: memoryview) -> int:
        if not os.readlink(f"/proc/self/fd/{descriptor}").startswith(str(tmp_path)):
            return written(descriptor, packed)
        if room[0] <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        taken = written(descriptor, packed[: room[0]])
        room[0] -= taken
        return taken

    written = os.write
    monkeypatch.setattr(os, "write", write)
    made = Recording(tmp_path, MIB, SystemClock())
    state = WorkerState("w")
    made.put(Came(state, None))
    for number in range(2000):
        outcome = command(state, ("start", "stop")[number % 2], float(number), f"{number:090}")
        state = outcome.state
        made.put(came(outcome))
    wait_for(lambda: "No space" in made.trouble, 30, "no trouble is told")
    room[0] = MIB

    def goes_on() -> bool:
        made.put(Came(state, None))
        return not made.trouble

    wait_for(goes_on, 30, "it does not go on")
    made.close(30)
    files = files_of(tmp_path)
    assert len(files) > 1
    own, _ = play(records_of(files), None)
    assert own.unlike == []


def test_what_cannot_be_recorded_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    made = Recording(tmp_path, MIB, SystemClock())
    made.put(Came(WorkerState("odd", ledger=[]), None))  # type: ignore[arg-type]
    wait_for(lambda: "a fault of ours: TypeError" in made.trouble, 30, "no trouble is told")
    made.put(Came(WorkerState("w"), None))
    made.close(30)
    known = [one.worker for one in records_of(files_of(tmp_path)) if isinstance(one, Known)]
    assert known == ["w"]


def test_a_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    made = Recording(tmp_path / "file" / "recording", MIB, SystemClock())
    made.put(Came(WorkerState("w"), None))
    wait_for(lambda: "Not a directory" in made.trouble, 30, "no trouble is told")
    made.close(30)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"plain text\n", "damaged, or no gzip"),
        (gzip.compress(b"plain text\n"), "line 1: this is no line of a recording"),
        (gzip.compress(b'{"head":{"format":99}}\n'), "its format is 99"),
        (gzip.compress(b'{"w":"w","state":{"is":"WorkerState","name":"w"}}\n'), "does not begin"),
        (gzip.compress(b"[]\n"), "line 1: this is no line of a recording"),
        (gzip.compress(b"[" * 100_000 + b"\n"), "line 1: this is no line of a recording"),
    ],
    ids=["text", "packed text", "later format", "no head", "no object", "too deep"],
)
def test_a_file_that_is_none_is_refused_in_one_line(tmp_path: Path, body: bytes, says: str) -> None:
    file = tmp_path / "x.jsonl.gz"
    file.write_bytes(body)
    with pytest.raises(UnreadableError, match=says):
        list(records_of([file]))


def test_a_directory_without_a_recording_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="there is no recording"):
        files_of(tmp_path)
