"""Runs a piece of engine code with an agent in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from stepwarden.edge.page_reader import PageReader
from stepwarden_proto import page

from support.waiting import wait_for

# Unique on this host: a burial test beside this run must not take our engines for its own.
INCARNATION = f"w-{uuid.uuid4().hex}"
TOKEN = "a token"


def agent_environment(target: str = "", pages: Path | None = None) -> dict[str, str]:
    """The environment that a supervisor gives to a worker, on top of ours without proxies."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("STEPWARDEN_")}
    kept |= {page.ENV_WORKER: "w", page.ENV_INCARNATION: INCARNATION, page.ENV_TOKEN: TOKEN}
    if target:
        kept[page.ENV_TARGET] = target
    if pages is not None:
        kept[page.ENV_PAGE_DIR] = str(pages)
    return kept


def run_engine(
    code: str, environment: dict[str, str], timeout: float = 60.0
) -> subprocess.CompletedProcess[str]:
    """Run `code` to its end. All warnings are errors there, too."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        env=environment,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


@contextmanager
def engine(
    code: str, environment: dict[str, str], python: str = sys.executable
) -> Iterator[subprocess.Popen[str]]:
    """Run `code` beside the test; its end is the block's end at the latest."""
    process = subprocess.Popen(
        [python, "-W", "error", "-c", code],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def let_end(process: subprocess.Popen[str], limit: float = 60.0) -> tuple[int, str, str]:
    """Have engine code that waits for a line go on to its end: exit code, output and errors."""
    output, errors = process.communicate("end\n", limit)
    return process.returncode, output, errors


def wait_ticks(pages: Path, ticks: int, rank: str = "0") -> None:
    """Wait until a rank's page has ticked so often: that many seconds of its own beat thread."""
    reader = PageReader(pages)

    def tick() -> int:
        view = reader.read(time.monotonic()).get(rank)
        return -1 if view is None else view.tick

    try:
        wait_for(lambda: tick() >= 0)
        first = tick()
        wait_for(lambda: tick() >= first + ticks, 20.0 + 5.0 * ticks)
    finally:
        reader.close()


def line_from(process: subprocess.Popen[str]) -> str:
    """The next line on its stdout. Raises AssertionError with its stderr where it ended."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        raise AssertionError(f"ended with {process.wait(10)}: {process.stderr.read()}")
    return line.rstrip("\n")


@contextmanager
def short_directory() -> Iterator[Path]:
    """A directory with a path short enough for a unix socket."""
    with tempfile.TemporaryDirectory(prefix="swa-") as name:
        yield Path(name)
