from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from stepwarden.clock import SystemClock
from stepwarden.edge import health_watch
from stepwarden.edge.health_messages import (
    NOT_SERVING,
    SERVICE_UNKNOWN,
    SERVING,
    HealthCheckRequest,
    HealthCheckResponse,
    HealthListRequest,
    HealthListResponse,
)
from stepwarden.edge.health_service import HealthServer, HealthSnapshot
from stepwarden.edge.health_table import HealthTable
from stepwarden.edge.listen import TcpTarget
from stepwarden_proto.v1 import agent_pb2, supervisor_pb2
from support.clocks import FakeClock
from support.silent_watchers import SilentWatchers
from support.waiting import wait_for

LIMIT = 20.0

FOREIGN = [
    f"/{service.full_name}/{method.name}"
    for file in (agent_pb2.DESCRIPTOR, supervisor_pb2.DESCRIPTOR)
    for service in file.services_by_name.values()
    for method in service.methods
] + [
    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
    "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    "/grpc.health.v1.Health/Reset",
]


class Client:
    """Asks by the method names and messages of the specification."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)])
        ask, told = HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
        self._check: Any = self.channel.unary_unary("/grpc.health.v1.Health/Check", ask, told)
        self._watch: Any = self.channel.unary_stream("/grpc.health.v1.Health/Watch", ask, told)
        self._list: Any = self.channel.unary_unary(
            "/grpc.health.v1.Health/List",
            HealthListRequest.SerializeToString,
            HealthListResponse.FromString,
        )

    def check(self, name: str, timeout: float = LIMIT) -> int:
        return int(self._check(HealthCheckRequest(service=name), timeout=timeout).status)

    def watch(self, name: str) -> Any:
        return self._watch(HealthCheckRequest(service=name), timeout=60.0)

    def list(self) -> dict[str, int]:
        answer = self._list(HealthListRequest(), timeout=LIMIT)
        return {name: response.status for name, response in answer.statuses.items()}


class Served:
    """A health server on a fake clock, and a client of it."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.server = HealthServer([TcpTarget("127.0.0.1", 0)], self.clock)
        self.server.start()
        self.client = Client(self.server.listening[0].address)

    def publish(self, **serving: bool) -> None:
        names = {name.replace("__", "/"): on for name, on in serving.items()}
        self.server.publish(HealthSnapshot(self.clock.monotonic(), names))

    @property
    def watchers(self) -> int:
        return len(self.server._hub)


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.server.shutdown()
    made.client.channel.close()


def test_o_hlth_1_known_names(served: Served) -> None:
    served.publish(ready=True, worker__W1=True, worker__W2=False)
    assert served.client.check("") == SERVING
    assert served.client.check("ready") == SERVING
    assert served.client.check("worker/W1") == SERVING
    assert served.client.check("worker/W2") == NOT_SERVING
    assert served.client.list() == {
        "": SERVING,
        "ready": SERVING,
        "worker/W1": SERVING,
        "worker/W2": NOT_SERVING,
    }


def test_before_the_first_turn_of_the_loop_nothing_serves(served: Served) -> None:
    assert served.client.list() == {"": NOT_SERVING, "ready": NOT_SERVING}


@pytest.mark.parametrize("name", ["worker/W9", "W1", "x" * 300, "worker/\0", "wörker/日本", " "])
def test_o_hlth_1_unknown_names_are_not_found(served: Served, name: str) -> None:
    served.publish(ready=True, worker__W1=True)
    with pytest.raises(grpc.RpcError) as caught:
        served.client.check(name, timeout=5.0)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.NOT_FOUND
    assert error.details().isascii()
    assert len(error.details()) < 600
    stream = served.client.watch(name)
    assert next(stream).status == SERVICE_UNKNOWN
    stream.cancel()
    assert served.client.check("") == SERVING


def test_a_huge_name_is_refused(served: Served) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        served.client.check("x" * 1_000_000)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert served.client.check("") == NOT_SERVING


def test_o_hlth_1_watch_of_an_unknown_name_follows_when_it_appears(served: Served) -> None:
    served.publish(ready=True)
    stream = served.client.watch("worker/W9")
    assert next(stream).status == SERVICE_UNKNOWN
    served.publish(ready=True, worker__W9=False)
    assert next(stream).status == NOT_SERVING
    served.publish(ready=True, worker__W9=True)
    assert next(stream).status == SERVING
    served.publish(ready=True)
    assert next(stream).status == SERVICE_UNKNOWN
    stream.cancel()


