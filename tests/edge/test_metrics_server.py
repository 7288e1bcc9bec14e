"""The HTTP server of the metrics, with clients of every kind."""

from __future__ import annotations

import resource
import socket
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from stepwarden.clock import SystemClock
from stepwarden.edge import metrics_server
from stepwarden.edge.listen import TcpTarget
from stepwarden.edge.metrics_page import MetricsPage
from stepwarden.edge.metrics_server import MetricsServer
from stepwarden.edge.metrics_snapshot import MetricsSnapshot, SupervisorFigures
from stepwarden.edge.metrics_table import LAG_SECONDS
from stepwarden.edge.metrics_tally import Histogram
from stepwarden.errors import AlreadyRunningError, RefusedError
from stepwarden.exposure import TlsFiles
from support.certificates import Authority
from support.waiting import wait_for

LOCAL = TcpTarget("127.0.0.1", 0, "supervisor.metrics.listen")


def make_page() -> MetricsPage:
    nothing = Histogram(LAG_SECONDS).freeze()
    snapshot = MetricsSnapshot(SupervisorFigures(nothing, nothing))
    clock = SystemClock()
    turned_at = clock.monotonic()
    return MetricsPage(lambda: snapshot, lambda: turned_at, clock)


@pytest.fixture
def page() -> MetricsPage:
    return make_page()


@pytest.fixture
def server(page: MetricsPage) -> Iterator[MetricsServer]:
    made = MetricsServer([LOCAL], page, SystemClock())
    made.start()
    yield made
    made.shutdown()


def connect(server: MetricsServer) -> socket.socket:
    host, _, port = server.addresses[0].rpartition(":")
    made = socket.create_connection((host, int(port)), timeout=10.0)
    return made


def ask(server: MetricsServer, request: bytes) -> bytes:
    """The whole answer; empty where the server just hung up."""
    with connect(server) as client:
        parts = []
        try:
            client.sendall(request)
            while part := client.recv(65536):
                parts.append(part)
        except ConnectionResetError:
            pass
        return b"".join(parts)


def get(server: MetricsServer, path: str = "/metrics") -> str:
    with urllib.request.urlopen(f"http://{server.addresses[0]}{path}", timeout=10.0) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain")
        return str(answer.read().decode())


def test_it_serves_the_page(server: MetricsServer) -> None:
    text = get(server)
    assert "stepwarden_build_info" in text
    assert "process_resident_memory_bytes" in text
    assert "stepwarden_metrics_scrapes_total 1.0" in text
    assert "stepwarden_metrics_scrapes_total 2.0" in get(server, "/metrics?name=x")


