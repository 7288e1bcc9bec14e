"""The stream to the supervisor: deadlines, refusals, garbage, and servers that are not ours."""

from __future__ import annotations

import logging
import select
import socket
import time
from collections.abc import Iterator
from concurrent import futures
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from stepwarden_agent import link as link_module
from stepwarden_agent import log
from stepwarden_agent.wire import frames
from stepwarden_agent.wire.frames import make_frame
from stepwarden_proto.page import TOKEN_METADATA_KEY
from stepwarden_proto.v1 import agent_pb2, agent_pb2_grpc
from support.agent_process import short_directory
from support.daemon import free_port
from support.wire_peer import SETTINGS, ScriptedPeer, ack, drive, headers, new_link, settings, wait


@pytest.fixture
def peer() -> Iterator[ScriptedPeer]:
    with short_directory() as folder, ScriptedPeer(folder) as made:
        yield made


@pytest.fixture(autouse=True)
def _fresh_log() -> None:
    log.forget()


def connect(peer: ScriptedPeer, now: float = 0.0) -> link_module.Link:
    """A link whose first message was acknowledged at `now`."""
    link = new_link(peer.target)
    link.turn(now)
    peer.accept()
    peer.send(SETTINGS)
    link.turn(now, wait(link, 20))
    peer.send(headers(), ack(peer.beat()))
    while not link.connected:
        link.turn(now, wait(link, 20))
    return link


def test_one_message_is_in_flight_and_the_newest_wins(peer: ScriptedPeer) -> None:
    link = connect(peer)
    link.offer(link_module.PHASE)
    link.turn(1.0)
    beat = peer.beat()
    assert beat.reason == link_module.PHASE
    for reason in (link_module.TICK, link_module.BUSY, link_module.LEASE, link_module.IDLE):
        link.offer(reason)
        link.turn(1.5)
    assert link.interest()[1] == select.POLLIN, "nothing waits to be sent"
    peer.send(ack(beat))
    link.turn(1.6, wait(link, 20))
    newest = peer.beat()
    assert (newest.reason, newest.seq) == (link_module.LEASE, beat.seq + 1)
    link.drop()


def test_changes_do_not_make_a_storm_of_messages(peer: ScriptedPeer) -> None:
    link = connect(peer)
    link.offer(link_module.PHASE)
    link.turn(0.01)
    assert link.due_at() == pytest.approx(link_module.MIN_GAP_SECONDS)
    link.turn(link_module.MIN_GAP_SECONDS)
    assert peer.beat().reason == link_module.PHASE
    link.drop()


def test_a_message_without_an_answer_ends_the_stream(
    peer: ScriptedPeer, caplog: pytest.LogCaptureFixture
) -> None:
    link = connect(peer)
    link.offer(link_module.TICK)
    link.turn(1.0)
    assert link.due_at() == 1.0 + link_module.MESSAGE_SECONDS
    link.turn(5.9)
    assert link.connected
    link.turn(6.0)
    assert not link.connected
    assert "nothing acknowledged within 5 s" in caplog.text
    assert link.interest() == (-1, 0)


def test_an_answer_that_has_arrived_counts_at_the_deadline(peer: ScriptedPeer) -> None:
    link = connect(peer)
    link.offer(link_module.TICK)
    link.turn(1.0)
    peer.send(ack(peer.beat()))
    assert wait(link, 20)
    link.turn(100.0)
    assert link.connected
    link.drop()


def test_silence_is_followed_by_a_ping_and_then_by_the_end(
    peer: ScriptedPeer, caplog: pytest.LogCaptureFixture
) -> None:
    link = connect(peer)
    quiet = link_module.KEEPALIVE_SECONDS
    assert link.due_at() == quiet
    link.turn(quiet)
    ping = peer.frame(frames.PING)
    assert link.due_at() == quiet + link_module.PING_SECONDS
    peer.send(make_frame(frames.PING, frames.ACK, payload=ping.payload))
    link.turn(quiet + 1.0, wait(link, 20))
    assert link.due_at() == 2 * quiet + 1.0
    link.turn(2 * quiet + 1.0)
    peer.frame(frames.PING)
    link.turn(2 * quiet + 1.0 + link_module.PING_SECONDS)
    assert not link.connected
    assert "a ping was not answered within 10 s" in caplog.text


def test_a_supervisor_that_does_not_greet_is_told_nothing_and_given_up(
    peer: ScriptedPeer, caplog: pytest.LogCaptureFixture
) -> None:
    link = new_link(peer.target)
    link.turn(0.0)
    peer.accept()
    link.turn(4.9)
    assert link.due_at() == link_module.CONNECT_SECONDS
    link.turn(5.0)
    assert "no greeting within 5 s" in caplog.text
    assert peer.frame(frames.SETTINGS)
    with pytest.raises(AssertionError, match="hung up"):
        peer.frame(frames.HEADERS)


def test_pauses_grow_to_two_seconds_and_no_further() -> None:
    with short_directory() as folder:
        link = new_link(f"unix:{folder}/none")
        now, pauses = 0.0, []
        for _ in range(12):
            link.turn(now)
            due = link.due_at()
            assert due is not None
            pauses.append(due - now)
            now = due
        assert 0.0 < pauses[0] <= link_module.FIRST_RETRY_SECONDS
        assert 1.5 < pauses[-1] <= link_module.LAST_RETRY_SECONDS
        assert max(pauses) <= link_module.LAST_RETRY_SECONDS


