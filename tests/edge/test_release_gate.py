from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.edge import port_holders, release_gate
from stepwarden.edge.file_locks import LockLook, look_at_lock
from stepwarden.edge.launcher import LaunchSpec
from stepwarden.edge.port_holders import Port
from stepwarden.edge.release_gate import ReleaseGate, wait_released
from stepwarden.edge.short_command import Ended, ShortSpec, short_runner
from support.process_world import BASE_ENV, PATIENCE, run, text_of, until, world

CLOCK = SystemClock()
ME = f"pid {os.getpid()} ("
LISTENER = """
import socket, sys, time
with socket.create_server(("127.0.0.1", 0)) as server:
    open(sys.argv[1], "w").write(f"{server.getsockname()[1]}\\n")
    time.sleep(600)
"""
HOLDER = """
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR)
getattr(fcntl, sys.argv[2])(file, getattr(fcntl, sys.argv[3]))
open(sys.argv[1] + ".held", "w").write("held\\n")
time.sleep(600)
"""


async def no_command(_: ShortSpec) -> Ended:
    raise AssertionError("no command was asked for")


async def released(gate: ReleaseGate) -> str:
    return await wait_released(gate, no_command, CLOCK)


@contextmanager
def listening(host: str, port: int = 0, reuse_port: bool = False) -> Iterator[int]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        server.bind((host, port))
        server.listen()
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("taken", "wanted", "free"),
    [
        ("127.0.0.1", None, False),
        ("127.0.0.1", "127.0.0.1", False),
        ("127.0.0.1", "0.0.0.0", False),
        ("0.0.0.0", "127.0.0.1", False),
        ("127.0.0.1", "127.0.0.2", True),
        ("::1", None, False),
        ("::1", "::1", False),
        ("::", "::1", False),
    ],
)
def test_a_port_is_tried_where_the_operator_wrote_it(
    taken: str, wanted: str | None, free: bool
) -> None:
    async def story() -> None:
        try:
            with listening(taken) as number:
                port = Port(number, wanted)
                reason = await released(ReleaseGate((port,), limit=0.0))
                assert (reason == "") == free
                if not free:
                    assert reason.startswith(f"port {port} is in use by {ME}")
        except OSError:
            pytest.skip("no IPv6 here")
        assert await released(ReleaseGate((Port(number, wanted),), limit=0.0)) == ""

    run(story())


def test_a_listener_that_shares_its_port_still_has_it() -> None:
    async def story() -> None:
        with listening("127.0.0.1", reuse_port=True) as number:
            assert "in use" in await released(ReleaseGate((Port(number),), limit=0.0))

    run(story())


def test_what_waits_in_time_wait_does_not_count() -> None:
    async def story() -> None:
        with listening("127.0.0.1") as number:
            server = socket.create_connection(("127.0.0.1", number))
        # Whoever closes first is in TIME_WAIT: let the side of the port do so.
        with socket.create_server(("127.0.0.1", 0)) as other:
            number = other.getsockname()[1]
            client = socket.create_connection(("127.0.0.1", number))
            accepted, _ = other.accept()
            accepted.close()
            assert client.recv(1) == b""
            client.close()
        server.close()
        assert await released(ReleaseGate((Port(number),), limit=0.0)) == ""

    run(story())


def test_an_address_that_is_not_ours_is_said() -> None:
    async def story() -> None:
        reason = await released(ReleaseGate((Port(8000, "192.0.2.1"),), limit=0.0))
        expected = "port 192.0.2.1:8000 cannot be taken: Cannot assign requested address"
        assert reason.startswith(expected)

    run(story())


def test_without_the_right_to_bind_the_kernels_table_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(port_holders, "_bind", refuse)
    with listening("127.0.0.1") as number:
        assert port_holders.bind_fault(Port(number)) == 98
    assert port_holders.bind_fault(Port(number)) == 0


