"""The kernel, the load, and how many cores the workers think they have."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, names, ok, unknown, warning
from stepwarden.doctor.process import text_of
from stepwarden.doctor.subject import Subject

THEME = "host"
EXIT_KERNEL = (6, 14)
BUSY_PRESSURE = 40.0
"""Percent of the last minute in which somebody waited for a CPU."""
PRESSURE = Path("/proc/pressure/cpu")
THREADS = ("VLLM_CPU_OMP_THREADS_BIND", "OMP_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Kernel:
    """`pidfd`: whether processes can be held by descriptor. `release`: as uname says."""

    pidfd: bool
    release: str


@dataclass(frozen=True, slots=True)
class Load:
    """`pressure` None: the kernel does not measure it. `threads`: of CPU workers that say it.

    `unsaid`: CPU workers that take every core.
    """

    pressure: float | None
    cores: int
    threads: Mapping[str, int] = field(default_factory=dict)
    unsaid: tuple[str, ...] = ()


def gather_kernel(_: Subject) -> Kernel:
    """Facts of the kernel."""
    return Kernel(_has_pidfd(), os.uname().release)


def judge_kernel(facts: Kernel) -> Iterator[Finding]:
    """What a newer one could do."""
    if not facts.pidfd:
        yield warning(
            f"kernel {facts.release} has no pidfd here: a pid that is given on could be signalled",
            "a kernel of 5.3 or later; in a container, a seccomp profile that allows pidfd_open",
        )
    else:
        yield ok(f"kernel {facts.release}: processes are held by pidfd")
    numbers = tuple(map(int, re.findall(r"\d+", facts.release)[:2]))
    if numbers < EXIT_KERNEL:
        found = "the exit code of an adopted worker that is nobody's child cannot be known"
        yield ok(found, advice="a kernel of 6.14 or later tells it")
    else:
        yield ok("exit codes of adopted workers are told by the kernel")


def gather_load(subject: Subject) -> Load:
    """Pressure, and what CPU workers are told of threads."""
    threads: dict[str, int] = {}
    unsaid = []
    for worker in subject.started:
        if worker.policy.backend != "cpu":
            continue
        count = threads_of(subject.environment_of(worker))
        if count is None:
            unsaid.append(worker.name)
        else:
            threads[worker.name] = count
    cores = len(os.sched_getaffinity(0))
    return Load(_pressure(text_of(PRESSURE)), cores, threads, tuple(unsaid))


def judge_load(facts: Load) -> Iterator[Finding]:
    """Starved workers are slow ones, and slow steps come near their budgets."""
    if facts.pressure is None:
        yield unknown("the kernel measures no CPU pressure", "boot with psi=1 to see starvation")
    elif facts.pressure >= BUSY_PRESSURE:
        yield warning(
            f"in {facts.pressure:.0f} % of the last minute somebody waited for a CPU: steps take"
            " longer, and clocks are shifted for it",
            "fewer workers or threads, or CPUWeight= for the daemon and AllowedCPUs= for workers",
        )
    else:
        yield ok(f"CPU pressure is {facts.pressure:.0f} %")
    wanted = sum(facts.threads.values()) + facts.cores * len(facts.unsaid)
    if wanted > facts.cores and len(facts.threads) + len(facts.unsaid) > 1:
        who = names([*facts.threads, *facts.unsaid])
        yield warning(
            f"CPU workers may start {wanted} threads on {facts.cores} cores ({who}): threads that"
            " wait for each other make steps many times slower",
            f"give each its cores: env: {{{THREADS[0]}: 0-7}}, or {THREADS[1]}",
        )
    else:
        yield ok(f"{facts.cores} cores are enough for what CPU workers are told of threads")


def threads_of(environment: Mapping[str, str]) -> int | None:
    """How many threads an engine is told to use; None: as many as there are cores."""
    bound = environment.get(THREADS[0], "")
    ranges = re.findall(r"(\d+)(?:-(\d+))?", bound)
    if ranges:
        return sum(int(high or low) - int(low) + 1 for low, high in ranges)
    number = environment.get(THREADS[1], "")
    return int(number) if number.isascii() and number.isdigit() and int(number) else None


def _has_pidfd() -> bool:
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:
        return False
    return True


def _pressure(text: str | None) -> float | None:
    found = re.search(r"some .*avg60=([0-9.]+)", text or "")
    return None if found is None else float(found[1])


CHECKS = (
    Check(THEME, "kernel", gather_kernel, judge_kernel),
    Check(THEME, "load", gather_load, judge_load),
)
