"""systemd over the message bus: units, their jobs, and what it is up to with the whole host.

Every call has a limit of its own, none holds the loop, and a connection that was lost or that
gives no answer is replaced by the next call. What a job came to is heard by a signal and looked
up as well, so that a signal lost on the way costs a second and nothing else.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from jeepney import DBusAddress, HeaderFields, MatchRule, Message, new_method_call
from jeepney.bus_messages import message_bus

from stepwarden.clock import Clock, SystemClock
from stepwarden.core.deadline import Deadline, earliest
from stepwarden.edge.dbus_link import SYSTEM_BUS, Body, BusRefused, BusUnavailable, DbusLink
from stepwarden.edge.unit_facts import UnitFacts, read_facts
from stepwarden.waiting import wait

CALL_SECONDS = 10.0
"""For one question. systemd answers nobody while it reloads its units: seconds on large hosts."""

DONE = "done"
LATE = "late"
"""The job still runs, the limit is over."""
OVER = "over"
"""The job has ended, and nobody heard how: look at the unit."""

LOWEST_VERSION = 240
"""The first systemd that has Type=exec and append: for output."""

BOOTED = Path("/run/systemd/system")

_SYSTEMD = "org.freedesktop.systemd1"
_MANAGER = _SYSTEMD + ".Manager"
_MANAGER_PATH = "/org/freedesktop/systemd1"
_PROPERTIES = "org.freedesktop.DBus.Properties"
_POLKIT = "org.freedesktop.PolicyKit1"
_MANAGE_UNITS = "org.freedesktop.systemd1.manage-units"
_NO_SUCH = {
    _SYSTEMD + ".NoSuchUnit",
    _SYSTEMD + ".NoUnitForPID",
    "org.freedesktop.DBus.Error.UnknownObject",
}
_LOOK_SECONDS = 1.0  # a job is looked up this often, whether or not a signal comes
_REMEMBERED = 256  # results of jobs, heard before anybody waited for them

Property = tuple[str, tuple[str, Any]]
"""Name, (signature, value)."""


@dataclass(frozen=True, slots=True)
class ListedUnit:
    """One line of `systemctl list-units`."""

    name: str
    description: str
    load_state: str
    active_state: str
    sub_state: str


class SystemdBus:
    """The service manager of this host.

    `address`: of the message bus; None: $DBUS_SYSTEM_BUS_ADDRESS, else the usual place. All
    methods raise BusRefused where systemd says no and BusUnavailable where nobody answers;
    `limit` is in seconds.
    """

    def __init__(self, address: str | None = None, clock: Clock | None = None) -> None:
        self._address = address or os.environ.get("DBUS_SYSTEM_BUS_ADDRESS") or SYSTEM_BUS
        self._clock = SystemClock() if clock is None else clock
        self._link: DbusLink | None = None
        self._linking = asyncio.Lock()
        self._waiting: dict[str, asyncio.Future[str]] = {}
        self._results: dict[str, str] = {}

    @staticmethod
    def booted() -> bool:
        """True where systemd runs this host (or container)."""
        return BOOTED.is_dir()

    def close(self) -> None:
        """Give the connection back; a later call makes another."""
        if self._link is not None:
            self._link.close()
            self._link = None

    async def refusal(self, limit: float = CALL_SECONDS) -> str | None:
        """Why we cannot run workers in units of their own; None where we can.

        BusUnavailable: nobody answers, so nobody knows.
        """
        if not self.booted():
            return "systemd does not run this host"
        try:
            version = await self._version(limit)
            if version < LOWEST_VERSION:
                return f"systemd {version} is older than {LOWEST_VERSION}"
            if os.geteuid() == 0 or await self._polkit_agrees(limit):
                return None
        except BusRefused as error:
            return str(error)
        return f"polkit does not allow {_MANAGE_UNITS} to uid {os.geteuid()}"

    async def start_transient(self, name: str, properties: Sequence[Property], limit: float) -> str:
        """Make and start a unit that no file describes; returns what the job came to.

        That is DONE, systemd's word for a failure ("failed", "timeout", ...), LATE or OVER.
        """
        body: Body = (name, "fail", list(properties), [])
        return await self._job("StartTransientUnit", "ssa(sv)a(sa(sv))", body, limit)

    async def start_unit(self, name: str, limit: float) -> str:
        """Start a unit; returns what the job came to."""
        return await self._job("StartUnit", "ss", (name, "replace"), limit)

    async def stop_unit(self, name: str, limit: float) -> str:
        """Stop a unit; returns what the job came to. DONE where there is no such unit."""
        with suppress(NoSuchUnit):
            return await self._job("StopUnit", "ss", (name, "replace"), limit)
        return DONE

    async def restart_unit(self, name: str, limit: float) -> str:
        """Stop and start a unit; returns what the job came to."""
        return await self._job("RestartUnit", "ss", (name, "replace"), limit)

    async def kill_unit(self, name: str, sig: int, limit: float = CALL_SECONDS) -> None:
        """Send a signal to every process of a unit; nothing where there is none."""
        with suppress(BusRefused):
            await self._manager("KillUnit", "ssi", (name, "all", int(sig)), self._until(limit))

    async def reset_failed(self, name: str, limit: float = CALL_SECONDS) -> None:
        """Let a failed unit be forgotten; nothing where there is no such unit."""
        with suppress(NoSuchUnit):
            await self._manager("ResetFailedUnit", "s", (name,), self._until(limit))

    async def loaded(self, name: str, limit: float = CALL_SECONDS) -> bool:
        """True while systemd has this unit in memory: its name is taken."""
        try:
            await self._manager("GetUnit", "s", (name,), self._until(limit))
        except NoSuchUnit:
            return False
        return True

    async def facts(self, name: str, limit: float = CALL_SECONDS) -> UnitFacts | None:
        """What is known of a unit; None where systemd knows none of this name.

        A unit that is not in memory is read from its file.
        """
        deadline = self._until(limit)
        (path,) = await self._manager("LoadUnit", "s", (name,), deadline)
        (properties,) = await self._call(path, _PROPERTIES, "GetAll", "s", ("",), deadline)
        facts = read_facts(properties)
        if facts is None:
            return None
        return replace(facts, job=await self._type_of(properties["Job"][1], deadline) or "")

    async def properties(self, name: str, limit: float = CALL_SECONDS) -> dict[str, Any]:
        """Every property of a unit in memory by name, as systemd has it."""
        deadline = self._until(limit)
        (path,) = await self._manager("GetUnit", "s", (name,), deadline)
        (found,) = await self._call(path, _PROPERTIES, "GetAll", "s", ("",), deadline)
        return {key: value for key, (_, value) in found.items()}

    async def job_type(self, name: str, limit: float = CALL_SECONDS) -> str | None:
        """What is being done with a unit ("stop", "restart", "start", ...); None: nothing is."""
        deadline = self._until(limit)
        try:
            (path,) = await self._manager("GetUnit", "s", (name,), deadline)
            job = await self._property(path, _SYSTEMD + ".Unit", "Job", deadline)
        except NoSuchUnit:
            return None
        return await self._type_of(job, deadline)

    async def own_unit(self, limit: float = CALL_SECONDS) -> str | None:
        """The service that this process belongs to; None where it is in none."""
        deadline = self._until(limit)
        try:
            (path,) = await self._manager("GetUnitByPID", "u", (os.getpid(),), deadline)
            name = str(await self._property(path, _SYSTEMD + ".Unit", "Id", deadline))
        except NoSuchUnit:
            return None
        return name if name.endswith(".service") else None

    async def system_stopping(self, limit: float = CALL_SECONDS) -> bool:
        """True once the host has begun to shut down."""
        deadline = self._until(limit)
        state = await self._property(_MANAGER_PATH, _MANAGER, "SystemState", deadline)
        return bool(state == "stopping")

    async def list_units(self, prefix: str, limit: float = CALL_SECONDS) -> list[ListedUnit]:
        """The units in memory whose names begin so."""
        pattern = "".join(f"\\{letter}" if letter in r"\*?[" else letter for letter in prefix) + "*"
        body: Body = ([], [pattern])
        (rows,) = await self._manager("ListUnitsByPatterns", "asas", body, self._until(limit))
        return [ListedUnit(*row[:5]) for row in rows]

    async def _version(self, limit: float) -> int:
        """systemd's own number; 0 where it says nothing that looks like one."""
        deadline = self._until(limit)
        text = str(await self._property(_MANAGER_PATH, _MANAGER, "Version", deadline))
        digits = "".join(letter if letter.isdecimal() else " " for letter in text).split()
        return int(digits[0]) if digits else 0

    async def _polkit_agrees(self, limit: float) -> bool:
        """Ask as ourselves, without a question to anybody at a screen."""
        me = ("system-bus-name", {"name": ("s", (await self._linked(self._until(limit))).name)})
        address = DBusAddress(
            "/org/freedesktop/PolicyKit1/Authority", _POLKIT, _POLKIT + ".Authority"
        )
        body: Body = (me, _MANAGE_UNITS, {}, 0, "")
        message = new_method_call(address, "CheckAuthorization", "(sa{sv})sa{ss}us", body)
        ((allowed, *_),) = await self._send(message, self._until(limit))
        return bool(allowed)

    async def _type_of(self, job: tuple[int, str], deadline: Deadline) -> str | None:
        number, path = job
        if number == 0:
            return None
        try:
            return str(await self._property(path, _SYSTEMD + ".Job", "JobType", deadline))
        except NoSuchUnit:  # it ended meanwhile
            return None

    async def _job(self, member: str, signature: str, body: Body, limit: float) -> str:
        deadline = self._until(limit)
        (path,) = await self._manager(member, signature, body, deadline)
        if path in self._results:
            return self._results.pop(path)
        heard = self._waiting[path] = asyncio.get_running_loop().create_future()
        try:
            return await self._outcome(path, heard, deadline)
        finally:
            del self._waiting[path]

    async def _outcome(self, path: str, heard: asyncio.Future[str], deadline: Deadline) -> str:
        while True:
            look = self._until(_LOOK_SECONDS)
            await asyncio.wait({heard}, timeout=earliest(look, deadline).remaining(self._now()))
            if heard.done():
                return heard.result()
            if deadline.passed(self._now()):
                return LATE
            # Without an answer the next look may bring one.
            with suppress(BusUnavailable):
                try:
                    look = self._until(_LOOK_SECONDS)
                    await self._property(path, _SYSTEMD + ".Job", "State", earliest(look, deadline))
                except NoSuchUnit:
                    return heard.result() if heard.done() else OVER

    def _note_signal(self, message: Message) -> None:
        if message.header.fields.get(HeaderFields.member) != "JobRemoved":
            return
        _, path, _, result = message.body
        waiting = self._waiting.get(path)
        if waiting is not None and not waiting.done():
            waiting.set_result(result)
            return
        # It may come before the answer that says which job is ours.
        self._results[path] = result
        while len(self._results) > _REMEMBERED:
            del self._results[next(iter(self._results))]

    async def _manager(self, member: str, signature: str, body: Body, deadline: Deadline) -> Body:
        return await self._call(_MANAGER_PATH, _MANAGER, member, signature, body, deadline)

    async def _property(self, path: str, interface: str, name: str, deadline: Deadline) -> Any:
        body = (interface, name)
        ((_, value),) = await self._call(path, _PROPERTIES, "Get", "ss", body, deadline)
        return value

    async def _call(
        self,
        path: str,
        interface: str,
        member: str,
        signature: str,
        body: Body,
        deadline: Deadline,
    ) -> Body:
        address = DBusAddress(path, _SYSTEMD, interface)
        return await self._send(new_method_call(address, member, signature, body), deadline)

    async def _send(self, message: Message, deadline: Deadline) -> Body:
        link = await self._linked(deadline)
        try:
            return await link.call(message, deadline, self._clock)
        except BusUnavailable:
            # It may hang for good: those who wait on it keep it, the next call gets another.
            if self._link is link:
                self._link = None
            link.retire()
            raise
        except BusRefused as error:
            if error.name in _NO_SUCH:
                raise NoSuchUnit(error.name, str(error)) from None
            raise

    async def _linked(self, deadline: Deadline) -> DbusLink:
        try:
            return await wait(self._make_link(deadline), deadline, self._clock)
        except TimeoutError:
            raise BusUnavailable("no connection to the message bus in time") from None

    async def _make_link(self, deadline: Deadline) -> DbusLink:
        async with self._linking:
            if self._link is None or self._link.closed:
                link = await DbusLink.open(self._address, self._note_signal, deadline, self._clock)
                try:
                    await link.call(_HEAR_JOBS, deadline, self._clock)
                except BaseException:
                    link.close()
                    raise
                self._link = link
            return self._link

    def _until(self, limit: float) -> Deadline:
        return Deadline.after(self._now(), limit)

    def _now(self) -> float:
        return self._clock.monotonic()


class NoSuchUnit(BusRefused):
    """systemd has no such unit, or no such job, or none for that process."""


_HEAR_JOBS = message_bus.AddMatch(
    MatchRule(type="signal", sender=_SYSTEMD, interface=_MANAGER, member="JobRemoved")
)
