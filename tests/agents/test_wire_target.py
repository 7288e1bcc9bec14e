"""Where an agent may be told to report, and how it gets there without waiting."""

from __future__ import annotations

import select
import socket
import time
from pathlib import Path

import pytest
from stepwarden_agent.wire.dial import Dial
from stepwarden_agent.wire.target import parse_target


@pytest.mark.parametrize(
    ("text", "family", "address", "authority"),
    [
        ("unix:/run/a.sock", socket.AF_UNIX, b"/run/a.sock", "localhost"),
        ("unix:///run/a.sock", socket.AF_UNIX, b"/run/a.sock", "localhost"),
        ("unix:a.sock", socket.AF_UNIX, b"a.sock", "localhost"),
        ("unix-abstract:a", socket.AF_UNIX, b"\0a", "localhost"),
        ("127.0.0.1:50", socket.AF_INET, ("127.0.0.1", 50), "127.0.0.1:50"),
        ("ipv4:127.0.0.1:50", socket.AF_INET, ("127.0.0.1", 50), "127.0.0.1:50"),
        ("dns:///127.0.0.1:50", socket.AF_INET, ("127.0.0.1", 50), "127.0.0.1:50"),
        ("[::1]:50", socket.AF_INET6, ("::1", 50, 0, 0), "[::1]:50"),
        ("ipv6:[::1]:50", socket.AF_INET6, ("::1", 50, 0, 0), "[::1]:50"),
    ],
)
def test_addresses_are_read(text: str, family: int, address: object, authority: str) -> None:
    target = parse_target(text)
    assert target.addresses == ((family, address),)
    assert target.authority == authority


def test_a_name_is_left_to_be_looked_up() -> None:
    target = parse_target("localhost:50")
    assert (target.addresses, target.host, target.port) == ((), "localhost", 50)
    assert target.authority == "localhost:50"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "unix:",
        "unix:" + "x" * 108,
        "unix:/a\0b",
        "127.0.0.1",
        "127.0.0.1:0",
        "127.0.0.1:65536",
        "127.0.0.1:x",
        ":50",
        "http://127.0.0.1:50",
        "a b:50",
        "h\u00f6st:50",
    ],
)
def test_anything_else_is_refused_with_what_is_accepted(text: str) -> None:
    with pytest.raises(ValueError, match="accepted: unix:/path"):
        parse_target(text)


def advanced(dial: Dial, seconds: float = 20.0) -> bool:
    end = time.monotonic() + seconds
    while not dial.advance():
        assert time.monotonic() < end
        poll = select.poll()
        if dial.socket is not None:
            poll.register(dial.socket, select.POLLOUT)
        poll.poll(20)
    return True


@pytest.mark.parametrize("name", ["127.0.0.1", "localhost"])
def test_each_address_of_a_name_is_tried(name: str) -> None:
    """`localhost` may stand for ::1 first, where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dial = Dial(parse_target(f"{name}:{listener.getsockname()[1]}"), lambda: None)
        assert advanced(dial)
        assert dial.socket is not None
        assert dial.socket.getpeername() == listener.getsockname()
        dial.close()


def test_nobody_there_is_an_error_at_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    for target in (f"unix:{tmp_path}/none", f"127.0.0.1:{port}", "no-such-host.invalid:1"):
        dial = Dial(parse_target(target), lambda: None)
        with pytest.raises(OSError, match=r"."):
            advanced(dial)
        assert dial.socket is None


def test_a_full_backlog_is_an_error_and_no_wait(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"{tmp_path}/s")
        listener.listen(0)
        target = parse_target(f"unix:{tmp_path}/s")
        dials = [Dial(target, lambda: None) for _ in range(10)]
        with pytest.raises(BlockingIOError):
            list(map(Dial.advance, dials))
        for dial in dials:
            dial.close()
