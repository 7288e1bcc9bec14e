"""TLS of a listener: who gets in, certificates that change, and files that cannot be used."""

from __future__ import annotations

import os
import shutil
import socket
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from stepwarden.edge.certificates import Certificates
from stepwarden.edge.health_service import HealthServer, HealthSnapshot
from stepwarden.edge.listen import LISTEN_OPTIONS, Listening, TcpTarget, listen
from stepwarden.errors import ExitCode, RefusedError
from stepwarden.exposure import TlsFiles
from support.certificates import Authority
from support.clocks import FakeClock
from support.crew import check, health_stub

KEY = "supervisor.health.listen"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


def files(authority: Authority, mutual: bool = False) -> TlsFiles:
    cert, key = authority.issue("server")
    return TlsFiles(cert, key, authority.ca if mutual else None)


@contextmanager
def serving(tls: TlsFiles) -> Iterator[Listening]:
    """A health server with these certificates."""
    server = HealthServer([TcpTarget("127.0.0.1", 0, KEY, tls=tls)], FakeClock())
    server.publish(HealthSnapshot(1000.0))
    server.start()
    try:
        yield server.listening[0]
    finally:
        server.shutdown()


def peer_serial(listening: Listening, context: ssl.SSLContext) -> bytes:
    """The certificate that the server shows to a new connection."""
    with (
        socket.create_connection(("127.0.0.1", listening.port), timeout=20) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as shaken,
    ):
        return shaken.getpeercert(binary_form=True) or b""


def asked(listening: Listening, ca: Path | None, pair: tuple[Path, Path] | None = None) -> str:
    """What a Check of "" gives to a client that believes `ca` and shows `pair`."""
    if ca is None:
        with health_stub(listening.address) as ask:
            return check(ask, "")
    cert, key = (path.read_bytes() for path in pair) if pair else (None, None)
    credentials = grpc.ssl_channel_credentials(ca.read_bytes(), key, cert)
    with health_stub(listening.address, credentials) as ask:
        return check(ask, "")


def test_only_who_believes_our_certificate_gets_an_answer(authority: Authority) -> None:
    (other := authority.ca.parent / "other").mkdir()
    stranger = Authority(other)
    with serving(files(authority)) as listening:
        assert asked(listening, authority.ca) == "SERVING"
        assert asked(listening, stranger.ca) == "UNAVAILABLE"
        assert asked(listening, None) == "UNAVAILABLE"


def test_with_an_authority_for_clients_they_must_show_a_certificate(authority: Authority) -> None:
    (other := authority.ca.parent / "other").mkdir()
    stranger = Authority(other)
    with serving(files(authority, mutual=True)) as listening:
        assert asked(listening, authority.ca, authority.issue("client", "client")) == "SERVING"
        assert asked(listening, authority.ca) == "UNAVAILABLE"
        assert asked(listening, authority.ca, stranger.issue("client", "client")) == "UNAVAILABLE"
        expired = authority.issue("late", "client", expired=True)
        assert asked(listening, authority.ca, expired) == "UNAVAILABLE"


def test_changed_files_hold_for_new_connections(authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca))
    with serving(files(authority)) as listening:
        certificates = listening.certificates
        assert certificates is not None
        before = peer_serial(listening, context)
        assert not certificates.refresh()
        with health_stub(
            listening.address, grpc.ssl_channel_credentials(authority.ca.read_bytes())
        ) as open_before:
            assert check(open_before, "") == "SERVING"
            authority.issue("server")
            assert peer_serial(listening, context) == before, "files are read by refresh alone"
            assert certificates.refresh()
            assert peer_serial(listening, context) != before
            assert check(open_before, "") == "SERVING"


def test_changed_files_that_cannot_be_used_change_nothing(authority: Authority) -> None:
    context = ssl.create_default_context(cafile=str(authority.ca))
    with serving(tls := files(authority)) as listening:
        certificates = listening.certificates
        assert certificates is not None
        before = peer_serial(listening, context)
        half = authority.issue("half")
        shutil.copy(half[0], tls.cert)  # the key comes later
        with pytest.raises(RefusedError, match="the key belongs to another certificate"):
            certificates.refresh()
        assert peer_serial(listening, context) == before
        shutil.copy(half[1], tls.key)
        assert certificates.refresh()
        assert peer_serial(listening, context) != before