def test_the_gate_opens_when_the_holder_goes(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            holder = await here.python(LISTENER, str(tmp_path / "port"))
            number = int(await text_of(tmp_path / "port"))
            told: list[str] = []
            gate = ReleaseGate((Port(number),), limit=900.0)
            waiting = asyncio.ensure_future(wait_released(gate, no_command, CLOCK, told.append))
            await until(lambda: bool(told))
            comm = Path(f"/proc/{holder.pid}/comm").read_text().strip()
            by = f"by pid {holder.pid} ({comm})"
            assert told == [f"waiting for release: port {number} is in use {by}"]
            os.kill(holder.pid, 9)
            assert await waiting == ""
            assert len(told) == 1

    run(story())


@pytest.mark.parametrize(
    ("how", "kind"),
    [("flock", "LOCK_EX"), ("flock", "LOCK_SH"), ("lockf", "LOCK_EX")],
)
def test_a_lock_is_seen_with_its_holder_and_left_alone(tmp_path: Path, how: str, kind: str) -> None:
    async def story() -> None:
        async with world() as here:
            path = tmp_path / "name.lock"
            path.touch()
            gate = ReleaseGate(files=(str(path),), limit=0.0)
            assert await released(gate) == ""
            holder = await here.python(HOLDER, str(path), how, kind)
            await text_of(Path(f"{path}.held"))
            for _ in range(3):
                reason = await released(gate)
                assert reason.startswith(f"file {path} is locked")
            if how == "lockf":
                assert f"by pid {holder.pid} (" in reason
            os.kill(holder.pid, 9)
            assert await released(ReleaseGate(files=(str(path),), limit=PATIENCE)) == ""

    run(story())


def test_a_lock_of_an_open_file_description_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    path.touch()
    with path.open("r+") as file:
        lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, lock)
        assert look_at_lock(str(path)) == LockLook(f"file {path} is locked")
    assert look_at_lock(str(path)) == LockLook()


def test_what_is_no_file_is_never_opened(tmp_path: Path) -> None:
    """A named pipe could block, and a watchdog device starts when somebody opens it."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, Path("/dev/null")):
        look = look_at_lock(str(path))
        assert look.final
        assert look.reason == f"{path} is no regular file: its locks cannot be looked at"
    assert look_at_lock(str(tmp_path / "missing")) == LockLook()
    assert look_at_lock("/dev/null/below") == LockLook()


def test_what_waiting_cannot_mend_ends_it_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        gate = ReleaseGate(files=(str(tmp_path),), limit=900.0)
        assert "no regular file" in await released(gate)

    run(story())


def test_a_file_system_that_hangs_costs_one_thread_and_ends_at_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    go_on = threading.Event()
    looks = 0

    def hang(_: str) -> LockLook:
        nonlocal looks
        looks += 1
        go_on.wait(PATIENCE)
        return LockLook()

    async def story() -> None:
        monkeypatch.setattr(release_gate, "look_at_lock", hang)
        monkeypatch.setattr(release_gate, "PAUSE", 0.05)
        reason = await released(ReleaseGate(files=("/mnt/x",), limit=0.2))
        assert "file /mnt/x cannot be looked at" in reason
        assert looks == 1
        go_on.set()

    run(story())


def test_the_command_is_asked_last_and_until_it_exits_with_zero(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        monkeypatch.setattr(release_gate, "PAUSE", 0.05)
        async with world() as here:
            commands = short_runner(here.launcher, here.reaper, CLOCK)
            script = "test -e $0 || { echo 12034 MiB in use; exit 1; }"
            launch = LaunchSpec(["/bin/sh", "-c", script, str(tmp_path / "free")], BASE_ENV)
            gate = ReleaseGate(command=ShortSpec(launch, PATIENCE), limit=900.0)
            told: list[str] = []
            waiting = asyncio.ensure_future(wait_released(gate, commands, CLOCK, told.append))
            await until(lambda: bool(told))
            assert told[0].startswith("waiting for release: the release command ended with exit")
            assert told[0].endswith("it said last: 12034 MiB in use")
            (tmp_path / "free").touch()
            assert await waiting == ""
            (tmp_path / "free").unlink()
            short = ReleaseGate(command=ShortSpec(launch, PATIENCE), limit=0.0)
            reason = await wait_released(short, commands, CLOCK)
            assert reason.endswith("12034 MiB in use; waited 0 s for it")
            assert "\n" not in reason
            with listening("127.0.0.1") as number:
                held = ReleaseGate((Port(number),), command=short.command, limit=0.0)
                assert "in use" in await released(held)  # the command is not even tried

    run(story())
