"""The connection to the message bus, on real sockets: answers, errors, silence, nonsense, ends."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from jeepney import DBusAddress as Address
from jeepney import Message, Parser, new_error, new_method_return, new_signal
from stepwarden.clock import SystemClock
from stepwarden.edge.dbus_link import BusRefused, BusUnavailable
from stepwarden.edge.systemd_bus import DONE, LATE, OVER, NoSuchUnit, SystemdBus
from support.fake_bus import Answer, answering, authenticate, listening, polite, silent

JOB = "/org/freedesktop/systemd1/job/7"
MANAGER = Address("/org/freedesktop/systemd1", interface="org.freedesktop.systemd1.Manager")
UNKNOWN_OBJECT = "org.freedesktop.DBus.Error.UnknownObject"


def job_removed(result: str) -> Message:
    return new_signal(MANAGER, "JobRemoved", "uoss", (7, JOB, "x.service", result))


def starting(*, early: str | None = None, look: str | None = None) -> Answer:
    """A systemd that takes a start; `early`: the result it tells before the answer."""

    def respond(message: Message) -> list[Message]:
        if message.header.fields[3] == "StartUnit":
            told = [] if early is None else [job_removed(early)]
            return [*told, new_method_return(message, "o", (JOB,))]
        if look is not None:
            return [new_error(message, look, "s", ("no such job",))]
        return []

    return respond


def test_an_answer_and_an_error(tmp_path: Path) -> None:
    def respond(message: Message) -> list[Message]:
        if message.header.fields[3] == "Get":
            return [new_method_return(message, "v", (("s", "stopping"),))]
        return [new_error(message, "org.freedesktop.systemd1.NoSuchUnit", "s", ("not loaded",))]

    async def ask() -> None:
        async with listening(tmp_path, answering(respond)) as bus:
            assert await bus.system_stopping()
            assert not await bus.loaded("x.service")
            assert await bus.job_type("x.service") is None
            assert await bus.own_unit() is None
            await bus.reset_failed("x.service")
            assert await bus.stop_unit("x.service", 5.0) == DONE
            with pytest.raises(NoSuchUnit, match="not loaded"):
                await bus.start_unit("x.service", 5.0)

    asyncio.run(ask())


@pytest.mark.parametrize("result", ["done", "failed"])
def test_a_result_that_comes_before_the_answer_is_not_lost(tmp_path: Path, result: str) -> None:
    async def ask() -> str:
        async with listening(tmp_path, answering(starting(early=result))) as bus:
            return await bus.start_unit("x.service", 30.0)

    assert asyncio.run(ask()) == result


def test_a_job_whose_signal_was_lost_is_looked_up(tmp_path: Path) -> None:
    async def ask() -> str:
        async with listening(tmp_path, answering(starting(look=UNKNOWN_OBJECT))) as bus:
            return await bus.start_unit("x.service", 30.0)

    assert asyncio.run(ask()) == OVER


def test_a_job_that_goes_on_is_late(tmp_path: Path) -> None:
    async def ask() -> str:
        async with listening(tmp_path, answering(starting())) as bus:
            return await bus.start_unit("x.service", 0.3)

    assert asyncio.run(ask()) == LATE


def test_a_silent_bus_costs_its_limit_and_is_asked_anew(tmp_path: Path) -> None:
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await answering(silent)(reader, writer)

    async def ask() -> None:
        async with listening(tmp_path, serve) as bus:
            for _ in range(2):
                with pytest.raises(BusUnavailable, match="no answer to Get "):
                    await bus.system_stopping(0.1)

    asyncio.run(ask())
    assert connections == 2


async def says_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
    await reader.read()


async def hangs_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await authenticate(reader, writer)


async def rejects(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readline()
    writer.write(b"REJECTED DBUS_COOKIE_SHA1\r\n")
    await reader.read()


async def babbles(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await authenticate(reader, writer)
    writer.write(b"nonsense" * 64)
    await reader.read()


@pytest.mark.parametrize("serve", [says_nothing, hangs_up, rejects, babbles])
def test_a_bus_that_is_none_is_unavailable(
    tmp_path: Path, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
) -> None:
    async def ask() -> None:
        async with listening(tmp_path, serve) as bus:
            with pytest.raises(BusUnavailable):
                await bus.system_stopping(0.5)

    asyncio.run(ask())


@pytest.mark.parametrize("address", ["unix:path=/nowhere/bus", "tcp:host=localhost", "nonsense"])
def test_an_address_that_leads_nowhere_is_named(address: str) -> None:
    async def ask() -> None:
        with pytest.raises(BusUnavailable, match=address.split(":", maxsplit=1)[0]):
            await SystemdBus(address).system_stopping(5.0)

    asyncio.run(ask())


def test_whoever_waits_hears_at_once_that_the_bus_is_gone(tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await authenticate(reader, writer)
        parser = Parser()
        while data := await reader.read(4096):
            parser.add_data(data)
            while (message := parser.get_next_message()) is not None:
                replies = polite(silent)(message)
                if not replies:
                    return
                writer.write(replies[0].serialise(1))

    async def ask() -> None:
        async with listening(tmp_path, serve) as bus, asyncio.timeout(20):
            with pytest.raises(BusUnavailable, match="gone away"):
                await bus.system_stopping(1000.0)

    asyncio.run(ask())


@pytest.mark.skipif(shutil.which("dbus-daemon") is None, reason="there is no dbus-daemon")
def test_a_real_bus_without_systemd_says_so(tmp_path: Path) -> None:
    config = tmp_path / "bus.conf"
    config.write_text(
        f"<busconfig><listen>unix:path={tmp_path}/bus</listen><auth>EXTERNAL</auth>"
        '<policy context="default"><allow send_destination="*"/><allow own="*"/>'
        '<allow eavesdrop="true"/></policy></busconfig>'
    )

    async def ask() -> None:
        command = ("dbus-daemon", f"--config-file={config}", "--nofork", "--print-address")
        pipe = asyncio.subprocess.PIPE
        daemon = await asyncio.create_subprocess_exec(*command, stdout=pipe)
        bus = SystemdBus(f"unix:path={tmp_path}/bus", SystemClock())
        try:
            assert daemon.stdout is not None
            await daemon.stdout.readline()
            with pytest.raises(BusRefused) as caught:
                await bus.system_stopping()
            assert caught.value.name == "org.freedesktop.DBus.Error.ServiceUnknown"
        finally:
            bus.close()
            daemon.kill()
            await daemon.wait()

    asyncio.run(ask())
