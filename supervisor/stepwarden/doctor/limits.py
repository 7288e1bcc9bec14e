"""Resource limits of the daemon against the number of workers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, names, ok, problem, unknown, warning
from stepwarden.doctor.process import limits_of
from stepwarden.doctor.subject import Subject
from stepwarden.naming import counted

THEME = "limits"
FILES_PER_WORKER = 32
"""Streams, pages and pidfds of up to eight ranks, and captured output."""
FILES_BESIDE = 256
TASKS_PER_WORKER = 512
"""An engine has hundreds of threads; one with several ranks thousands."""
RDMA = Path("/sys/class/infiniband")


@dataclass(frozen=True, slots=True)
class Limits:
    """`values`: soft and hard by name, None: unlimited. `unbound`: workers of no own memlock."""

    who: str
    values: Mapping[str, tuple[int | None, int | None]]
    workers: int
    root: bool
    rdma: bool
    unbound: tuple[str, ...]


def gather(subject: Subject) -> Limits:
    """Facts of the daemon, or of this shell in its place."""
    daemon = subject.daemon
    started = subject.started
    return Limits(
        who=daemon.who,
        values=limits_of(daemon.process),
        workers=len(started),
        root=daemon.uid == 0,
        rdma=RDMA.is_dir() and any(RDMA.iterdir()),
        unbound=tuple(w.name for w in started if "memlock" not in w.run_as.limits),
    )


def judge(facts: Limits) -> Iterator[Finding]:
    """Enough descriptors for us, tasks for the workers, locked memory for RDMA."""
    if not facts.values:
        yield unknown(f"the limits of {facts.who} cannot be read", "ask as root")
        return
    yield from _files(facts)
    yield from _tasks(facts)
    yield from _memory(facts)


def _files(facts: Limits) -> Iterator[Finding]:
    # The daemon raises its own soft limit to the hard one.
    _, hard = facts.values.get("nofile", (None, None))
    need = FILES_BESIDE + FILES_PER_WORKER * facts.workers
    if hard is not None and hard < need:
        yield problem(
            f"nofile of {facts.who} is {hard}, and {counted(facts.workers, 'worker')}"
            f" may need {need}",
            f"LimitNOFILE={max(need, 65536)} in its unit, or ulimit -n before it starts",
        )
    else:
        yield ok(f"nofile is {_told(hard)}, {need} would do for {counted(facts.workers, 'worker')}")


def _tasks(facts: Limits) -> Iterator[Finding]:
    soft, _ = facts.values.get("nproc", (None, None))
    need = TASKS_PER_WORKER * max(1, facts.workers)
    if soft is not None and soft < need and not facts.root:
        yield warning(
            f"nproc of {facts.who} is {soft}; {counted(facts.workers, 'worker')} of its"
            f" user may have {need} threads",
            f"LimitNPROC={max(need, 65536)}, and TasksMax=infinity, in its unit",
        )
    else:
        yield ok(f"nproc is {_told(soft)}")


def _memory(facts: Limits) -> Iterator[Finding]:
    _, hard = facts.values.get("memlock", (None, None))
    if facts.rdma and hard is not None and facts.unbound:
        yield warning(
            f"this host has RDMA, and memlock is {hard} bytes for {names(facts.unbound)}: NCCL"
            " over InfiniBand fails to register memory",
            "limits: {memlock: unlimited} at these workers, and LimitMEMLOCK=infinity in the"
            " daemon's unit where they are spawned",
        )
    else:
        yield ok(f"memlock is {_told(hard)}{'' if facts.rdma else '; no RDMA here needs it'}")


def _told(limit: int | None) -> str:
    return "unlimited" if limit is None else str(limit)


CHECKS = (Check(THEME, "limits", gather, judge),)
