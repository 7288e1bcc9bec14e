"""Runs inside a box: `python unit_stage.py ACT [ARGUMENT...]` plays an act, prints JSON.

Each act is a coroutine that gets a connected `Stage`; the tests read what it returns.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import asdict
from pathlib import Path
from typing import Any

from stepwarden.edge.begun import Begun
from stepwarden.edge.cgroup import at_control_group
from stepwarden.edge.dbus_link import BusUnavailable
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.systemd_bus import SystemdBus
from stepwarden.edge.transient_units import TransientSpec, TransientUnits
from stepwarden.edge.unit_names import slice_of
from stepwarden.edge.unit_workers import UnitWorkers

OWNER = "/var/lib/stage"
RUNTIME = Path("/run/stage")
PYTHON = "/usr/bin/python3"
LIMIT = 20.0
ENV = {"PATH": "/usr/bin:/bin"}
# Prints all that a process can have inherited.
MIRROR = """
import json, os, resource, sys
limits = {n: resource.getrlimit(getattr(resource, "RLIMIT_" + n)) for n in ("NOFILE", "CORE")}
json.dump({
    "argv": sys.argv[1:], "env": dict(os.environ), "cwd": os.getcwd(), "uid": os.getuid(),
    "gid": os.getgid(), "nice": os.nice(0), "limits": limits, "umask": os.umask(0),
    "fds": sorted(int(n) for n in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + n)),
}, open(sys.argv[1], "w"))
"""  # noqa: E501
ORPHANS = "setsid sleep 1000 & exit 3"

Act = Callable[..., Coroutine[Any, Any, Any]]
ACTS: dict[str, Act] = {}


def act(function: Act) -> Act:
    """Make it known to the command line."""
    ACTS[function.__name__] = function
    return function


class Stage:
    """The modules under test, connected to the systemd of the box."""

    def __init__(self) -> None:
        self.bus = SystemdBus()
        RUNTIME.mkdir(exist_ok=True)
        self.units = TransientUnits(self.bus, RUNTIME, OWNER)
        self.workers = UnitWorkers(self.bus)
        self._number = 0

    async def start(self, *argv: str, limit: float = LIMIT, **others: Any) -> Begun:
        """Start a transient worker with a name of its own."""
        return await self.units.start(self.spec(*argv, **others), limit)

    def spec(self, *argv: str, **others: Any) -> TransientSpec:
        """A command; everything else may be left out."""
        self._number += 1
        given = {"worker": "w-1", "env": ENV, **others}
        life = f"{given['worker']}.{self._number}.{os.urandom(4).hex()}"
        return TransientSpec(incarnation=life, argv=argv, **given)

    async def ended(self, unit: str) -> dict[str, Any]:
        """Wait for the end of its main process; how it ended."""
        found = await self.units.exit_within(unit, LIMIT)
        assert found is not None, f"{unit} does not end"
        return asdict(found)

    async def gone(self, unit: str) -> bool:
        """Tidy; True where neither unit nor control group is left."""
        facts = await self.units.facts(unit)
        tidied = await self.units.tidy(unit)
        left = facts is not None and at_control_group(facts.cgroup) is not None
        loaded = await self.bus.loaded(unit) or await self.bus.loaded(slice_of(unit))
        return tidied and not left and not loaded


@act
async def mirror(stage: Stage, path: str) -> Any:
    """What a worker sees of itself; argv and environment come from a JSON file."""
    given = json.loads(Path(path).read_text(encoding="utf-8"))
    settings: dict[str, Any] = {"umask": 0o027, "nice": 5, "limits": {"nofile": 4321, "core": 0}}
    argv = (PYTHON, "-I", "-c", MIRROR, f"{path}.seen", *given["argv"])
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    begun = await stage.start(
        *argv,
        env={**ENV, **given["env"]},
        cwd="/var/tmp",
        user="nobody",
        group="nogroup",
        **settings,
    )
    how = await stage.ended(begun.unit)
    seen = json.loads(Path(f"{path}.seen").read_text(encoding="utf-8"))
    gone = await stage.gone(begun.unit)
    # Python ignores two signals for itself, so somebody else has to look.
    begun = await stage.start("grep", "Sig[BI]", "/proc/self/status", output=f"{path}.signals")
    await stage.ended(begun.unit)
    await stage.gone(begun.unit)
    signals = Path(f"{path}.signals").read_text(encoding="ascii").split()
    return {"exit": how, "gone": gone, "signals": signals, **seen}


@act
async def exits(stage: Stage) -> Any:
    """How different ends are read, and that the unit waits for that."""
    ends = {}
    for script in (
        "exit 0",
        "exit 7",
        "sleep 0.2; exit 203",
        "kill -KILL $$",
        "kill -TERM $$",
        "exit 255",
    ):
        begun = await stage.start("sh", "-c", script)
        ends[script] = [await stage.ended(begun.unit), await stage.gone(begun.unit)]
    at_once = await stage.start("/bin/true")
    ends["true"] = [await stage.ended(at_once.unit), await stage.gone(at_once.unit)]
    ends["again"] = [await stage.units.tidy(at_once.unit), await stage.units.exit_of(at_once.unit)]
    return ends


@act
async def slices(stage: Stage) -> Any:
    """Whether the groups of a unit and of its slice are there: running, ended, tidied."""
    begun = await stage.start("sleep", "1000")
    above = await stage.bus.facts(slice_of(begun.unit))
    assert above is not None
    assert begun.main is not None

    def there() -> list[bool]:
        return [at_control_group(name) is not None for name in (begun.cgroup, above.cgroup)]

    seen = {"while it runs": there()}
    os.kill(begun.main.pid, signal.SIGKILL)
    await stage.ended(begun.unit)
    end = time.monotonic() + LIMIT
    while at_control_group(begun.cgroup) is not None and time.monotonic() < end:
        await asyncio.sleep(0.02)
    seen["when it ended"] = there()
    assert await stage.gone(begun.unit)
    seen["tidied"] = there()
    return seen


@act
async def failures(stage: Stage, folder: str) -> Any:
    """What is said of commands that cannot be started, and what is left of their units."""
    tries: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
        "missing": (("/nowhere/engine",), {}),
        "not in PATH": (("no-such-engine",), {}),
        "not executable": ((f"{folder}/plain",), {}),
        "a folder": ((folder,), {}),
        "no interpreter": ((f"{folder}/lost",), {}),
        "no program": ((f"{folder}/text",), {}),
        "cwd": (("/bin/true",), {"cwd": "/nowhere"}),
        "user": (("/bin/true",), {"user": "no-such-user"}),
        "group": (("/bin/true",), {"group": "no-such-group"}),
        "output": (("/bin/true",), {"output": "/nowhere/log"}),
        "bytes": (("/bin/true", "\udcff"), {}),
        "cwd bytes": (("/bin/true",), {"cwd": "/\udcff"}),
        "variable": (("/bin/true",), {"env": {"a-b": "1"}}),
        "value": (("/bin/true",), {"env": {"TOKEN": "\udcff"}}),
    }
    texts = {}
    for name, (argv, others) in tries.items():
        try:
            await stage.start(*argv, **others)
        except SpawnFailed as error:
            texts[name] = str(error)
    left = [unit.name for unit in await stage.bus.list_units("stepwarden-w-1-")]
    return {"texts": texts, "left": left, "files": os.listdir(RUNTIME / "environments")}


@act
async def orphans(stage: Stage) -> Any:
    """Main ends with a failure; the rest of its tree is ours to end."""
    begun = await stage.start("sh", "-c", ORPHANS)
    how = await stage.ended(begun.unit)
    group = at_control_group(begun.cgroup)
    assert group is not None
    left = group.processes()
    await asyncio.sleep(0.3)  # time for systemd to do what it must not
    stay = group.processes() == left
    gone = await stage.gone(begun.unit)
    return {"exit": how, "left": len(left), "stay": stay, "gone": gone}


@act
async def begin(stage: Stage, after: str, user: str, *argv: str) -> Any:
    """Start a worker that goes on without us; its identity."""
    units = TransientUnits(stage.bus, RUNTIME, OWNER, after=after or None)
    spec = stage.spec(*argv, env={**ENV, "TOKEN": "s3cret-token"}, user=user)
    return asdict(await units.start(spec, LIMIT))


@act
async def append(stage: Stage, path: str) -> Any:
    """Output goes to the end of a file."""
    for word in ("one", "two"):
        begun = await stage.start("sh", "-c", f"echo {word}; echo {word} >&2", output=path)
        await stage.ended(begun.unit)
        await stage.gone(begun.unit)
    return Path(path).read_text(encoding="utf-8")


@act
async def leftovers(stage: Stage) -> Any:
    """Every unit of this owner."""
    return [asdict(left) for left in await stage.units.leftovers()]


@act
async def tidy(stage: Stage, *units: str) -> Any:
    """Take units away, twice."""
    return [[await stage.gone(unit), await stage.units.tidy(unit)] for unit in units]


@act
async def many(stage: Stage, count: str) -> Any:
    """Start and take away, many times; seconds that the starts took, sorted."""
    took = []
    for _ in range(int(count)):
        began = time.monotonic()
        begun = await stage.start("sleep", "1000")
        took.append(time.monotonic() - began)
        assert begun.main is not None
        assert await stage.gone(begun.unit)
    return sorted(took)


@act
async def at_once(stage: Stage, count: str) -> Any:
    """Start many together; how many processes, units and groups that makes, before and after."""
    began = await asyncio.gather(*(stage.start("sleep", "1000") for _ in range(int(count))))
    mains = len({one.main for one in began})
    gone = await asyncio.gather(*(stage.gone(one.unit) for one in began))
    return {"mains": mains, "gone": all(gone)}


@act
async def hung_exec(stage: Stage, path: str) -> Any:
    """A program whose exec hangs; how long we waited, and whether the loop went on meanwhile."""
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.02)
            ticks += 1

    ticking = asyncio.ensure_future(tick())
    began = time.monotonic()
    try:
        await stage.start(path, limit=1.0)
        said = "started"
    except SpawnFailed as error:
        said = str(error)
    took = time.monotonic() - began
    ticking.cancel()
    given_up = asyncio.ensure_future(stage.start(path))
    while not await stage.bus.list_units("stepwarden-w-1-"):
        await asyncio.sleep(0.02)
    given_up.cancel()
    await asyncio.wait({given_up})
    await stage.units.close()
    left = [unit.name for unit in await stage.bus.list_units("stepwarden-w-1-")]
    return {"said": said, "took": took, "ticks": ticks, "cancelled": left}


@act
async def caller(stage: Stage, notes: str) -> Any:
    """A service that starts a worker once, and notes what systemd is up to when it is ended."""
    notebook = Path(notes)
    after = await stage.bus.own_unit()
    if not await stage.units.leftovers():
        units = TransientUnits(stage.bus, RUNTIME, OWNER, after=after)
        await units.start(stage.spec("sleep", "1000"), LIMIT)
    asked = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, asked.set)
    with notebook.open("a") as file:
        file.write(f"up {after}\n")
    await asked.wait()
    job = await stage.bus.job_type(after or "")
    stopping = await stage.bus.system_stopping()
    with notebook.open("a") as file:
        file.write(f"{job} {stopping}\n")
    return None


@act
async def lost_bus(stage: Stage, pid: str) -> Any:
    """The bus hangs, goes on, and is replaced: what the calls give meanwhile."""
    told: list[Any] = [await stage.bus.system_stopping()]
    os.kill(int(pid), signal.SIGSTOP)
    try:
        began = time.monotonic()
        try:
            await stage.bus.system_stopping(0.3)
        except BusUnavailable:
            told.append(time.monotonic() - began < 5)
    finally:
        os.kill(int(pid), signal.SIGCONT)
    told.append(await stage.bus.system_stopping())
    link = stage.bus._link
    assert link is not None
    os.kill(int(pid), signal.SIGKILL)
    end = time.monotonic() + LIMIT
    while not link.closed:
        assert time.monotonic() < end
        await asyncio.sleep(0.02)
    while True:  # socket activation starts the next one
        try:
            told.append(await stage.bus.system_stopping())
        except BusUnavailable:
            assert time.monotonic() < end
            await asyncio.sleep(0.05)
        else:
            return told


@act
async def operators_unit(stage: Stage, unit: str, failing: str, restarting: str) -> Any:
    """Start, restart and stop of a unit with a file of its own."""
    seen: dict[str, Any] = {}
    first = await stage.workers.start(unit, LIMIT)
    again = await stage.workers.start(unit, LIMIT)
    second = await stage.workers.restart(unit, LIMIT)
    members = await stage.workers.processes(unit)
    seen["same"] = first == again
    seen["other"] = first.main != second.main
    seen["members"] = len(members)
    seen["with main"] = second.main in members
    assert second.main is not None
    os.kill(second.main.pid, signal.SIGKILL)
    seen["exit"] = await stage.ended(unit)
    third = await stage.workers.start(unit, LIMIT)
    seen["third"] = third.main is not None
    seen["stopped"] = await stage.workers.stop(unit, LIMIT)
    seen["processes"] = len(await stage.workers.processes(unit))
    for name in (failing, restarting, "nobody-wrote-this.service"):
        try:
            await stage.workers.start(name, LIMIT)
        except SpawnFailed as error:
            seen[name] = str(error)
    return seen


@act
async def refusal(stage: Stage) -> Any:
    """Whether units can be made, and what this process is part of."""
    return [await stage.bus.refusal(), await stage.bus.own_unit()]


async def _play(name: str, arguments: list[str]) -> Any:
    stage = Stage()
    try:
        return await ACTS[name](stage, *arguments)
    finally:
        await stage.units.close()
        stage.bus.close()


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_play(sys.argv[1], sys.argv[2:]))))
