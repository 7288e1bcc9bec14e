from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from stepwarden.edge.listen import (
    LISTEN_OPTIONS,
    MAX_SOCKET_PATH_BYTES,
    TcpTarget,
    UnixTarget,
    ensure_directory,
    listen,
    parse_target,
)
from stepwarden.errors import AlreadyRunningError, RefusedError
from support.modes import ModeWatch, mode_of, umask


@contextmanager
def made_server() -> Iterator[grpc.Server]:
    with ThreadPoolExecutor(1) as pool:
        server = grpc.server(pool, options=LISTEN_OPTIONS)
        try:
            yield server
        finally:
            server.stop(0).wait(5)


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
@pytest.mark.parametrize("mode", [0o600, 0o660])
def test_o_grpc_6_socket_mode_is_exact_from_the_first_instant(
    tmp_path: Path, mask: int, mode: int
) -> None:
    path = tmp_path / "agent.sock"
    for _ in range(10):
        with umask(mask), ModeWatch(path) as watch, made_server() as server:
            listening = listen(server, UnixTarget(path, mode, os.getgid()))
            assert mode_of(path) == mode
            listening.close()
        assert watch.modes(path) <= {mode}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_o_grpc_6_directory_mode_is_exact(tmp_path: Path, mask: int) -> None:
    path = tmp_path / "run"
    with umask(mask), ModeWatch(path) as watch:
        ensure_directory(path, 0o750)
    assert mode_of(path) == 0o750
    assert watch.modes(path) <= {0o700, 0o750}


def test_missing_parents_are_made(tmp_path: Path) -> None:
    ensure_directory(tmp_path / "a" / "b", 0o700)
    assert mode_of(tmp_path / "a" / "b") == 0o700


def test_a_directory_where_others_may_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.mkdir()
    path.chmod(0o777)
    with pytest.raises(RefusedError, match="mode 0777"):
        ensure_directory(path, 0o750)
    path.chmod(0o1777)
    ensure_directory(path, 0o750)


def test_the_linked_socket_can_be_connected_to(tmp_path: Path) -> None:
    with made_server() as server:
        listening = listen(server, UnixTarget(tmp_path / "a.sock"))
        server.start()
        with grpc.insecure_channel(listening.address) as channel:
            grpc.channel_ready_future(channel).result(timeout=10)
        listening.close()
    assert not (tmp_path / "a.sock").exists()


def test_o_grpc_6_leftover_socket_of_a_dead_owner_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
        dead.listen()
    with made_server() as server, socket.socket(socket.AF_UNIX) as client:
        listening = listen(server, UnixTarget(path))
        assert mode_of(path) == 0o600
        client.connect(str(path))  # ConnectionRefusedError, were it the old one
        listening.close()


def test_a_living_owner_is_not_replaced(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as other, made_server() as server:
        other.bind(str(path))
        other.listen()
        with pytest.raises(AlreadyRunningError, match=r"a\.sock"):
            listen(server, UnixTarget(path))
        assert path.exists()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_o_grpc_6_what_is_no_socket_is_refused_and_never_deleted(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.sock"
    if kind == "file":
        path.write_text("precious")
    elif kind == "directory":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "elsewhere")
    before = path.lstat().st_ino
    with made_server() as server, pytest.raises(RefusedError, match="no socket"):
        listen(server, UnixTarget(path))
    assert path.lstat().st_ino == before


@pytest.mark.parametrize("length", [107, 108, 200])
def test_o_grpc_6_path_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / ("x" * (length - len(str(tmp_path)) - 1))
    assert len(str(path)) == length
    with made_server() as server:
        if length > MAX_SOCKET_PATH_BYTES:
            with pytest.raises(RefusedError, match=f"{length} bytes.*at most 107"):
                listen(server, UnixTarget(path))
            return
        listening = listen(server, UnixTarget(path))
        server.start()
        with grpc.insecure_channel(listening.address) as channel:
            grpc.channel_ready_future(channel).result(timeout=10)
        listening.close()


def test_o_grpc_6_missing_directory_is_named(tmp_path: Path) -> None:
    with made_server() as server, pytest.raises(RefusedError, match=r"directory .*gone is missing"):
        listen(server, UnixTarget(tmp_path / "gone" / "a.sock"))


def test_closing_leaves_the_socket_of_a_successor(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with made_server() as server:
        listening = listen(server, UnixTarget(path))
        path.unlink()
        path.write_text("another's")
        listening.close()
    assert path.exists()


def test_a_taken_port_is_an_error_that_names_the_address() -> None:
    with made_server() as first, made_server() as second:
        listening = listen(first, TcpTarget("127.0.0.1", 0))
        first.start()
        with pytest.raises(AlreadyRunningError, match=f"127.0.0.1:{listening.port}"):
            listen(second, TcpTarget("127.0.0.1", listening.port))


def test_an_error_names_the_key_that_would_mend_it(tmp_path: Path) -> None:
    key = "supervisor.health.listen"
    with made_server() as server:
        for target in (
            parse_target("192.0.2.1:5000", key=key),
            UnixTarget(tmp_path / "none" / "a.sock", key=key),
        ):
            with pytest.raises(RefusedError, match=r"\(supervisor\.health\.listen names it\)$"):
                listen(server, target)


def test_an_address_that_is_not_ours_is_refused() -> None:
    with made_server() as server, pytest.raises(RefusedError, match=r"192\.0\.2\.1:5000"):
        listen(server, TcpTarget("192.0.2.1", 5000))


def test_targets_as_operators_write_them() -> None:
    assert parse_target("127.0.0.1:50051") == TcpTarget("127.0.0.1", 50051)
    assert parse_target("[::1]:1") == TcpTarget("::1", 1)
    assert str(TcpTarget("::1", 1)) == "[::1]:1"
    assert parse_target("unix:/run/x.sock", 0o660) == UnixTarget(Path("/run/x.sock"), 0o660)
    assert parse_target("unix:///run/x.sock") == UnixTarget(Path("/run/x.sock"))


@pytest.mark.parametrize("text", ["", "50051", ":50051", "host:", "host:70000", "host:-1", "h:1²"])
def test_targets_that_make_no_sense(text: str) -> None:
    with pytest.raises(RefusedError, match="HOST:PORT"):
        parse_target(text)
