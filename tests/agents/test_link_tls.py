"""TLS between our own agent and a real server: agreed on, or refused in one clear line."""

from __future__ import annotations

import logging
import select
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from stepwarden_agent import link as link_module
from stepwarden_agent import log
from stepwarden_agent.link import Link
from stepwarden_agent.settings import Settings, TlsSettings, read_settings
from stepwarden_agent.wire.tls import Tls, make_context
from stepwarden_proto.channel import SERVER_OPTIONS
from stepwarden_proto.v1 import agent_pb2, agent_pb2_grpc
from support.certificates import Authority
from support.wire_peer import drive, new_link


class Service(agent_pb2_grpc.AgentServiceServicer):
    """Acknowledges everything."""

    def Attach(self, request_iterator: Any, _context: Any) -> Iterator[agent_pb2.Ack]:
        for beat in request_iterator:
            yield agent_pb2.Ack(seq=beat.seq)


@contextmanager
def serving(credentials: grpc.ServerCredentials | None) -> Iterator[int]:
    """A real gRPC server on a free port of the loopback; its port."""
    with futures.ThreadPoolExecutor(4) as pool:
        server = grpc.server(pool, options=SERVER_OPTIONS)
        agent_pb2_grpc.add_AgentServiceServicer_to_server(  # type: ignore[no-untyped-call]
            Service(), server
        )
        if credentials is None:
            port = server.add_insecure_port("127.0.0.1:0")
        else:
            port = server.add_secure_port("127.0.0.1:0", credentials)
        server.start()
        try:
            yield port
        finally:
            server.stop(0).wait(10)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture(autouse=True)
def _fresh_log(caplog: pytest.LogCaptureFixture) -> None:
    log.forget()
    caplog.set_level(logging.WARNING)


def shown(pair: tuple[Path, Path], clients: Path | None = None) -> grpc.ServerCredentials:
    """What a server shows, and by what it believes clients."""
    cert, key = (path.read_bytes() for path in pair)
    root = None if clients is None else clients.read_bytes()
    return grpc.ssl_server_credentials([(key, cert)], root, clients is not None)


def connects(link: Link) -> None:
    drive(link, lambda: link.connected)
    for _ in range(3):
        link.offer(link_module.TICK)
        drive(link, lambda: link._due is None and link._sent is None)
    link.end()
    drive(link, lambda: link.over)


def refused(link: Link, caplog: pytest.LogCaptureFixture, words: str) -> None:
    """It says so in one line, however often it tries, and goes on trying."""
    drive(link, lambda: link._failures >= 3)
    link.drop()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1, lines
    assert words in lines[0]
    assert "the worker runs on, retrying" in lines[0]
    assert "\n" not in lines[0]


def test_a_server_with_a_certificate_of_our_authority(authority: Authority) -> None:
    with serving(shown(authority.issue("server"))) as port:
        for host in ("127.0.0.1", "localhost"):
            connects(new_link(f"{host}:{port}", tls=TlsSettings(str(authority.ca))))


def test_a_certificate_of_ours_where_the_server_wants_one(authority: Authority) -> None:
    cert, key = map(str, authority.issue("agent", "agent"))
    both = Path(cert).with_name("both.pem")
    both.write_text(Path(cert).read_text() + Path(key).read_text())
    with serving(shown(authority.issue("server"), clients=authority.ca)) as port:
        for tls in (
            TlsSettings(str(authority.ca), cert, key),
            TlsSettings(str(authority.ca), str(both)),
        ):
            connects(new_link(f"127.0.0.1:{port}", tls=tls))