def test_a_wrong_acknowledgement_ends_the_stream(peer: ScriptedPeer) -> None:
    link = connect(peer)
    link.offer(link_module.TICK)
    link.turn(1.0)
    beat = peer.beat()
    beat.seq += 1
    peer.send(ack(beat))
    link.turn(1.1, wait(link, 20))
    assert not link.connected


def test_a_bye_is_the_last_word(peer: ScriptedPeer) -> None:
    link = connect(peer)
    link.end()
    link.turn(0.01)
    beat = peer.beat()
    assert beat.reason == link_module.BYE
    peer.send(ack(beat))
    link.turn(0.02, wait(link, 20))
    assert link.over
    assert peer.frame(frames.GOAWAY)
    assert link.due_at() is None


def test_a_supervisor_that_leaves_is_left(peer: ScriptedPeer) -> None:
    link = connect(peer)
    peer.send(make_frame(frames.GOAWAY, payload=b"\x7f\xff\xff\xff" + bytes(4)))
    link.turn(1.0, wait(link, 20))
    assert not link.connected
    due = link.due_at()
    assert due is not None
    link.turn(due)
    peer.accept()
    link.drop()


def test_a_message_may_wait_for_the_windows_of_the_supervisor(peer: ScriptedPeer) -> None:
    link = new_link(peer.target)
    link.turn(0.0)
    peer.accept()
    peer.send(settings((4, 7)))
    link.turn(0.0, wait(link, 20))
    whole = peer.frame(frames.DATA).payload
    assert len(whole) == 7
    peer.send(make_frame(frames.WINDOW_UPDATE, 0, 1, (10_000).to_bytes(4, "big")))
    link.turn(0.1, wait(link, 20))
    whole += peer.frame(frames.DATA).payload
    peer.send(headers(), ack(agent_pb2.Beat.FromString(whole[5:])))
    link.turn(0.2, wait(link, 20))
    assert link.connected
    link.drop()


def test_a_closed_descriptor_is_let_go_and_the_link_comes_back(peer: ScriptedPeer) -> None:
    link = connect(peer)
    descriptor, _ = link.interest()
    socket.close(descriptor)
    link.turn(1.0, wait(link, 20))
    assert link.interest() == (-1, 0)
    due = link.due_at()
    assert due is not None
    link.turn(due)
    peer.accept()
    link.drop()


@hypothesis_settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(st.binary(min_size=1, max_size=300), max_size=5), st.booleans(), st.booleans())
def test_garbage_is_a_clean_end_and_another_try(
    peer: ScriptedPeer, garbage: list[bytes], greeted: bool, answered: bool
) -> None:
    link = new_link(peer.target)
    link.turn(0.0)
    peer.accept()
    if greeted:
        peer.send(SETTINGS)
    if answered:
        peer.send(headers())
    for chunk in garbage:
        peer.send(chunk)
        link.turn(0.1, wait(link, 0))
        if link.interest()[0] < 0:
            break
    peer.hang_up()
    now = 0.2
    while link.interest()[0] >= 0:
        link.turn(now, wait(link, 20))
    due = link.due_at()
    assert due is not None
    assert due <= now + link_module.LAST_RETRY_SECONDS
    assert not link.over


class Service(agent_pb2_grpc.AgentServiceServicer):
    """Acknowledges what comes with the right token, in threads."""

    def __init__(self) -> None:
        self.beats: list[agent_pb2.Beat] = []

    def Attach(
        self, request_iterator: Iterator[agent_pb2.Beat], context: grpc.ServicerContext
    ) -> Iterator[agent_pb2.Ack]:
        if (TOKEN_METADATA_KEY, "token") not in context.invocation_metadata():
            context.abort(grpc.StatusCode.UNAUTHENTICATED, "no such token: \u00e9\n")
        for beat in request_iterator:
            self.beats.append(beat)
            yield agent_pb2.Ack(seq=beat.seq)


@pytest.fixture(params=["unix", "127.0.0.1", "[::1]", "localhost"])
def served(request: Any) -> Iterator[tuple[str, Service]]:
    """A server of grpcio's other kind, with threads."""
    if request.param == "[::1]" and not _has_ipv6():
        pytest.skip("no IPv6 here")
    service = Service()
    server = grpc.server(futures.ThreadPoolExecutor(4))
    agent_pb2_grpc.add_AgentServiceServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    with short_directory() as folder:
        port = free_port()
        target = f"unix:{folder}/s" if request.param == "unix" else f"{request.param}:{port}"
        assert server.add_insecure_port(target)
        server.start()
        yield target, service
        server.stop(None).wait(20)


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


def test_a_server_with_threads_is_understood_too(served: tuple[str, Service]) -> None:
    target, service = served
    link = new_link(target)
    drive(link, lambda: link.connected)
    for count in range(2, 6):
        link.offer(link_module.TICK)
        drive(link, lambda count=count: len(service.beats) >= count)  # type: ignore[misc]
    link.end()
    drive(link, lambda: link.over)
    assert [beat.reason for beat in service.beats] == [
        link_module.ATTACH,
        *([link_module.TICK] * 4),
        link_module.BYE,
    ]


def test_a_refusal_is_told_and_tried_again(
    served: tuple[str, Service], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    target, service = served
    link = new_link(target, token="another")
    drive(link, lambda: bool(caplog.records))
    (record,) = caplog.records
    assert "UNAUTHENTICATED: no such token: \u00e9" in record.getMessage()
    assert "\n" not in record.getMessage()
    assert not service.beats
    due = link.due_at()
    assert due is not None
    assert due > time.monotonic() + 0.5 * link_module.LAST_RETRY_SECONDS
