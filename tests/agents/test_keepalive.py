"""O-GRPC-4: the keepalive of both sides fits, and a half-open connection is found out.

All intervals of both sides are shortened by the same factor; how long a peer may take to answer a
ping is not, for that depends on the machine.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from stepwarden.cli import client
from stepwarden.cli.client import Client
from stepwarden.clock import SystemClock
from stepwarden.edge import admin_service, agent_service
from stepwarden_agent import link as link_module
from stepwarden_agent import log
from stepwarden_agent.link import Link
from stepwarden_agent.wire.http2 import Connection
from stepwarden_proto import channel
from stepwarden_proto.v1 import supervisor_pb2
from support.admin_thread import AdminThread
from support.agent_process import short_directory
from support.agent_server_thread import AgentServerThread
from support.stalling_proxy import StallingProxy
from support.waiting import wait_for
from support.wire_peer import new_link, wait

FACTOR = 60
SIX_MINUTES = 6 * 60 / FACTOR
SCALED = {
    "grpc.keepalive_time_ms",
    "grpc.http2.min_ping_interval_without_data_ms",
    "grpc.http2.min_recv_ping_interval_without_data_ms",
}


@pytest.fixture
def pings(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Everything is FACTOR times as fast; gives the instants at which our side pinged."""
    serve_with(monkeypatch)
    monkeypatch.setattr(link_module, "KEEPALIVE_SECONDS", link_module.KEEPALIVE_SECONDS / FACTOR)
    monkeypatch.setattr(client, "KEEPALIVE_TIME_MS", client.KEEPALIVE_TIME_MS / FACTOR)
    sent: list[float] = []
    ping = Connection.ping

    def noted(connection: Connection) -> None:
        sent.append(time.monotonic())
        ping(connection)

    monkeypatch.setattr(Connection, "ping", noted)
    log.forget()
    return sent


def serve_with(monkeypatch: pytest.MonkeyPatch, **changed: int) -> None:
    """Servers from now on have our options, FACTOR times as fast, but for `changed`."""
    options = {
        name: value // FACTOR if name in SCALED else value for name, value in channel.SERVER_OPTIONS
    }
    options |= {f"grpc.{name}": value for name, value in changed.items()}
    for module in (agent_service, admin_service):
        monkeypatch.setattr(module, "SERVER_OPTIONS", list(options.items()))


def drive_all(links: list[Link], seconds: float, beat_every: float | None = None) -> None:
    """Turn all of them as their beat threads would, with a beat of each at that interval."""
    poll_until = time.monotonic() + seconds
    next_beats = dict.fromkeys(links, time.monotonic())
    events = dict.fromkeys(links, 0)
    while (now := time.monotonic()) < poll_until:
        for link in links:
            if beat_every is not None and now >= next_beats[link]:
                next_beats[link] += beat_every
                link.offer(link_module.TICK)
            link.turn(now, events[link])
        events = ready(links)


def ready(links: list[Link]) -> dict[Link, int]:
    poll, owners = select.poll(), {}
    for link in links:
        descriptor, wanted = link.interest()
        if descriptor >= 0:
            owners[descriptor] = link
            poll.register(descriptor, wanted)
    found = {owners[descriptor]: seen for descriptor, seen in poll.poll(20)}
    return {link: found.get(link, 0) for link in links}


def test_o_grpc_4_an_idle_agent_pings_and_is_not_thrown_off(
    pings: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The server's own pings would be a sign of life: here it sends none in that time."""
    serve_with(monkeypatch, keepalive_time_ms=600_000)
    with AgentServerThread() as served:
        links = [new_link(target, token="t") for target in served.targets]
        drive_all(links, SIX_MINUTES)
        assert all(link.connected for link in links)
        assert len(pings) > 2 * SIX_MINUTES, "so many pings that the server could take offence"
        assert len(served.beats) == len(links), "one beat each, and then nothing for six minutes"
        for link in links:
            link.drop()
    assert caplog.text == ""


def test_o_grpc_4_the_server_does_throw_off_who_pings_too_often(
    pings: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else the test above would prove nothing."""
    monkeypatch.setattr(link_module, "KEEPALIVE_SECONDS", 0.001)
    with AgentServerThread() as served:
        link = new_link(served.targets[0], token="t")
        drive_all([link], 3.0)
        link.drop()
    assert "too many pings" in caplog.text.lower()
    assert pings


def test_o_grpc_4_a_hundred_agents_at_one_beat_a_second(
    pings: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    """In the time of this test each beats at its real pace and pings sixty times as often."""
    with AgentServerThread() as served:
        links = [
            new_link(served.targets[number % 2], token="t", rank=str(number))
            for number in range(100)
        ]
        drive_all(links, 6.0, beat_every=1.0)
        assert all(link.connected for link in links)
        assert len({beat.rank for beat in served.beats}) == 100
        for link in links:
            link.drop()
    assert "no supervisor" not in caplog.text
    assert pings


def test_o_grpc_4_a_half_open_connection_is_found_out_by_both_sides(
    pings: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The heartbeat timeout is 30 s: within that after packets flow the agent is back."""
    for name in ("MESSAGE_SECONDS", "CONNECT_SECONDS", "PING_SECONDS"):
        monkeypatch.setattr(link_module, name, 1.0)
    serve_with(monkeypatch, keepalive_timeout_ms=1000, **{"http2.ping_timeout_ms": 1000})
    with AgentServerThread() as served, StallingProxy(served.port) as proxy:
        link = new_link(f"127.0.0.1:{proxy.port}", token="t")
        drive_until(link, lambda: link.connected)
        proxy.stall()
        drive_until(link, lambda: not link.connected, beat=True)
        wait_for(lambda: served.streams == 0, what="the server lets go of the dead stream")
        drive_until(link, lambda: proxy.accepted >= 4)  # it goes on trying
        assert not link.connected
        proxy.flow()
        flows = time.monotonic()
        drive_until(link, lambda: link.connected, seconds=30.0)
        assert time.monotonic() - flows < 30.0
        link.drop()
    assert pings is not None


def drive_until(
    link: Link, reached: Callable[[], bool], seconds: float = 30.0, beat: bool = False
) -> None:
    end, events = time.monotonic() + seconds, 0
    while not reached():
        now = time.monotonic()
        assert now < end, "nothing came of it"
        if beat:
            link.offer(link_module.TICK)
        link.turn(now, events)
        events = wait(link, 0.05)


@contextmanager
def admin() -> Iterator[tuple[AdminThread, Path]]:
    with short_directory() as folder, AdminThread(folder / "admin.sock") as served:
        yield served, folder / "admin.sock"


def test_o_grpc_4_a_client_that_follows_is_not_thrown_off_either(pings: list[float]) -> None:
    """Six quiet minutes, then an event arrives on the same stream."""
    with admin() as (served, path), ExitStack() as stack:
        asked = Client(path, 20.0, SystemClock())
        request = supervisor_pb2.WatchEventsRequest(follow=True)
        stream = asked.stream("WatchEvents", request, endless=True)
        stack.callback(stream.close)
        assert next(stream).sentence == "the first"
        stack.callback(served.after(SIX_MINUTES, "the last"))
        assert next(stream).sentence == "the last"
    assert len(pings) > SIX_MINUTES