def test_the_name_in_the_certificate_may_be_another_than_the_targets(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    ca = str(authority.ca)
    with serving(shown(authority.issue("server", "stepwarden.example"))) as port:
        named = TlsSettings(ca, server_name="stepwarden.example")
        connects(new_link(f"127.0.0.1:{port}", tls=named))
        link = new_link(f"127.0.0.1:{port}", tls=TlsSettings(ca))
        refused(link, caplog, "IP address mismatch, certificate is not valid for '127.0.0.1'")


def test_an_expired_certificate_of_the_server(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(shown(authority.issue("server", expired=True))) as port:
        link = new_link(f"127.0.0.1:{port}", tls=TlsSettings(str(authority.ca)))
        refused(link, caplog, "TLS: its certificate is not accepted: certificate has expired")


def test_a_server_of_another_authority(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    other = Authority(tmp_path, "other")
    with serving(shown(authority.issue("server"))) as port:
        link = new_link(f"127.0.0.1:{port}", tls=TlsSettings(str(other.ca)))
        refused(link, caplog, "unable to get local issuer certificate")


def test_a_server_that_wants_a_certificate_and_gets_none(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(shown(authority.issue("server"), clients=authority.ca)) as port:
        link = new_link(f"127.0.0.1:{port}", tls=TlsSettings(str(authority.ca)))
        refused(link, caplog, "it may want a certificate of ours (STEPWARDEN_CERT")


def test_a_certificate_of_ours_that_the_server_does_not_believe(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cert, key = map(str, Authority(tmp_path, "other").issue("agent", "agent"))
    with serving(shown(authority.issue("server"), clients=authority.ca)) as port:
        link = new_link(f"127.0.0.1:{port}", tls=TlsSettings(str(authority.ca), cert, key))
        refused(link, caplog, f"it may not accept our certificate {cert}")


def test_tls_at_a_port_of_plain_text(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(None) as port:
        link = new_link(f"127.0.0.1:{port}", tls=TlsSettings(str(authority.ca)))
        refused(link, caplog, "the port speaks no TLS")


def test_plain_text_at_a_port_of_tls(
    authority: Authority, caplog: pytest.LogCaptureFixture
) -> None:
    with serving(shown(authority.issue("server"))) as port:
        refused(new_link(f"127.0.0.1:{port}"), caplog, "STEPWARDEN_CA")


@pytest.mark.parametrize("what", ["missing", "garbage", "key"])
def test_files_that_cannot_be_used(
    authority: Authority, tmp_path: Path, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    ca, cert = str(authority.ca), str(authority.issue("agent")[0])
    told, words = TlsSettings(str(tmp_path / "no.crt")), "STEPWARDEN_CA: "
    if what == "garbage":
        Path(ca).write_text("nothing")
        told = TlsSettings(ca)
    elif what == "key":
        other = str(authority.issue("other")[1])
        told, words = TlsSettings(ca, cert, other), "key values mismatch"
    refused(new_link("127.0.0.1:9", tls=told), caplog, words)


def test_the_files_are_read_for_each_connection(authority: Authority, tmp_path: Path) -> None:
    """A certificate that was replaced on disk is the one that is shown next."""
    wrong = Authority(tmp_path, "wrong")
    believed = tmp_path / "believed.crt"
    believed.write_bytes(wrong.ca.read_bytes())
    with serving(shown(authority.issue("server"))) as port:
        link = new_link(f"127.0.0.1:{port}", tls=TlsSettings(str(believed)))
        drive(link, lambda: link._failures >= 1)
        believed.write_bytes(authority.ca.read_bytes())
        connects(link)


def test_tls_without_an_authority_is_refused_and_a_unix_socket_needs_none() -> None:
    with pytest.raises(ValueError, match="STEPWARDEN_CA"):
        new_link("127.0.0.1:1", tls=TlsSettings("", "/c", "/k"))
    assert new_link("unix:/nowhere", tls=TlsSettings("", "/c"))._secure is None


def test_what_the_environment_says() -> None:
    given = {"STEPWARDEN_TARGET": "h:1", "STEPWARDEN_CA": "/ca", "STEPWARDEN_SERVER_NAME": "n"}
    told = read_settings(given)
    assert told is not None
    assert told.tls == TlsSettings("/ca", "", "", "n")
    plain = read_settings({"STEPWARDEN_TARGET": "h:1"})
    assert isinstance(plain, Settings)
    assert plain.tls is None


def test_a_handshake_that_stands_still_is_given_up(
    authority: Authority, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link_module, "CONNECT_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        link = new_link(f"127.0.0.1:{port}", tls=TlsSettings(str(authority.ca)))
        refused(link, caplog, "no greeting within 0.2 s")


def test_what_came_with_the_end_of_the_handshake_is_not_forgotten(authority: Authority) -> None:
    """A server may send its first frame together with its last word of the handshake."""
    import ssl

    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(*authority.issue("server"))
    server.set_alpn_protocols(["h2"])
    arrived, leaving = ssl.MemoryBIO(), ssl.MemoryBIO()
    peer = server.wrap_bio(arrived, leaving, server_side=True)
    client = Tls(make_context(TlsSettings(str(authority.ca))), "localhost")
    agreed = False
    while not (client.agree() and agreed):
        arrived.write(bytes(client.out))
        client.out.clear()
        try:
            peer.do_handshake()
            agreed = True
            peer.write(b"settings")
        except ssl.SSLWantReadError:
            pass
        client.arrive(leaving.read())
    assert client.open() == b"settings"
    assert client.open() is None
    peer.write(b"x" * 100_000)
    data = leaving.read()
    client.arrive(data[:60_000])
    some = client.open()
    assert some
    client.arrive(data[60_000:])
    assert some + (client.open() or b"") == b"x" * 100_000
    client.arrive(b"")
    assert client.open() == b""


def test_ssl_is_imported_only_where_tls_is_used() -> None:
    code = (
        "import logging, sys, threading\n"
        "tried = threading.Event()\n"
        "class Told(logging.Handler):\n"
        "    def emit(self, record): tried.set()\n"
        "logging.getLogger('stepwarden_agent').addHandler(Told())\n"
        "from stepwarden_agent import Agent\n"
        "agent = Agent.from_env(); agent.phase('idle')\n"
        "assert tried.wait(60), 'nothing was said of a supervisor that is not there'\n"
        "print('ssl' in sys.modules)\n"
    )
    for extra, expected in (({}, "False"), ({"STEPWARDEN_CA": "/nowhere"}, "True")):
        given = {
            "STEPWARDEN_TARGET": "127.0.0.1:9",
            "STEPWARDEN_TOKEN": "t",
            "PYTHONPATH": ":".join(sys.path),
            **extra,
        }
        done = subprocess.run(
            [sys.executable, "-c", code], env=given, capture_output=True, text=True, check=True
        )
        assert done.stdout.strip() == expected, done.stderr


def test_the_beat_thread_does_not_spin_while_it_waits_for_the_handshake(
    authority: Authority,
) -> None:
    """A socket is always ready to be written to: that is not waited for."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        link = new_link(f"127.0.0.1:{port}", tls=TlsSettings(str(authority.ca)))
        drive(link, lambda: link._dial is not None and link._dial._tls is not None)
        with listener.accept()[0]:
            link.turn(time.monotonic())
            assert link.interest()[1] == select.POLLIN
            link.drop()
