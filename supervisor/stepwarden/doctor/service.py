"""The service as systemd has it: drift of its files, its limits of time, its sandbox."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from stepwarden.config.checks_together import STOP_MARGIN, stop_seconds
from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, names, ok, problem, unknown, warning
from stepwarden.doctor.subject import Subject
from stepwarden.edge.dbus_link import BusError
from stepwarden.edge.systemd_bus import SystemdBus
from stepwarden.edge.unit_facts import unit_of_process
from stepwarden.edge.unit_sandbox import takes_from_workers
from stepwarden.install.lay import Found, State, drift
from stepwarden.install.ways import SERVICE

THEME = "service"
ASK_SECONDS = 3.0
_MICROSECONDS = 1_000_000
_INFINITY = (1 << 64) - 1

_DRIFTS = {
    State.MISSING: "is missing",
    State.OLDER: "is of another version, installation or way",
    State.EDITED: "was edited since it was laid down",
    State.FOREIGN: "was not laid down by stepwarden",
    State.UNREADABLE: "cannot be read",
}


@dataclass(frozen=True, slots=True)
class Service:
    """The unit that the daemon runs in. `name` "": in none; `silence`: why systemd says nothing.

    `properties`: as D-Bus gives them. `spawned`: workers that would be its children.
    """

    name: str
    silence: str = ""
    properties: Mapping[str, Any] = field(default_factory=dict)
    longest: tuple[str, float] = ("", 0.0)
    stop_limit: float = 90.0
    ends_workers: bool = True
    spawned: tuple[str, ...] = ()


def gather_files(_: Subject) -> list[Found]:
    """Every file of the installed service beside what this version would lay down."""
    return drift()


def judge_files(facts: list[Found]) -> Iterator[Finding]:
    """A unit of an older version, or an edited one, behaves as nobody expects."""
    if not facts:
        found = "no service is installed by `stepwarden install`"
        yield ok(found, advice="stepwarden install --dry-run shows what it would lay down")
        return
    differing = [one for one in facts if one.state in _DRIFTS]
    for one in differing:
        detail = f" ({one.detail})" if one.detail else ""
        # An edited or foreign file is left alone unless that is asked for.
        force = " --force" if one.state in (State.EDITED, State.FOREIGN) else ""
        advice = f"stepwarden install{force}; what was edited goes into a drop-in (systemctl edit)"
        yield warning(f"{one.piece.path} {_DRIFTS[one.state]}{detail}", advice)
    if not differing:
        yield ok(f"all {len(facts)} files of the service are as this version lays them down")


def gather(subject: Subject) -> Service:
    """Asks systemd about the unit of the daemon that runs, else about the shipped one."""
    daemon = subject.daemon
    if not SystemdBus.booted():
        return Service("", "systemd does not run this host")
    name = SERVICE if daemon.pid is None else unit_of_process(daemon.process) or ""
    if not name:
        return Service("", f"{daemon.who} runs in no service")
    try:
        properties = asyncio.run(_ask(name))
    except BusError as error:
        return Service(name, f"systemd does not tell of {name}: {error}")
    ours = [worker for worker in subject.workers if worker.attach is None]
    longest = max(((w.name, stop_seconds(w)) for w in ours), key=lambda s: s[1], default=("", 0.0))
    settings = subject.settings
    return Service(
        name,
        properties=properties,
        longest=longest,
        stop_limit=settings.stop_limit,
        ends_workers=settings.on_exit != "leave",
        spawned=_spawned(subject),
    )


def judge(facts: Service) -> Iterator[Finding]:
    """Nothing of it cuts short what the daemon has to do."""
    if not facts.name or facts.silence:
        yield unknown(facts.silence)
        return
    yield from _judge_watchdog(facts)
    yield from _judge_stop(facts)
    yield from _judge_sandbox(facts)


def _judge_watchdog(facts: Service) -> Iterator[Finding]:
    seconds = int(facts.properties.get("WatchdogUSec", 0)) / _MICROSECONDS
    if not 0 < seconds < _INFINITY / _MICROSECONDS:
        advice = "WatchdogSec=10s in its unit"
        yield warning(f"{facts.name} has no watchdog: a blocked loop is not ended", advice)
    elif seconds < 5:
        found = f"{facts.name} has WatchdogSec={seconds:g}s: a busy host may end a healthy daemon"
        yield warning(found, "WatchdogSec=10s")
    else:
        yield ok(f"the watchdog of {facts.name} ends a loop that stands for {seconds:g} s")


def _judge_stop(facts: Service) -> Iterator[Finding]:
    limit = int(facts.properties.get("TimeoutStopUSec", _INFINITY)) / _MICROSECONDS
    worker, seconds = facts.longest
    need = seconds + STOP_MARGIN
    if not facts.ends_workers:
        yield ok("on_exit: leave: the daemon's end waits for no worker")
    elif limit < need:
        yield problem(
            f"TimeoutStopSec of {facts.name} is {limit:g} s, and stopping {worker} may take"
            f" {seconds:g} s: systemd would kill what is still ending",
            f"TimeoutStopSec={need:g}s in a drop-in, and supervisor.stop_limit: {need:g}s",
        )
    elif limit < facts.stop_limit:
        yield warning(
            f"TimeoutStopSec of {facts.name} is {limit:g} s, supervisor.stop_limit"
            f" {facts.stop_limit:g} s: `check` reckons with more time than there is",
            f"supervisor.stop_limit: {limit:g}s, or a longer TimeoutStopSec",
        )
    else:
        yield ok(f"TimeoutStopSec of {facts.name} leaves time for the longest stop ({seconds:g} s)")


def _judge_sandbox(facts: Service) -> Iterator[Finding]:
    taken = takes_from_workers(facts.properties)
    if taken and facts.spawned:
        yield warning(
            f"{names(facts.spawned)} are spawned in the sandbox of {facts.name}"
            f" ({', '.join(taken)}): engines may miss devices, caches or CPU affinity there",
            "stepwarden install --mode spawn, or runner: systemd",
        )
    else:
        yield ok("no worker runs in the sandbox of the daemon")


def _spawned(subject: Subject) -> tuple[str, ...]:
    """Those that are children of the daemon, by what it says, else by the file."""
    answer = subject.daemon.answer
    said = {} if answer is None else {worker.name: worker.runner for worker in answer.workers}
    found = []
    for worker in subject.started:
        wanted = subject.settings.runner if worker.runner == "auto" else worker.runner
        if said.get(worker.name, wanted) == "spawn":
            found.append(worker.name)
    return tuple(found)


async def _ask(name: str) -> Mapping[str, Any]:
    bus = SystemdBus()
    try:
        return await bus.properties(name, ASK_SECONDS)
    finally:
        bus.close()


CHECKS = (
    Check(THEME, "files", gather_files, judge_files),
    Check(THEME, "unit", gather, judge),
)
