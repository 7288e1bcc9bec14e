"""The screen of `top` driven by textual's pilot, fed by a real admin server."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import tempfile
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest
from stepwarden.cli.client import connect
from stepwarden.clock import SystemClock
from stepwarden.tui.app import HELP, KEYS, Top
from stepwarden.tui.feed import Feed
from stepwarden.tui.look import Signs
from stepwarden.tui.parts import Page
from support.admin_process import admin_process
from textual.pilot import Pilot

Story = Callable[[Top, Pilot[int]], Awaitable[None]]


def test_the_help_fits_the_smallest_terminal() -> None:
    assert max(len(line) for line in HELP.splitlines()) < 80


@pytest.fixture
def path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sw-") as name:
        yield Path(name) / "a.sock"


def play(path: Path, story: Story, *, size: tuple[int, int] = (80, 24), timeout: float = 5) -> Top:
    """One session of `top` on this socket; it ends when the story does."""
    options = argparse.Namespace(socket=path, config=None, timeout=timeout)
    feed = Feed(lambda: connect(options), SystemClock())
    app = Top(feed, SystemClock(), Signs())

    async def session() -> None:
        async with app.run_test(size=size) as pilot:
            await story(app, pilot)

    feed.start()
    try:
        run: Coroutine[Any, Any, None] = session()
        asyncio.run(run)
    finally:
        feed.end()
    return app


def seen(app: Top) -> list[str]:
    """What is on the screen."""
    width = app.size.width
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip)[:width].rstrip() for strip in strips]


async def until(pilot: Pilot[int], app: Top, wanted: str) -> str:
    """What is on the screen as soon as this text is."""
    for _ in range(400):
        text = "\n".join(seen(app))
        if wanted in text:
            return text
        await pilot.pause(0.05)
    raise AssertionError(f"{wanted!r} was not seen:\n" + "\n".join(seen(app)))


def test_workers_events_and_keys_are_seen(path: Path) -> None:
    async def story(app: Top, pilot: Pilot[int]) -> None:
        await until(pilot, app, "it came up")
        await until(pilot, app, "given up; the last exit")
        lines = seen(app)
        assert len(lines) == 24
        assert lines[0].startswith("2 workers: 1 HEALTHY, 1 FAILED; the state database")
        assert lines[0].endswith("order: urgency")
        assert lines[1].split() == [
            *("WORKER", "STATE", "CAUSE", "STEP/BUDGET", "BATCH", "STEP/S", "CPU", "RST")
        ]
        assert lines[2].split() == ["llama-gpu", "FAILED", "exit", *"----", "5/5"]
        assert lines[3].split()[:2] == ["gemma-cpu", "HEALTHY"]
        assert "12/43" in lines[3]
        assert "LATEST EVENTS" in lines
        assert lines[22] == (
            "llama-gpu: 5 deaths within 1800 s: given up; the last exit was signal SIGSEGV"
        )
        assert lines[23] == KEYS

    with admin_process(path):
        play(path, story)


def test_stop_start_restart_ask_first(path: Path) -> None:
    async def story(app: Top, pilot: Pilot[int]) -> None:
        await until(pilot, app, "gemma-cpu")
        await pilot.press("j", "s")
        await until(pilot, app, "stop gemma-cpu? It stays stopped until it is started. y: yes")
        await pilot.press("n")
        await pilot.pause(0.3)
        assert "gemma-cpu HEALTHY" in "\n".join(seen(app))
        # Enter is no: what is pressed out of habit does no harm.
        await pilot.press("s", "enter")
        await pilot.pause(0.3)
        assert not isinstance(app.screen, Page)
        await pilot.press("s", "y")
        await until(pilot, app, "gemma-cpu STOPPED")
        await until(pilot, app, "gemma-cpu: HEALTHY -> STOPPING")
        await pilot.press("t")
        await until(pilot, app, "start gemma-cpu?")
        await pilot.press("y")
        await until(pilot, app, "gemma-cpu STARTING")
        await pilot.press("r")
        await until(pilot, app, "restart gemma-cpu?")
        await pilot.press("y")
        await until(pilot, app, "the operator says restart")

    with admin_process(path):
        play(path, story)


def test_a_refused_command_is_told(path: Path) -> None:
    async def story(app: Top, pilot: Pilot[int]) -> None:
        await until(pilot, app, "llama-gpu FAILED")
        await pilot.press("t", "y")
        await until(pilot, app, "its last process 77 cannot be ended")
        await pilot.press("escape")
        await until(pilot, app, "given up; the last exit was signal SIGSEGV")

    with admin_process(path, "refuse"):
        play(path, story)


def test_details_help_and_events(path: Path) -> None:
    async def story(app: Top, pilot: Pilot[int]) -> None:
        await until(pilot, app, "gemma-cpu")
        await pilot.press("down", "enter")
        text = await until(pilot, app, "engine core of? 4 ranks")
        assert "HEALTHY for 61.0s" in text
        assert "last verdicts, the newest last:" in text
        await pilot.press("end")
        assert "\x1b" not in await until(pilot, app, "alive")
        await pilot.press("q")
        await until(pilot, app, "LATEST EVENTS")
        await pilot.press("question_mark")
        await until(pilot, app, HELP.splitlines()[0])
        await pilot.press("escape", "e")
        await until(pilot, app, "gemma-cpu: 2026-01-02 03:04:01 STARTING -> HEALTHY (step) rank 0")
        await pilot.press("enter", "q")

    with admin_process(path):
        assert play(path, story).return_value == 0


def test_filter_order_and_the_unwell(path: Path) -> None:
    async def story(app: Top, pilot: Pilot[int]) -> None:
        await until(pilot, app, "gemma-cpu")
        await pilot.press("slash", *"gemma", "enter")
        text = await until(pilot, app, "filter: gemma")
        assert "llama-gpu FAILED" not in text
        await pilot.press("escape", "u")
        text = await until(pilot, app, "only the unwell")
        assert "gemma-cpu HEALTHY" not in text
        await pilot.press("u", "o")
        text = await until(pilot, app, "order: file")
        assert text.index("gemma-cpu") < text.index("llama-gpu")
        await pilot.press("O", "O")
        await until(pilot, app, "order: restarts")

    with admin_process(path):
        play(path, story)


def test_a_daemon_that_goes_away_and_comes_back(path: Path) -> None:
    async def story(app: Top, pilot: Pilot[int]) -> None:
        with admin_process(path):
            await until(pilot, app, "2 workers: 1 HEALTHY")
        text = await until(pilot, app, "no daemon: ")
        assert "gemma-cpu HEALTHY" in text
        path.unlink(missing_ok=True)
        await until(pilot, app, "s ago: no daemon: there is no socket")
        with admin_process(path) as daemon:
            await until(pilot, app, "2 workers: 1 HEALTHY")
            assert daemon.stdin is not None
            daemon.stdin.write("something new\n")
            daemon.stdin.flush()
            await until(pilot, app, "something new")

    play(path, story)


def test_a_frozen_daemon_freezes_no_key(path: Path) -> None:
    async def story(app: Top, pilot: Pilot[int]) -> None:
        await until(pilot, app, "gemma-cpu")
        os.kill(daemon.pid, signal.SIGSTOP)
        try:
            await until(pilot, app, "s ago: the daemon at ")
            await pilot.press("j", "s")
            await until(pilot, app, "stop gemma-cpu?")
            await pilot.press("y")
            await until(pilot, app, "did not answer within 2 s")
            await pilot.press("question_mark")
            await until(pilot, app, "quit; the workers go on")
            await pilot.press("escape")
        finally:
            os.kill(daemon.pid, signal.SIGCONT)
        await until(pilot, app, "2 workers: ")

    with admin_process(path) as daemon:
        play(path, story, timeout=2)


def test_two_thousand_workers_and_a_small_screen(path: Path) -> None:
    async def story(app: Top, pilot: Pilot[int]) -> None:
        await until(pilot, app, "1-7 of 2000")
        await pilot.press("end")
        text = await until(pilot, app, "1994-2000 of 2000")
        assert "w1999" in text
        await pilot.press("home")
        await until(pilot, app, "1-7 of 2000")
        await pilot.resize_terminal(100, 40)
        await until(pilot, app, "1-24 of 2000")
        # Far too small: nothing breaks.
        await pilot.resize_terminal(20, 5)
        await pilot.pause(0.3)
        await pilot.press("s", "n", "enter", "q")
        await pilot.resize_terminal(80, 24)
        await until(pilot, app, "of 2000")

    with admin_process(path, "huge"):
        play(path, story, size=(80, 14))


def test_odd_names_are_harmless(path: Path) -> None:
    async def story(app: Top, pilot: Pilot[int]) -> None:
        text = await until(pilot, app, "DEAD")
        assert "[b]not bold[/b]" in text
        assert not set(text) & {"\x1b", "\x9b", "\u202e", "\x00"}
        for line in seen(app):
            assert len(line) <= 80
        await pilot.press("enter")
        await until(pilot, app, "worker:")
        await pilot.press("q", "s")
        await until(pilot, app, "y: yes")
        await pilot.press("n", "e", "q")

    with admin_process(path, "odd"):
        play(path, story)


def test_no_colour(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(app: Top, pilot: Pilot[int]) -> None:
        await until(pilot, app, "llama-gpu FAILED")
        for strip in app.screen._compositor.render_strips():
            for part in strip.apply_filter(
                app.get_line_filters()[-1], app.screen.styles.background
            ):
                assert part.style is None or (part.style.color, part.style.bgcolor) == (None, None)

    monkeypatch.setenv("NO_COLOR", "1")
    with admin_process(path):
        play(path, story)