def test_watchers_hear_of_changes_only(served: Served) -> None:
    served.publish(ready=True)
    stream = served.client.watch("ready")
    assert next(stream).status == SERVING
    for _ in range(20):
        served.publish(ready=True)
    served.publish(ready=False)
    assert next(stream).status == NOT_SERVING
    stream.cancel()


def test_o_hlth_3_a_stale_stamp_is_not_serving_for_check_and_watch(served: Served) -> None:
    served.publish(ready=True, worker__W1=True)
    streams = [served.client.watch(name) for name in ("", "ready", "worker/W1")]
    assert [next(stream).status for stream in streams] == [SERVING] * 3
    served.clock.advance(2.9)
    assert served.client.check("") == SERVING
    served.clock.advance(0.2)
    assert served.client.check("") == NOT_SERVING
    assert served.client.check("ready") == NOT_SERVING
    # Nobody publishes any more: the watchers hear of it all the same.
    assert [next(stream).status for stream in streams] == [NOT_SERVING] * 3
    served.publish(ready=True, worker__W1=True)
    assert [next(stream).status for stream in streams] == [SERVING] * 3
    for stream in streams:
        stream.cancel()


def test_o_hlth_1_a_thousand_watchers_cost_no_threads_and_are_forgotten(served: Served) -> None:
    served.publish(ready=True)
    one = served.client.watch("ready")
    next(one)
    threads = threading.active_count()
    streams = [served.client.watch(f"random-{i}") for i in range(1000)]
    assert {next(stream).status for stream in streams} == {SERVICE_UNKNOWN}
    assert served.watchers == 1001
    assert threading.active_count() < threads + 28  # the pools fill up to their bounds
    assert served.client.check("", timeout=5.0) == SERVING
    for stream in [*streams, one]:
        stream.cancel()
    wait_for(lambda: served.watchers == 0)


def test_watchers_are_bounded(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_watch, "MAX_WATCHERS", 2)
    streams = [served.client.watch("ready") for _ in range(2)]
    assert [next(stream).status for stream in streams] == [NOT_SERVING] * 2
    with pytest.raises(grpc.RpcError) as caught:
        next(served.client.watch("ready"))
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    streams[0].cancel()
    wait_for(lambda: served.watchers == 1)
    again = served.client.watch("ready")
    assert next(again).status == NOT_SERVING


def test_a_watcher_that_reads_nothing_is_cut_off_and_holds_up_nobody() -> None:
    """Its sender waits on it; after the limit it is cancelled and the thread is free again."""
    clock = FakeClock()
    table = HealthTable(clock)
    hub = health_watch.WatcherHub(table, clock)
    hub.start()
    assert hub.up_to_date
    entered, cut, heard = (threading.Event() for _ in range(3))

    def stuck(_: object) -> None:
        entered.set()
        cut.wait(LIMIT)

    forget = hub.add("", stuck, cut.set)
    assert forget is not None
    hub.add("", lambda _: heard.set(), lambda: None)
    assert heard.wait(LIMIT)
    assert entered.wait(LIMIT)
    assert not hub.up_to_date
    clock.advance(health_watch.STUCK_AFTER_SECONDS + 1)
    assert cut.wait(LIMIT)
    forget()
    wait_for(lambda: hub.up_to_date)
    hub.stop()
    hub.close()


