"""Real processes, looked at by the real py-spy: wedged, moving, not Python, ended, too slow."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.core.evidence import ProcessId
from stepwarden.core.stacks import Place
from stepwarden.edge.aside import Aside
from stepwarden.edge.launcher import Launcher
from stepwarden.edge.process_probe import identify
from stepwarden.edge.reaper import Reaper
from stepwarden.edge.stack_capture import Capture, StackCapture, compare_captures
from stepwarden.edge.tracing import Tracing, find_tracing
from support.tracing import needs_tracing

pytestmark = pytest.mark.timeout(120)

CLOCK = SystemClock()
HUNG = "import threading; l = threading.Lock(); l.acquire(); print('up', flush=True); l.acquire()"
MOVING = """
import sys
def one(n):
    for i in range(1000): n += i
    return n
def two(n):
    for i in range(1000): n -= i
    return n
print('up', flush=True)
n = 0
while True:
    n = one(n)
    n = two(n)
"""
Work = Callable[[StackCapture], Awaitable[None]]


@contextmanager
def running(*argv: str, says: bool = True) -> Iterator[ProcessId]:
    child = subprocess.Popen(argv, stdout=subprocess.PIPE)
    try:
        if says:
            assert child.stdout is not None
            assert child.stdout.readline()
        process = identify(child.pid)
        assert process is not None
        yield process
    finally:
        child.kill()
        child.wait()
        assert child.stdout is not None
        child.stdout.close()


def python(program: str) -> tuple[str, ...]:
    return (sys.executable, "-c", program)


def with_capture(work: Work) -> None:
    async def run() -> None:
        reaper = Reaper(lambda _pid, _how: None)
        reaper.start()
        launcher = Launcher(CLOCK)
        await launcher.start()
        try:
            await work(StackCapture(launcher, reaper, CLOCK))
        finally:
            await launcher.close()
            reaper.stop()

    asyncio.run(run())


async def look(
    capture: StackCapture,
    subjects: dict[str, ProcessId | None],
    tracing: Tracing | None = None,
    limit: float = 20.0,
    before: Capture | None = None,
) -> Capture:
    found = find_tracing() if tracing is None else tracing
    return await capture.capture(subjects, found, False, limit, Aside(CLOCK), before)


@needs_tracing
def test_one_that_hangs_stands_and_one_that_computes_moves() -> None:
    async def work(capture: StackCapture) -> None:
        before = await look(capture, subjects)
        after = await look(capture, subjects, before=before)
        assert after.error == ""
        diffs = compare_captures(before, after)
        assert diffs["hung"].place is Place.WEDGED
        assert diffs["moving"].place is Place.MOVING
        main = next(t for t in after.looks["hung"].stacks if t.main)
        assert main.top is not None
        assert main.top.file == "<string>"
        assert after.looks["hung"].threads[0].state == "S"

    with running(*python(HUNG)) as hung, running(*python(MOVING)) as moving:
        subjects: dict[str, ProcessId | None] = {"hung": hung, "moving": moving}
        with_capture(work)


@needs_tracing
def test_a_look_stops_nobody() -> None:
    """A process that only a signal of ours would have continued is as it was."""

    async def work(capture: StackCapture) -> None:
        await look(capture, {"0": process})
        state = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0]
        assert state in "RS"

    with running(*python(MOVING)) as process:
        with_capture(work)


@needs_tracing
def test_one_that_is_stopped_can_be_looked_at() -> None:
    async def work(capture: StackCapture) -> None:
        os.kill(process.pid, signal.SIGSTOP)
        before = await look(capture, {"0": process})
        after = await look(capture, {"0": process}, before=before)
        assert after.seen == 1
        assert compare_captures(before, after)["0"].place is Place.WEDGED

    with running(*python(MOVING)) as process:
        with_capture(work)


def test_of_one_that_is_no_python_the_kernel_tells() -> None:
    async def work(capture: StackCapture) -> None:
        before = await look(capture, {"": process})
        after = await look(capture, {"": process}, before=before)
        seen = after.looks[""]
        assert not seen.python
        assert seen.threads[0].name == "sleep"
        if seen.threads[0].syscall:  # not to be read without the right to trace
            assert compare_captures(before, after)[""].place is Place.WEDGED

    with running("sleep", "1000", says=False) as process:
        deadline = time.monotonic() + 10
        while "sleep" not in os.readlink(f"/proc/{process.pid}/exe"):
            assert time.monotonic() < deadline
        with_capture(work)


@needs_tracing
def test_one_that_has_ended_or_is_another_now_is_not_looked_at() -> None:
    async def work(capture: StackCapture) -> None:
        found = await look(capture, {"gone": gone, "other": other, "far": None})
        assert found.seen == 0
        assert "ended" in found.looks["other"].error
        assert "pid namespace" in found.looks["far"].error

    with running("sleep", "1000", says=False) as gone:
        pass
    mine = identify(os.getpid())
    assert mine is not None
    other = replace(mine, start_ticks=mine.start_ticks + 1)
    with_capture(work)


def program(directory: Path, text: str) -> Tracing:
    path = directory / "py-spy"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return Tracing(str(path), None, True)


def test_one_that_hangs_is_killed_at_the_limit(tmp_path: Path) -> None:
    async def work(capture: StackCapture) -> None:
        tracing = program(tmp_path, f"echo $$ > {tmp_path}/pid; exec sleep 1000")
        found = await look(capture, {"0": process}, tracing, limit=2.0)
        assert "was killed" in found.looks["0"].error
        pid = int((tmp_path / "pid").read_text())
        deadline = time.monotonic() + 20
        while identify(pid) is not None:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.01)

    with running(*python(HUNG)) as process:
        with_capture(work)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("echo 'Error: Permission Denied: try again' >&2; exit 1", "Permission Denied"),
        ("exec cat /dev/zero", "File size limit|SIGXFSZ"),
        ("echo '[]'", "no thread"),
        ("echo '[{\"frames\": 7}]'", "cannot be read"),
        ("echo nonsense", "nonsense"),
        ("kill -SEGV $$", "SIGSEGV"),
    ],
)
def test_whatever_it_prints_is_an_answer_or_an_error(tmp_path: Path, text: str, told: str) -> None:
    async def work(capture: StackCapture) -> None:
        found = await look(capture, {"0": process}, program(tmp_path, text))
        assert any(word in found.looks["0"].error for word in told.split("|"))

    with running(*python(HUNG)) as process:
        with_capture(work)


def test_without_py_spy_the_kernels_facts_are_there_and_the_reason() -> None:
    async def work(capture: StackCapture) -> None:
        found = await look(capture, {"0": process}, Tracing(None))
        assert found.seen == 0
        assert "pip install" in found.looks["0"].error
        assert found.looks["0"].threads[0].tid == process.pid

    with running(*python(HUNG)) as process:
        with_capture(work)


@pytest.mark.parametrize(
    ("tracing", "others", "told"),
    [
        (Tracing(None), (), "not installed"),
        (Tracing("/p", None, False), (), ""),
        (Tracing("/p", 0, False), (), ""),
        (Tracing("/p", 1, True), (), ""),
        (Tracing("/p", 1, False), (), "ptrace_scope is 1"),
        (Tracing("/p", 2, None), (), "ptrace_scope is 2"),
        (Tracing("/p", 3, True), (), "boot without it"),
        (Tracing("/p", 0, False), ("w",), "other users (w)"),
        (Tracing("/p", 0, True), ("w",), ""),
    ],
)
def test_what_is_missing_is_known_beforehand(
    tracing: Tracing, others: tuple[str, ...], told: str
) -> None:
    found = tracing.refused(others)
    assert (told in found) if told else found == ""
