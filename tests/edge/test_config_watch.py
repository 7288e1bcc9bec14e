"""The watch on the configuration file: each real change once, by whatever way it came."""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.edge import config_watch
from stepwarden.edge.config_watch import TRIGGER, ConfigWatch
from stepwarden.plain_file import identity, read_regular
from support import replacing
from support.replacing import Change, rename_over

INTERVAL = 0.1
SEVERAL = 4
"""After so many more looks what the watch has not told of, it will not: it needs two."""

LIMIT = 30.0


class Looks:
    """Counts the looks at files, of all watches."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._made = 0
        monkeypatch.setattr(config_watch, "read_regular", self._read)

    def _read(self, path: Path, most: int) -> bytes:
        self._made += 1
        return read_regular(path, most)

    async def several(self) -> None:
        """Returns when several more have been made."""
        wanted = self._made + SEVERAL
        await until(lambda: self._made >= wanted)


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Looks:
    return Looks(monkeypatch)


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


def made(tmp_path: Path, linked: bool = False) -> Path:
    path = tmp_path / "cfg.yaml"
    path.write_bytes(b"content 0")
    if linked:
        replacing.put_behind_links(path)
    return path


@pytest.mark.parametrize("change", replacing.ALL)
def test_o_reld_2_three_changes_are_told_of_once_each(
    change: Change, tmp_path: Path, looks: Looks
) -> None:
    wanted = [b"content %d" % number for number in (1, 2, 3)]

    async def story(watched: Watched) -> None:
        for number, data in enumerate(wanted):
            await change(watched.path, data, INTERVAL)
            await until(partial(told, watched, number + 1))
        await looks.several()

    watched = watching(made(tmp_path, change is replacing.swap_the_link), story)
    assert [data.strip() for data in watched.contents] == wanted
    warnings = [text for text in watched.troubles if text]
    assert len(warnings) == (3 if change is replacing.delete_pause_create else 0)


@pytest.mark.parametrize("how", ["touch", "chmod", "same content", "there and back"])
def test_o_reld_2_what_changes_no_content_is_no_change(
    how: str, tmp_path: Path, looks: Looks
) -> None:
    async def story(watched: Watched) -> None:
        path = watched.path
        for mode in (0o600, 0o640, 0o400):
            if how == "touch":
                path.touch()
            elif how == "chmod":
                path.chmod(mode)
            elif how == "same content":
                await rename_over(path, path.read_bytes(), INTERVAL)
            else:
                await rename_over(path, b"other", INTERVAL)
                await rename_over(path, b"content 0", INTERVAL)
            await looks.several()

    watched = watching(made(tmp_path), story)
    assert (watched.contents, watched.troubles) == ([], [])


def test_o_reld_2_a_deleted_file_is_told_of_once_and_its_return_is_no_change(
    tmp_path: Path, looks: Looks
) -> None:
    async def story(watched: Watched) -> None:
        watched.path.unlink()
        await until(lambda: watched.troubles)
        await looks.several()
        assert len(watched.troubles) == 1
        watched.path.write_bytes(b"content 0")
        await until(lambda: len(watched.troubles) > 1)
        await looks.several()

    watched = watching(made(tmp_path), story)
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

    watched = watching(made(tmp_path), story)
    assert watched.contents == [b"content 1"]
    assert len(watched.troubles) == 2


def test_a_change_between_the_load_and_the_first_look_is_seen(tmp_path: Path, looks: Looks) -> None:
    path = made(tmp_path)
    heard: list[str] = []

    async def main() -> None:
        loaded = identity(b"what was loaded before")
        watch = ConfigWatch(path, INTERVAL, SystemClock(), heard.append, loaded=loaded)
        watch.start()
        await until(lambda: heard)
        await looks.several()
        await watch.close()

    asyncio.run(main())
    assert heard == [TRIGGER]


def test_what_another_trigger_has_loaded_is_no_change_any_more(
    tmp_path: Path, looks: Looks
) -> None:
    async def story(watched: Watched) -> None:
        await rename_over(watched.path, b"content 1", INTERVAL)
        watched.watch.noted(identity(b"content 1"))
        await looks.several()
        watched.watch.noted("")  # a reload that could not read the file knows nothing
        await looks.several()

    watched = watching(made(tmp_path), story)
    assert watched.contents == []


def test_looks_go_on_after_a_reload_that_fails_and_wait_for_one_that_takes_long(
    tmp_path: Path,
) -> None:
    path = made(tmp_path)
    began: list[bytes] = []
    others: list[str] = []
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
        other = ConfigWatch(path, INTERVAL, SystemClock(), others.append, loaded=loaded)
        other.start()
        await rename_over(path, b"content 1", INTERVAL)
        await until(lambda: faults)
        await rename_over(path, b"content 2", INTERVAL)
        await until(lambda: len(began) == 2)
        others.clear()
        await rename_over(path, b"content 3", INTERVAL)
        await until(lambda: others)  # and so long nothing came of this watch
        assert len(began) == 2
        going.set()
        await until(lambda: len(began) == 3)
        await watch.close()
        await other.close()

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
        await rename_over(watched.path, b"content 1", INTERVAL)
        answers.set()
        await until(lambda: watched.contents)

    watched = watching(made(tmp_path), story)
    text, over, *more = watched.troubles
    assert "the configuration in force stays" in text
    assert (over, more, watched.contents) == ("", [], [b"content 1"])