def test_a_crowd_that_never_reads_is_gone_soon_and_keeps_no_news_from_others() -> None:
    """Real connections with a closed window: the server can hand over nothing. There is one status
    at most in hand for each of them, however often it changes."""
    server = HealthServer([TcpTarget("127.0.0.1", 0)], SystemClock())
    server.start()
    clock = SystemClock()

    def publish(ready: bool) -> None:
        server.publish(HealthSnapshot(clock.monotonic(), {"ready": ready}))

    publish(True)
    client = Client(server.listening[0].address)
    stream = client.watch("ready")
    assert next(stream).status == SERVING
    hub = server._hub
    with contextlib.ExitStack() as crowd:
        for _ in range(3):
            crowd.enter_context(SilentWatchers(server.listening[0].port, "ready", 100))
        wait_for(lambda: len(hub) == 301, what="the crowd is there")
        begun = clock.monotonic()
        for number in range(1, 2000):
            publish(number % 2 == 0)
            hub.tell()
            assert hub._greeters._work_queue.qsize() <= 300
        assert next(stream).status == NOT_SERVING
        publish(True)
        assert SERVING in (next(stream).status for _ in range(2000))
        assert client.check("ready", timeout=5.0) == SERVING
        wait_for(lambda: len(hub) == 1, 60, "those who never read are cut off", every=0.1)
        assert clock.monotonic() - begun >= health_watch.STUCK_AFTER_SECONDS
        publish(True)
        assert next(client.watch("")).status == SERVING
    server.shutdown()
    client.channel.close()


def test_o_hlth_2_a_drain_is_told_to_everybody_who_listens_before_it_counts_as_told(
    served: Served,
) -> None:
    served.publish(ready=True)
    streams = [served.client.watch("ready") for _ in range(200)]
    assert {next(stream).status for stream in streams} == {SERVING}
    wait_for(lambda: served.server.all_told)
    served.server.drain()
    wait_for(lambda: served.server.all_told)
    assert {watcher._told for watcher in served.server._hub._all()} == {NOT_SERVING}
    assert {next(stream).status for stream in streams} == {NOT_SERVING}
    served.publish(ready=True)
    assert served.client.list() == {"": NOT_SERVING, "ready": NOT_SERVING}


@pytest.mark.parametrize("method", FOREIGN)
def test_the_health_listener_serves_health_alone(served: Served, method: str) -> None:
    call: Any = served.client.channel.unary_unary(method, None, None)
    with pytest.raises(grpc.RpcError) as caught:
        call(b"", timeout=LIMIT)
    error: Any = caught.value
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED


def test_o_hlth_2_drain_is_heard_at_once_and_is_final(served: Served) -> None:
    served.publish(ready=True, worker__W1=True)
    streams = [served.client.watch(name) for name in ("", "ready", "worker/W1")]
    assert [next(stream).status for stream in streams] == [SERVING] * 3
    served.server.drain()
    assert [next(stream).status for stream in streams] == [NOT_SERVING] * 3
    served.publish(ready=True, worker__W1=True)
    assert served.client.check("") == NOT_SERVING
    # Nobody reads the streams meanwhile: a shutdown that waits for its clients never ends.
    stopping = threading.Thread(target=served.server.shutdown, daemon=True)
    stopping.start()
    stopping.join(LIMIT)
    assert not stopping.is_alive()
    assert [list(stream) for stream in streams] == [[]] * 3


def test_o_hlth_2_shutdown_tells_the_last_status_before_it_ends_the_streams(
    served: Served,
) -> None:
    served.publish(ready=True)
    streams = [served.client.watch("ready") for _ in range(50)]
    assert {next(stream).status for stream in streams} == {SERVING}
    served.server.shutdown()
    assert {tuple(m.status for m in stream) for stream in streams} == {(NOT_SERVING,)}


def test_the_health_messages_live_beside_another_definition_of_them() -> None:
    """An engine or a plugin may load grpcio-health-checking into the same process."""
    from google.protobuf import descriptor_pb2, descriptor_pool
    from stepwarden.edge import health_messages

    made = health_messages.HealthCheckRequest.DESCRIPTOR.file
    other = descriptor_pb2.FileDescriptorProto()
    made.CopyToProto(other)
    other.name = "grpc_health/v1/health.proto"
    pool: Any = descriptor_pool.Default()
    pool.Add(other)
    assert health_messages.HealthCheckRequest(service="x").SerializeToString() == b"\n\x01x"


def test_a_server_that_cannot_listen_holds_nothing() -> None:
    first = HealthServer([TcpTarget("127.0.0.1", 0)], SystemClock())
    first.start()
    port = first.listening[0].port
    second = HealthServer([TcpTarget("127.0.0.1", 0), TcpTarget("127.0.0.1", port)], SystemClock())
    with pytest.raises(Exception, match=str(port)):
        second.start()
    assert second.listening == []
    first.shutdown()
    second.shutdown()
