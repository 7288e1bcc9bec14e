"""Find and end the real processes that a test started, by pid and start time."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

import psutil

MARK_VARIABLE = "STORY_MARK"


def descendants(pid: int) -> list[psutil.Process]:
    """Every living process below `pid`, without it."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def marked(mark: str) -> list[psutil.Process]:
    """Every living process that carries `mark` in its environment, ours excepted."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.pid != os.getpid() and process.environ().get(MARK_VARIABLE) == mark:
                found.append(process)
    return found


def still_there(process: psutil.Process) -> bool:
    """True while this very process lives; a zombie that awaits its parent counts as gone."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end(processes: Iterable[psutil.Process], limit: float = 10.0) -> None:
    """SIGKILL these and wait until they are gone; psutil checks the start time of each."""
    living = [process for process in processes if still_there(process)]
    for process in living:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.send_signal(signal.SIGKILL)
    psutil.wait_procs(living, timeout=limit)


def describe(processes: Iterable[psutil.Process]) -> str:
    """One line for a failed assertion."""
    texts = []
    for process in processes:
        try:
            texts.append(f"{process.pid} {process.status()} {' '.join(process.cmdline())[:120]}")
        except psutil.Error:
            texts.append(f"{process.pid} (gone meanwhile)")
    return "; ".join(texts)