def test_a_context_for_other_servers_follows_the_files_too(authority: Authority) -> None:
    certificates = Certificates(files(authority, mutual=True), "supervisor.metrics")
    context = certificates.context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    authority.issue("server")
    assert certificates.refresh()
    assert certificates.context() is not context, "a changed one would believe both authorities"
    assert certificates.context() is certificates.context()
    assert certificates.context().verify_mode is ssl.CERT_REQUIRED


def spoilt(authority: Authority, how: str) -> tuple[TlsFiles, str]:
    """Files that cannot be used, and what has to be said of them."""
    tls = files(authority, mutual=True)
    authorities = authority.ca
    if how == "missing":
        tls.key.unlink()
    elif how == "mismatch":
        shutil.copy(authority.issue("other")[1], tls.key)
    elif how == "swapped":
        tls = TlsFiles(tls.key, tls.cert)
    elif how == "damaged":
        tls.cert.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    elif how == "authority":
        authorities.write_text("nothing")
    elif how == "locked":
        tls.key.write_bytes(locked(tls.key.read_bytes()))
    else:
        tls.cert.unlink()
        tls.cert.mkdir()
    said = {
        "missing": f"{tls.key} cannot be read: No such file or directory",
        "mismatch": f"{tls.key} cannot be used: the key belongs to another certificate",
        "swapped": f"{tls.cert} holds no certificate in PEM",
        "damaged": f"{tls.cert} cannot be used",
        "authority": f"{authorities} holds no certificates of authorities in PEM",
        "locked": f"{tls.key} cannot be used: the key has a passphrase",
        "directory": f"{tls.cert} cannot be read: is not a regular file",
    }
    return tls, said[how]


def locked(pem: bytes) -> bytes:
    from cryptography.hazmat.primitives import serialization as forms

    key = forms.load_pem_private_key(pem, None)
    return key.private_bytes(
        forms.Encoding.PEM, forms.PrivateFormat.PKCS8, forms.BestAvailableEncryption(b"secret")
    )


@pytest.mark.parametrize(
    "how", ["missing", "mismatch", "swapped", "damaged", "authority", "locked", "directory"]
)
def test_files_that_cannot_be_used_are_named_with_their_key(authority: Authority, how: str) -> None:
    tls, words = spoilt(authority, how)
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, options=LISTEN_OPTIONS)
        with pytest.raises(RefusedError) as caught:
            listen(server, TcpTarget("127.0.0.1", 0, KEY, tls=tls))
        server.stop(0).wait(5)
    assert words in str(caught.value)
    assert "supervisor.health.tls." in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code is ExitCode.REFUSED


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_address_for_all_is_not_bound_in_plain_text(host: str) -> None:
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, options=LISTEN_OPTIONS)
        with pytest.raises(RefusedError, match=r"insecure: true .supervisor.health.listen names"):
            listen(server, TcpTarget(host, 0, KEY))
        meant = listen(server, TcpTarget("0.0.0.0", 0, KEY, insecure=True))
        assert meant.port > 0
        server.stop(0).wait(5)


def test_a_name_that_means_the_loopback_today_is_judged_by_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And one that should mean the loopback is judged by what it means."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.1.1.1", 0))]
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, options=LISTEN_OPTIONS)
        with pytest.raises(RefusedError, match="other hosts can reach node7"):
            listen(server, TcpTarget("node7", 0))
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        with pytest.raises(RefusedError, match="other hosts can reach localhost"):
            listen(server, TcpTarget("localhost", 0))
        server.stop(0).wait(5)


def test_an_error_names_the_one_key_that_would_mend_it(authority: Authority) -> None:
    tls = files(authority)
    tls.key.unlink()
    target = TcpTarget("127.0.0.1", 0, key="supervisor.health.listen", tls=tls)
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, options=LISTEN_OPTIONS)
        with pytest.raises(RefusedError) as caught:
            listen(server, target)
        server.stop(0).wait(5)
    assert str(caught.value).count("names it") == 1
    assert "(supervisor.health.tls.key names it)" in str(caught.value)


def test_a_pipe_in_place_of_a_file_is_refused_and_not_waited_for(authority: Authority) -> None:
    cert, key = authority.issue("server")
    key.unlink()
    os.mkfifo(key)
    with pytest.raises(RefusedError, match=r"not a regular file .*tls\.key names it"):
        Certificates(TlsFiles(cert, key), "supervisor.health")
