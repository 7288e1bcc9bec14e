"""`stepwarden top` on a real terminal of 80x24, before a real daemon."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.admin_process import admin_process
from support.crew import Crew, stub
from support.terminal import Terminal

STEPS = "attach; step 20 16"


def top(environment: dict[str, str], *words: str, **more: int) -> Terminal:
    return Terminal([sys.executable, "-m", "stepwarden", "top", *words], environment, **more)


@pytest.fixture(scope="module")
def served() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sw-") as directory:
        path = Path(directory) / "admin.sock"
        with admin_process(path):
            yield path


def environment(**more: str) -> dict[str, str]:
    return {**{k: v for k, v in os.environ.items() if k != "NO_COLOR"}, "TERM": "xterm", **more}


def test_a_day_at_the_terminal() -> None:
    workers = {"fast": stub(STEPS), "idle": stub()}
    with Crew(workers) as crew:
        for name in workers:
            crew.wait_state(name, "HEALTHY")
        words = ("--config", str(crew.config))
        with top({**environment(), **crew.environment()}, *words) as terminal:
            terminal.wait_for(r"2 workers: 2 HEALTHY +order: urgency")
            terminal.wait_for(r"fast +HEALTHY +- +.*/\S+ +16 +(1[0-9]|2[0-9])\.\d +\d+% +0/\d")
            text = terminal.wait_for(r"idle +HEALTHY +- +idle ")
            assert len(text.splitlines()) == 24
            assert re.search(r"^LATEST EVENTS$", text, re.MULTILINE)
            assert re.search(r"idle: STARTING -> HEALTHY", text)

            terminal.press("j")
            terminal.press("s")
            terminal.wait_for(r"stop idle\? .* y: yes, any other key: no")
            terminal.press("y")
            crew.wait_state("idle", "STOPPED")
            terminal.wait_for(r"idle +STOPPED")
            terminal.press("t")
            terminal.wait_for(r"start idle\?")
            terminal.press("y")
            crew.wait_state("idle", "HEALTHY")
            terminal.wait_for(r"2 workers: 2 HEALTHY")
            before = crew.status()["idle"].pid
            terminal.press("r")
            terminal.wait_for(r"restart idle\?")
            terminal.press("y")
            crew.wait_status("idle", lambda w: w.pid not in (0, before), "restarted")
            crew.wait_state("idle", "HEALTHY")
            terminal.wait_for(r"2 workers: 2 HEALTHY")

            # What goes on is told with its reasons.
            crew.stub("idle").tell("exit 3")
            terminal.wait_for(r"idle +(DEAD|RESTARTING)")
            terminal.press("\r")
            terminal.wait_for(r"worker: +idle")
            terminal.wait_for(r"last death: +.*exit code 3")
            terminal.press("q")
            terminal.wait_for("LATEST EVENTS")

            crew.kill()
            terminal.wait_for(r"s ago: no daemon: ")
            crew.start()
            terminal.wait_for(r"2 workers: ")
            terminal.press("q")
            assert terminal.wait() == 0
            assert terminal.restored()
            # The former screen is back, with a cursor.
            assert terminal.raw.rindex(b"\x1b[?1049l") > terminal.raw.rindex(b"\x1b[?1049h")
            assert terminal.raw.rindex(b"\x1b[?25h") > terminal.raw.rindex(b"\x1b[?25l")
        # The workers went on.
        assert crew.cli("status", "--config", str(crew.config)).returncode == 0


@pytest.mark.parametrize(
    ("end", "code"), [("\x03", 130), (signal.SIGTERM, 143), (signal.SIGINT, 130), ("q", 0)]
)
def test_every_end_restores_the_terminal(served: Path, end: str | int, code: int) -> None:
    with top(environment(), "--socket", str(served)) as terminal:
        terminal.wait_for("gemma-cpu HEALTHY")
        assert not terminal.restored()
        if isinstance(end, str):
            terminal.press(end)
        else:
            terminal.process.send_signal(end)
        assert terminal.wait() == code
        assert terminal.restored()
        assert b"\x1b[?1049l" in terminal.raw
        assert b"Traceback" not in terminal.raw


def test_a_hangup_signal_restores_the_terminal_too(served: Path) -> None:
    with top(environment(), "--socket", str(served)) as terminal:
        terminal.wait_for("gemma-cpu HEALTHY")
        terminal.process.send_signal(signal.SIGHUP)
        assert terminal.wait() == 129
        assert terminal.restored()


def test_a_closed_terminal_ends_it(served: Path) -> None:
    with top(environment(), "--socket", str(served)) as terminal:
        terminal.wait_for("gemma-cpu HEALTHY")
        terminal.close()
        assert terminal.wait() == 129


def test_a_closed_terminal_ends_it_even_where_hangups_are_ignored(served: Path) -> None:
    command = [sys.executable, "-m", "stepwarden", "top", "--socket", str(served)]
    ignoring = ["/bin/sh", "-c", 'trap "" HUP; exec "$@"', "sh", *command]
    with Terminal(ignoring, environment()) as terminal:
        terminal.wait_for("gemma-cpu HEALTHY")
        terminal.close()
        assert terminal.wait() in (1, 129)


def test_a_terminal_that_takes_nothing_any_more_holds_up_no_end(served: Path) -> None:
    with top(environment(), "--socket", str(served)) as terminal:
        terminal.wait_for("gemma-cpu HEALTHY")
        terminal.stall()
        for rows in range(60):
            terminal.resize(80, 24 + rows % 2)
        terminal.process.send_signal(signal.SIGTERM)
        assert terminal.wait() == 143


def test_no_color_means_none(served: Path) -> None:
    with top(environment(NO_COLOR="1"), "--socket", str(served)) as terminal:
        terminal.wait_for("llama-gpu FAILED")
        terminal.press("q")
        assert terminal.wait() == 0
        colours = re.findall(
            rb"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]", terminal.raw
        )
        assert colours == []


def test_with_colour_there_is_some(served: Path) -> None:
    with top(environment(), "--socket", str(served)) as terminal:
        terminal.wait_for("llama-gpu FAILED")
        terminal.press("q")
        assert terminal.wait() == 0
        # The state of the worker that is not at the cursor is green.
        assert re.search(rb"\x1b\[[0-9;]*32[;m][^\x1b]*HEALTHY", terminal.raw)


def test_a_dumb_terminal_is_one_line(served: Path) -> None:
    for name in ("dumb", "", "unknown"):
        with top(environment(TERM=name), "--socket", str(served)) as terminal:
            assert terminal.wait() == 2
            assert terminal.restored()
            told = terminal.raw.decode()
        assert told.startswith("stepwarden: this terminal cannot place text (TERM is dumb or not")
        assert told.count("\n") == 1


def test_no_terminal_is_one_line(served: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "stepwarden", "top", "--socket", str(served)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith("stepwarden: top needs a terminal")


def test_no_daemon_is_one_line_and_its_code() -> None:
    with top(environment(), "--socket", "/nowhere/a.sock") as terminal:
        assert terminal.wait() == 3
        assert terminal.raw.count(b"\n") == 1
        assert terminal.restored()


def test_a_terminal_without_utf_8_gets_ascii(served: Path) -> None:
    plain = environment(LC_ALL="C", LANG="C", PYTHONCOERCECLOCALE="0", PYTHONUTF8="0")
    with top(plain, "--socket", str(served)) as terminal:
        assert re.search(r"#####\.+ 12/43", terminal.wait_for(r"gemma-cpu HEALTHY"))
        assert terminal.raw.isascii()
        terminal.press("q")
        assert terminal.wait() == 0
