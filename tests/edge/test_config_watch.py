"""The watch on the configuration file: each real change once, by whatever way it came."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.edge import config_watch
from stepwarden.edge.config_watch import TRIGGER, ConfigWatch
from stepwarden.plain_file import identity, read_regular

INTERVAL = 0.1
QUIET = 6 * INTERVAL
"""In such a time the watch has looked several times: what it has not told by then, it will not."""

LIMIT = 30.0

Change = Callable[[Path, bytes], Awaitable[None]]


class Watched:
    """A file under watch, what was told of it, and what it held at each time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.contents: list[bytes] = []
        self.troubles: list[str] = []
        loaded = identity(path.read_bytes())
        self.watch = ConfigWatch(
            path,
            INTERVAL,
            SystemClock(),
            self.changed,
            loaded=loaded,
            on_trouble=self.troubles.append,
        )

    def changed(self, trigger: str) -> None:
        assert trigger == TRIGGER
        self.contents.append(self.path.read_bytes())


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(LIMIT):
        while not condition():
            await asyncio.sleep(INTERVAL / 10)


def told(watched: Watched, times: int) -> bool:
    return len(watched.contents) >= times


def watching(path: Path, story: Callable[[Watched], Awaitable[None]]) -> Watched:
    watched = Watched(path)

    async def main() -> None:
        watched.watch.start()
        await story(watched)
        await watched.watch.close()

    asyncio.run(main())
    return watched


# The ways in which a file gets new content


async def write_in_place(path: Path, data: bytes) -> None:
    path.write_bytes(data)


async def write_in_place_slowly(path: Path, data: bytes) -> None:
    """As a slow editor or a copy over a network does: at no time is it still for an interval."""
    with path.open("wb", buffering=0) as file:
        for byte in data:
            file.write(bytes([byte]))
            await asyncio.sleep(INTERVAL / 3)


async def rename_over(path: Path, data: bytes) -> None:
    new = path.with_name("new")
    new.write_bytes(data)
    new.rename(path)


async def rename_away_and_create(path: Path, data: bytes) -> None:
    path.rename(path.with_name("cfg.yaml~"))
    path.write_bytes(data)


async def delete_pause_create(path: Path, data: bytes) -> None:
    path.unlink()
    await asyncio.sleep(10 * INTERVAL)
    path.write_bytes(data)


async def swap_the_link(path: Path, data: bytes) -> None:
    """As the kubelet updates a ConfigMap: one rename of `..data`, then the old directory goes."""
    mount, old = path.parent, (path.parent / "..data").resolve()
    fresh = mount / f"..{time.monotonic_ns()}"
    fresh.mkdir()
    (fresh / path.name).write_bytes(data)
    (mount / "..data_tmp").symlink_to(fresh.name)
    (mount / "..data_tmp").rename(mount / "..data")
    shutil.rmtree(old)


