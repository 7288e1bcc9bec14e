"""sd_notify over a real datagram socket, by path and in the abstract namespace."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.edge.systemd import MAX_STATUS, Notifier, strip


def bound(address: str | bytes) -> socket.socket:
    receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    receiver.bind(address)
    receiver.settimeout(5.0)
    return receiver


@pytest.fixture(params=["path", "abstract"])
def manager(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, socket.socket]]:
    """A service manager's end of the line, and the value of NOTIFY_SOCKET that leads to it."""
    path = str(tmp_path / "notify")
    abstract = request.param == "abstract"
    with bound(b"\0" + path.encode() if abstract else path) as receiver:
        yield ("@" if abstract else "") + path, receiver


@pytest.fixture
def notifier(manager: tuple[str, socket.socket]) -> Iterator[Notifier]:
    made = Notifier.from_env({"NOTIFY_SOCKET": manager[0]})
    yield made
    made.close()


def test_every_message_arrives_as_systemd_reads_it(
    manager: tuple[str, socket.socket], notifier: Notifier
) -> None:
    _, receiver = manager
    sent = [
        notifier.ready(),
        notifier.status("2 workers"),
        notifier.watchdog(),
        notifier.extend_timeout(2.5),
        notifier.stopping(),
    ]
    assert sent == [True] * 5
    assert [receiver.recv(4096) for _ in sent] == [
        b"READY=1",
        b"STATUS=2 workers",
        b"WATCHDOG=1",
        b"EXTEND_TIMEOUT_USEC=2500000",
        b"STOPPING=1",
    ]


def test_a_status_of_many_lines_cannot_smuggle_another_assignment(
    manager: tuple[str, socket.socket], notifier: Notifier
) -> None:
    assert notifier.status("worker a\nWATCHDOG=trigger\r\nb" + "x" * 10_000)
    message = manager[1].recv(65536)
    assert message.startswith(b"STATUS=worker a WATCHDOG=trigger bxxx")
    assert b"\n" not in message
    assert len(message) == len("STATUS=") + MAX_STATUS


def test_a_status_that_is_no_utf8_still_leaves(
    manager: tuple[str, socket.socket], notifier: Notifier
) -> None:
    assert notifier.status("name \udcff")
    assert manager[1].recv(4096) == b"STATUS=name ?"


def test_a_full_socket_drops_and_does_not_wait(
    manager: tuple[str, socket.socket], notifier: Notifier
) -> None:
    sends = (notifier.watchdog() for _ in range(100_000))
    assert not all(sends)
    while manager[1].recv(4096) != b"WATCHDOG=1":
        pass
    assert notifier.watchdog()


@pytest.mark.parametrize("address", ["", "/", "x", "vsock:2:1234", "/nowhere/notify", "@gone-x"])
def test_an_unusable_address_is_a_no_op(address: str) -> None:
    notifier = Notifier.from_env({"NOTIFY_SOCKET": address})
    assert not notifier.ready()
    notifier.close()


def test_o_sysd_3_without_a_service_manager_nothing_happens() -> None:
    notifier = Notifier.from_env({})
    assert notifier.watchdog_interval is None
    calls = (notifier.ready, notifier.watchdog, notifier.stopping)
    assert not any(call() for call in calls)
    assert not notifier.status("x")
    assert not notifier.extend_timeout(1.0)


@pytest.mark.parametrize(
    ("environ", "interval"),
    [
        ({"WATCHDOG_USEC": "10000000"}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": str(os.getpid())}, 5.0),
        ({"WATCHDOG_USEC": "10000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
        ({"WATCHDOG_USEC": "-1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({}, None),
    ],
)
def test_the_interval_is_half_of_what_the_manager_allows(
    environ: dict[str, str], interval: float | None
) -> None:
    assert Notifier.from_env(environ).watchdog_interval == interval


def test_o_sysd_3_workers_do_not_get_the_notify_socket() -> None:
    environ = {
        "NOTIFY_SOCKET": "/run/notify",
        "WATCHDOG_USEC": "1",
        "WATCHDOG_PID": "2",
        "LISTEN_FDS": "1",
        "CREDENTIALS_DIRECTORY": "/run/credentials/x",
        "PATH": "/bin",
        "VLLM_LOGGING_LEVEL": "INFO",
    }
    assert strip(environ) == {"PATH": "/bin", "VLLM_LOGGING_LEVEL": "INFO"}
