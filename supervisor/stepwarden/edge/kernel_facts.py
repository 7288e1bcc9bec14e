"""What the kernel tells of the threads of a process: for the stacks of those that are no Python.

Everything here may block (a process that holds its own memory map's lock): call it in a thread.
What cannot be read is left out; nothing raises.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass

from stepwarden.core.stacks import KERNEL, Frame, Stacks, ThreadStack
from stepwarden.edge.output_tail import visible

MAX_THREADS = 64
MANY_PROCESSES = 16
FEW_THREADS = 8
"""Of each process so many threads are looked at, and fewer where there are many processes."""

_BYTES = 4096
_MAPS_BYTES = 1 << 20
_RUNNING = "running"


@dataclass(frozen=True, slots=True)
class ThreadFacts:
    """One thread as the kernel shows it; "" and () for what may not be read.

    `state`: the letter of proc_pid_stat(5). `syscall`: its number, "running", or "-1" outside of
    any; `at`: stack pointer and program counter beside it. `stack`: of the kernel, innermost first.
    `switches`: how often it gave its core away by itself.
    """

    tid: int
    name: str = ""
    state: str = ""
    wchan: str = ""
    syscall: str = ""
    at: str = ""
    stack: tuple[str, ...] = ()
    switches: int | None = None


def thread_facts(pid: int, most: int = MAX_THREADS) -> tuple[ThreadFacts, ...]:
    """The threads of a process, its main one first."""
    try:
        tids = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))
    except (OSError, ValueError):
        return ()
    first = [tid for tid in tids if tid == pid]
    return tuple(_facts(pid, tid) for tid in [*first, *(t for t in tids if t != pid)][:most])


def facts_of(pids: Iterable[int]) -> dict[int, tuple[ThreadFacts, ...]]:
    """The threads of several processes."""
    wanted = list(pids)
    most = MAX_THREADS if len(wanted) <= MANY_PROCESSES else FEW_THREADS
    return {pid: thread_facts(pid, most) for pid in wanted}


def pythons(pids: Iterable[int]) -> frozenset[int]:
    """Which of these processes run Python, as their program or within it."""
    return frozenset(pid for pid in pids if _is_python(pid))


def _is_python(pid: int) -> bool:
    try:
        if "python" in os.path.basename(os.readlink(f"/proc/{pid}/exe")):
            return True
    except OSError:
        return True  # nobody may tell: py-spy will
    return "libpython" in _text(f"/proc/{pid}/maps", _MAPS_BYTES)


def as_stacks(pid: int, threads: Iterable[ThreadFacts]) -> Stacks:
    """Where threads stand, as far as the kernel knows: of one that sleeps its call and address."""
    return tuple(
        ThreadStack(
            thread.tid,
            thread.name or f"thread {thread.tid}",
            thread.tid == pid,
            thread.syscall == _RUNNING or thread.state == "R",
            _frames(thread),
        )
        for thread in threads
    )


def _frames(thread: ThreadFacts) -> tuple[Frame, ...]:
    if not thread.at or thread.syscall == _RUNNING:
        return ()
    call = thread.wchan or f"system call {thread.syscall}"
    return (Frame(call, KERNEL, 0), Frame(thread.at, KERNEL, 0))


def _facts(pid: int, tid: int) -> ThreadFacts:
    base = f"/proc/{pid}/task/{tid}"
    words = _text(f"{base}/syscall").split()
    wchan = _text(f"{base}/wchan").strip()
    stack = tuple(line.partition("] ")[2] for line in _text(f"{base}/stack").splitlines())
    return ThreadFacts(
        tid,
        visible(_text(f"{base}/comm").rstrip("\n")),
        _text(f"{base}/stat").rpartition(")")[2].strip()[:1],
        "" if wchan == "0" else wchan,
        words[0] if words else "",
        f"sp {words[-2]} pc {words[-1]}" if len(words) >= 3 else "",
        stack,
        _switches(_text(f"{base}/status")),
    )


def _switches(status: str) -> int | None:
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "voluntary_ctxt_switches":
            with suppress(ValueError):
                return int(value)
    return None


def _text(path: str, most: int = _BYTES) -> str:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        parts, left = [], most
        while left > 0 and (part := os.read(descriptor, left)):
            parts.append(part)
            left -= len(part)
        return b"".join(parts).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