async def with_a_time_of_the_past(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    os.utime(path, (1.0, 1.0))


async def with_the_same_time_and_size(path: Path, data: bytes) -> None:
    before = path.stat()
    path.write_bytes(data.ljust(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def made(tmp_path: Path, linked: bool) -> Path:
    path = tmp_path / "cfg.yaml"
    if linked:
        (tmp_path / "..first").mkdir()
        (tmp_path / "..first" / path.name).write_bytes(b"content 0")
        (tmp_path / "..data").symlink_to("..first")
        path.symlink_to(f"..data/{path.name}")
    else:
        path.write_bytes(b"content 0")
    return path


@pytest.mark.parametrize(
    "change",
    [
        write_in_place,
        write_in_place_slowly,
        rename_over,
        rename_away_and_create,
        delete_pause_create,
        swap_the_link,
        with_a_time_of_the_past,
        with_the_same_time_and_size,
    ],
)
def test_o_reld_2_three_changes_are_told_of_once_each(change: Change, tmp_path: Path) -> None:
    wanted = [b"content %d" % number for number in (1, 2, 3)]

    async def story(watched: Watched) -> None:
        for number, data in enumerate(wanted):
            await change(watched.path, data)
            await until(partial(told, watched, number + 1))
        await asyncio.sleep(QUIET)

    watched = watching(made(tmp_path, change is swap_the_link), story)
    assert [data.strip() for data in watched.contents] == wanted
    warnings = [text for text in watched.troubles if text]
    assert len(warnings) == (3 if change is delete_pause_create else 0)


@pytest.mark.parametrize("how", ["touch", "chmod", "same content", "there and back"])
def test_o_reld_2_what_changes_no_content_is_no_change(how: str, tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        path = watched.path
        for mode in (0o600, 0o640, 0o400):
            if how == "touch":
                path.touch()
            elif how == "chmod":
                path.chmod(mode)
            elif how == "same content":
                await rename_over(path, path.read_bytes())
            else:
                await rename_over(path, b"other")
                await rename_over(path, b"content 0")
            await asyncio.sleep(QUIET / 2)

    watched = watching(made(tmp_path, False), story)
    assert (watched.contents, watched.troubles) == ([], [])


def test_o_reld_2_a_deleted_file_is_told_of_once_and_its_return_is_no_change(
    tmp_path: Path,
) -> None:
    async def story(watched: Watched) -> None:
        watched.path.unlink()
        await until(lambda: watched.troubles)
        await asyncio.sleep(QUIET)
        assert len(watched.troubles) == 1
        watched.path.write_bytes(b"content 0")
        await until(lambda: len(watched.troubles) > 1)
        await asyncio.sleep(QUIET)

    watched = watching(made(tmp_path, False), story)
    text, over = watched.troubles
    assert text == (
        f"{tmp_path / 'cfg.yaml'}: No such file or directory; the configuration in force stays"
    )
    assert (over, watched.contents) == ("", [])


@pytest.mark.parametrize("kind", ["pipe", "directory", "dangling link"])
def test_what_is_no_file_is_told_of_and_waited_for(kind: str, tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        path = watched.path
        path.unlink()
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        else:
            path.symlink_to("nowhere")
        await until(lambda: watched.troubles)
        shutil.rmtree(path) if kind == "directory" else path.unlink()
        path.write_bytes(b"content 1")
        await until(lambda: watched.contents)

    watched = watching(made(tmp_path, False), story)
    assert watched.contents == [b"content 1"]
    assert len(watched.troubles) == 2


def test_a_change_between_the_load_and_the_first_look_is_seen(tmp_path: Path) -> None:
    path = made(tmp_path, False)
    heard: list[str] = []

    async def main() -> None:
        loaded = identity(b"what was loaded before")
        watch = ConfigWatch(path, INTERVAL, SystemClock(), heard.append, loaded=loaded)
        watch.start()
        await until(lambda: heard)
        await asyncio.sleep(QUIET)
        await watch.close()

    asyncio.run(main())
    assert heard == [TRIGGER]


def test_what_another_trigger_has_loaded_is_no_change_any_more(tmp_path: Path) -> None:
    async def story(watched: Watched) -> None:
        await rename_over(watched.path, b"content 1")
        watched.watch.noted(identity(b"content 1"))
        await asyncio.sleep(QUIET)
        watched.watch.noted("")  # a reload that could not read the file knows nothing
        await asyncio.sleep(QUIET)

    watched = watching(made(tmp_path, False), story)
    assert watched.contents == []


def test_looks_go_on_after_a_reload_that_fails_and_wait_for_one_that_takes_long(
    tmp_path: Path,
) -> None:
    path = made(tmp_path, False)
    began: list[bytes] = []
    going = asyncio.Event()

    async def reload(_: str) -> None:
        began.append(path.read_bytes())
        if len(began) == 1:
            raise RuntimeError("a fault of the reload")
        await going.wait()

    async def main() -> None:
        faults: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: faults.append(about))
        loaded = identity(b"content 0")
        watch = ConfigWatch(path, INTERVAL, SystemClock(), reload, loaded=loaded)
        watch.start()
        await rename_over(path, b"content 1")
        await until(lambda: faults)
        await rename_over(path, b"content 2")
        await until(lambda: len(began) == 2)
        await rename_over(path, b"content 3")
        await asyncio.sleep(QUIET)
        assert len(began) == 2
        going.set()
        await until(lambda: len(began) == 3)
        await watch.close()

    asyncio.run(main())
    assert began == [b"content 1", b"content 2", b"content 3"]


def test_a_file_system_that_hangs_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = threading.Event()

    def hanging(path: Path, most: int) -> bytes:
        answers.wait(LIMIT)
        return read_regular(path, most)

    monkeypatch.setattr(config_watch, "LOOK_LIMIT_SECONDS", INTERVAL)
    monkeypatch.setattr(config_watch, "read_regular", hanging)

    async def story(watched: Watched) -> None:
        threads = threading.active_count()
        await until(lambda: watched.troubles)
        assert threading.active_count() <= threads + 1
        await rename_over(watched.path, b"content 1")
        answers.set()
        await until(lambda: watched.contents)

    watched = watching(made(tmp_path, False), story)
    text, over, *more = watched.troubles
    assert "the configuration in force stays" in text
    assert (over, more, watched.contents) == ("", [], [b"content 1"])
