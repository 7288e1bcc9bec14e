"""The client's own gRPC calls against peers that are no daemon, or none that means well."""

from __future__ import annotations

import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import grpc
import pytest
from stepwarden.cli import client
from stepwarden.cli.client import Client
from stepwarden.clock import SystemClock
from stepwarden.errors import StepwardenError, UnreachableError
from stepwarden_agent.wire import frames
from stepwarden_agent.wire.frames import make_frame
from stepwarden_proto.v1 import supervisor_pb2 as pb
from stepwarden_proto.v1 import supervisor_pb2_grpc as rpc

Peer = Callable[[socket.socket], None]
LIST = pb.ListWorkersRequest()


@contextmanager
def peer(behave: Peer) -> Iterator[Path]:
    """A listener that treats its one connection so; it is gone at the end of the block."""
    with tempfile.TemporaryDirectory(prefix="sw-") as name, socket.socket(socket.AF_UNIX) as server:
        path = Path(name) / "a.sock"
        server.bind(str(path))
        server.listen(4)
        server.settimeout(20)

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as connection:
                behave(connection)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield path
        finally:
            server.close()
            thread.join(20)


def ask(path: Path, timeout: float = 20.0) -> object:
    return Client(path, timeout, SystemClock()).call("ListWorkers", LIST)


def until_closed(connection: socket.socket) -> None:
    connection.settimeout(20)
    with suppress(OSError):
        while connection.recv(65536):
            pass


def hangs_up(connection: socket.socket) -> None:
    connection.recv(10)


def speaks_http_1(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
    until_closed(connection)


def speaks_noise(connection: socket.socket) -> None:
    connection.sendall(bytes(range(256)) * 50)
    until_closed(connection)


def claims_a_huge_frame(connection: socket.socket) -> None:
    connection.sendall(make_frame(frames.SETTINGS) + b"\xff\xff\xff\0\0\0\0\0\1")
    until_closed(connection)


def resets(connection: socket.socket) -> None:
    connection.sendall(
        make_frame(frames.SETTINGS) + make_frame(frames.RST_STREAM, 0, 1, b"\0\0\0\2")
    )
    until_closed(connection)


@pytest.mark.parametrize(
    "behave", [hangs_up, speaks_http_1, speaks_noise, claims_a_huge_frame, resets]
)
def test_a_peer_that_is_no_daemon_is_unreachable(behave: Peer) -> None:
    with peer(behave) as path, pytest.raises(UnreachableError, match=f"{path} went away"):
        ask(path)


def says_nothing(connection: socket.socket) -> None:
    until_closed(connection)


def pings_for_ever(connection: socket.socket) -> None:
    connection.sendall(make_frame(frames.SETTINGS))
    with suppress(OSError):
        while True:
            connection.sendall(make_frame(frames.PING, payload=bytes(8)))
            connection.recv(65536)


@pytest.mark.parametrize("behave", [says_nothing, pings_for_ever])
def test_a_limit_holds_whatever_the_peer_does(behave: Peer) -> None:
    with peer(behave) as path, pytest.raises(UnreachableError, match=r"not answer within 0\.3 s"):
        ask(path, 0.3)


def test_a_stream_without_limit_asks_for_a_sign_of_life(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "KEEPALIVE_TIME_MS", 100)
    monkeypatch.setattr(client, "KEEPALIVE_TIMEOUT_MS", 100)
    with peer(says_nothing) as path:
        asked = Client(path, 20.0, SystemClock())
        with pytest.raises(UnreachableError, match=r"not answer within 0\.2 s"):
            list(asked.stream("WatchEvents", pb.WatchEventsRequest(follow=True), endless=True))


def test_a_full_queue_of_connections_is_waited_for_within_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(str(path))
        server.listen(0)
        first.connect(str(path))
        with pytest.raises(UnreachableError, match=r"not answer within 0\.2 s"):
            ask(path, 0.2)


def test_so_is_one_for_a_stream_without_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "KEEPALIVE_TIME_MS", 100)
    monkeypatch.setattr(client, "KEEPALIVE_TIMEOUT_MS", 100)
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as first:
        server.bind(str(path))
        server.listen(0)
        first.connect(str(path))
        events = Client(path, 20.0, SystemClock()).stream(
            "WatchEvents", pb.WatchEventsRequest(follow=True), endless=True
        )
        with pytest.raises(UnreachableError, match=r"not answer within 0\.2 s"):
            next(events)


class _Strange(rpc.SupervisorServiceServicer):
    """Answers ListWorkers as no daemon does."""

    def __init__(self, code: grpc.StatusCode, details: str) -> None:
        self._code = code
        self._details = details

    def ListWorkers(self, _request: object, context: grpc.ServicerContext) -> object:
        context.abort(self._code, self._details)
        raise AssertionError


@contextmanager
def strange(code: grpc.StatusCode, details: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sw-") as name:
        server = grpc.server(ThreadPoolExecutor(2))
        rpc.add_SupervisorServiceServicer_to_server(  # type: ignore[no-untyped-call]
            _Strange(code, details), server
        )
        server.add_insecure_port(f"unix:{name}/a.sock")
        server.start()
        try:
            yield Path(name) / "a.sock"
        finally:
            server.stop(None).wait(20)


def test_what_a_status_says_is_told_whole_and_harmlessly() -> None:
    text = "caf\u00e9 100% \u0416 \x1b[2J " + "long " * 300
    with (
        strange(grpc.StatusCode.INTERNAL, text) as path,
        pytest.raises(StepwardenError) as told,
    ):
        ask(path)
    assert str(told.value).startswith("the daemon answered INTERNAL: caf\u00e9 100% \u0416 ")
    assert str(told.value).count("long") == 300
    assert "\x1b" not in str(told.value)


def test_a_method_that_is_not_there() -> None:
    with (
        strange(grpc.StatusCode.INTERNAL, "") as path,
        pytest.raises(UnreachableError, match="is not an admin socket of this version"),
    ):
        Client(path, 20.0, SystemClock()).call("GetWorker", pb.GetWorkerRequest(name="w"))


def test_an_answer_that_is_no_message_of_ours(tmp_path: Path) -> None:
    def garbage(_request: bytes, _context: object) -> bytes:
        return b"\xff" * 20

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(garbage)
    service = "stepwarden.v1.SupervisorService"
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler(service, {"ListWorkers": handler})]
    )
    server.add_insecure_port(f"unix:{tmp_path}/a.sock")
    server.start()
    try:
        with pytest.raises(UnreachableError, match="answers what this version cannot read"):
            ask(tmp_path / "a.sock")
    finally:
        server.stop(None).wait(20)