def test_head_and_other_paths_and_methods(server: MetricsServer) -> None:
    assert "/metrics" in get(server, "/")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(server, "/other")
    head = ask(server, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")
    posted = ask(server, b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
    assert posted.startswith(b"HTTP/1.1 405 ")
    assert b"Allow: GET, HEAD\r\n" in posted


@pytest.mark.parametrize(
    "request_",
    [b"nonsense", b"GET /metrics", b"GET / HTTP/2", b"\x16\x03\x01"],
)
def test_what_is_no_request_is_told_so(server: MetricsServer, request_: bytes) -> None:
    assert ask(server, request_ + b"\r\n\r\n").startswith(b"HTTP/1.1 400 ")


def test_a_request_that_is_too_long_ends_the_connection(
    server: MetricsServer, page: MetricsPage
) -> None:
    long = b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * (4 * metrics_server.MOST_REQUEST_BYTES)
    assert ask(server, long) == b""
    wait_for(lambda: page.dropped == 1)
    assert "stepwarden_metrics_connections_dropped_total 1.0" in get(server)


def test_a_slow_client_is_given_up(
    server: MetricsServer, page: MetricsPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", 0.2)
    assert ask(server, b"GET /met") == b""
    assert page.dropped == 1


def test_many_connections_hold_up_nobody(server: MetricsServer) -> None:
    with ExitStack() as stack:
        for _ in range(3 * metrics_server.MOST_CONNECTIONS):
            stack.enter_context(connect(server))
        assert "stepwarden_build_info" in get(server)


def test_a_client_that_does_not_read_holds_up_nobody(
    server: MetricsServer, page: MetricsPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(page, "render", lambda: b"x" * 50_000_000)
    with connect(server) as client:
        client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
        assert "/metrics" in get(server, "/")
        wait_for(lambda: page.dropped == 1)


def test_it_goes_on_when_the_loop_does_not_turn(server: MetricsServer) -> None:
    def age() -> float:
        (line,) = [
            line
            for line in get(server).splitlines()
            if line.startswith("stepwarden_supervisor_loop_age_seconds ")
        ]
        return float(line.split()[1])

    first = age()
    wait_for(lambda: age() > first + 0.2)


def test_an_address_in_use_is_told_with_its_key(server: MetricsServer, page: MetricsPage) -> None:
    port = int(server.addresses[0].rpartition(":")[2])
    target = TcpTarget("127.0.0.1", port, "supervisor.metrics.listen")
    other = MetricsServer([LOCAL, target], page, SystemClock())
    with pytest.raises(AlreadyRunningError, match=r"supervisor\.metrics\.listen names it"):
        other.start()
    assert other.addresses == []


def test_other_hosts_are_not_served_in_plain_text(page: MetricsPage) -> None:
    other = MetricsServer([TcpTarget("0.0.0.0", 0)], page, SystemClock())
    with pytest.raises(RefusedError, match="without TLS"):
        other.start()
    open_ = MetricsServer([TcpTarget("0.0.0.0", 0, insecure=True)], page, SystemClock())
    open_.start()
    open_.shutdown()


def test_with_tls_nobody_is_served_without(tmp_path: Path, page: MetricsPage) -> None:
    authority = Authority(tmp_path)
    cert, key = authority.issue("server")
    target = TcpTarget("127.0.0.1", 0, tls=TlsFiles(cert, key, authority.ca))
    server = MetricsServer([target], page, SystemClock())
    server.start()
    try:
        context = ssl.create_default_context(cafile=authority.ca)
        assert len(server.certificates) == 1
        assert ask(server, b"GET /metrics HTTP/1.1\r\n\r\n") == b""
        url = f"https://{server.addresses[0]}/metrics"
        with pytest.raises(OSError, match=r"(?i)certificate|reset|EOF|end of file|closed"):
            urllib.request.urlopen(url, timeout=10.0, context=context).read()
        context.load_cert_chain(*authority.issue("client", "prometheus"))
        with urllib.request.urlopen(url, timeout=10.0, context=context) as answer:
            assert b"stepwarden_build_info" in answer.read()
    finally:
        server.shutdown()


@contextmanager
def serving_with_tls(page: MetricsPage, files: TlsFiles) -> Iterator[MetricsServer]:
    made = MetricsServer([TcpTarget("127.0.0.1", 0, tls=files)], page, SystemClock())
    made.start()
    try:
        yield made
    finally:
        made.shutdown()


def test_connections_that_never_speak_tls_are_bounded_as_well(
    tmp_path: Path, page: MetricsPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "REQUEST_SECONDS", 3600.0)
    authority = Authority(tmp_path)
    with (
        serving_with_tls(page, TlsFiles(*authority.issue("server"))) as server,
        ExitStack() as stack,
    ):
        silent = [
            stack.enter_context(connect(server)) for _ in range(3 * metrics_server.MOST_CONNECTIONS)
        ]
        for evicted in silent[: metrics_server.MOST_CONNECTIONS]:
            with suppress(ConnectionResetError):
                assert evicted.recv(1) == b""
        context = ssl.create_default_context(cafile=authority.ca)
        url = f"https://{server.addresses[0]}/metrics"
        with urllib.request.urlopen(url, timeout=10.0, context=context) as answer:
            assert b"stepwarden_build_info" in answer.read()


def test_an_authority_that_was_replaced_is_believed_no_longer(
    tmp_path: Path, page: MetricsPage
) -> None:
    (folder := tmp_path / "clients").mkdir()
    authority, clients = Authority(tmp_path), Authority(folder)
    context = ssl.create_default_context(cafile=authority.ca)
    context.load_cert_chain(*clients.issue("client", "prometheus"))
    files = TlsFiles(*authority.issue("server"), clients.ca)
    with serving_with_tls(page, files) as server:
        url = f"https://{server.addresses[0]}/metrics"
        with urllib.request.urlopen(url, timeout=10.0, context=context) as answer:
            assert answer.status == 200
        Authority(folder)
        assert server.certificates[0].refresh()
        with pytest.raises(OSError, match=r"(?i)alert|reset|EOF|end of file|closed"):
            urllib.request.urlopen(url, timeout=10.0, context=context).read()


def test_a_lack_of_descriptors_ends_no_listener(
    server: MetricsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics_server, "_REST_SECONDS", 0.01)
    tried = threading.Event()
    again = MetricsServer._accept_again

    def noted(self: MetricsServer, *listener: Any) -> None:
        tried.set()
        again(self, *listener)

    monkeypatch.setattr(MetricsServer, "_accept_again", noted)
    host, _, port = server.addresses[0].rpartition(":")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    with socket.socket() as client:
        client.settimeout(10.0)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
        try:
            client.connect((host, int(port)))
            assert tried.wait(10.0)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        client.sendall(b"HEAD / HTTP/1.1\r\n\r\n")
        assert client.recv(12) == b"HTTP/1.1 200"


def test_shutdown_waits_for_nobody_and_frees_the_address(page: MetricsPage) -> None:
    server = MetricsServer([LOCAL], page, SystemClock())
    server.start()
    port = int(server.addresses[0].rpartition(":")[2])
    with connect(server):
        began = time.monotonic()
        server.shutdown()
        assert time.monotonic() - began < metrics_server.REQUEST_SECONDS
    again = MetricsServer([TcpTarget("127.0.0.1", port)], page, SystemClock())
    again.start()
    again.shutdown()
    again.shutdown()


def test_without_an_address_nothing_is_served(page: MetricsPage) -> None:
    server = MetricsServer([], page, SystemClock())
    server.start()
    assert server.addresses == []
    server.shutdown()


def test_a_page_that_cannot_be_made_is_answered_500_and_told_once() -> None:
    page, told = make_page(), list[str]()
    page.render = _broken  # type: ignore[method-assign]
    server = MetricsServer([LOCAL], page, SystemClock(), told.append)
    server.start()
    try:
        for _ in range(3):
            with pytest.raises(urllib.error.HTTPError) as refused:
                urllib.request.urlopen(f"http://{server.addresses[0]}/metrics", timeout=30)
            assert refused.value.code == 500
            refused.value.close()
    finally:
        server.shutdown()
    assert told == ["a fault of ours in the metrics page: LookupError: no such figure"]


def _broken() -> bytes:
    raise LookupError("no such figure")


def test_a_thread_that_dies_at_once_refuses_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dies(*_: object) -> None:
        raise OSError("no descriptors left")

    monkeypatch.setattr(MetricsServer, "_serve", dies)
    server = MetricsServer([LOCAL], make_page(), SystemClock())
    with pytest.raises(RefusedError, match="cannot serve metrics: OSError: no descriptors left"):
        server.start()
    assert server.addresses == []
