"""SIGHUP: a reload, unless the terminal is gone."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from stepwarden.daemon import hangup
from stepwarden.daemon.hangup import Hangup, terminal_there

SCRIPT = """
import asyncio, fcntl, os, signal, sys, termios
from stepwarden.daemon.hangup import Hangup
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
async def main():
    done = asyncio.Event()
    def end(number):
        os.write(report, b"end")
        done.set()
    report = int(sys.argv[1])
    Hangup(lambda: os.write(report, b"reload "), end).listen()
    os.write(report, b"ready ")
    await done.wait()
asyncio.run(main())
"""


def words(there: list[bool], enough: int) -> list[str]:
    """What a SIGHUP comes to; `there`: what each look for the terminal finds.

    Ends when it has told `enough` and every look was taken.
    """
    told: list[str] = []

    async def story() -> None:
        looks = list(there)
        taken = Hangup(
            lambda: told.append("reload"), lambda n: told.append(f"end {n}"), lambda: looks.pop(0)
        )
        taken.arrived()
        async with asyncio.timeout(30):
            while looks or len(told) < enough:
                await asyncio.sleep(0.001)

    asyncio.run(story())
    return told


@pytest.mark.parametrize(
    ("there", "told"),
    [
        ([False], ["reload"]),
        ([True, True, True], ["reload"]),
        ([True, False], ["end 1"]),
        ([True, True, False], ["reload", "end 1"]),
    ],
    ids=["none ever", "there", "gone", "gone a moment later"],
)
def test_what_a_hangup_means(
    monkeypatch: pytest.MonkeyPatch, there: list[bool], told: list[str]
) -> None:
    monkeypatch.setattr(hangup, "LOOK_AGAIN_SECONDS", 0.01)
    assert words(there, len(told)) == told


def test_a_path_that_is_no_terminal_is_none(tmp_path: Path) -> None:
    assert not terminal_there(str(tmp_path / "none"))


def test_a_real_terminal_that_is_closed_ends_it_and_an_operators_signal_does_not() -> None:
    master, slave = pty.openpty()
    out, report = os.pipe()
    started = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(report)], stdin=slave, pass_fds=[report]
    )
    try:
        os.close(report)
        os.close(slave)
        assert os.read(out, 100) == b"ready "
        started.send_signal(signal.SIGHUP)
        assert os.read(out, 100) == b"reload "
        os.close(master)  # the kernel hangs up
        assert started.wait(30) == 0
        assert os.read(out, 100) == b"end"
    finally:
        started.kill()
        started.wait()
        os.close(out)
