"""The demo's small parts: its watchdog, its control channel, its event feed, its file."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.config import load
from stepwarden.demo import control
from stepwarden.demo.feed import Feed, Happening, StoryFailedError, of_kind, turns
from stepwarden.demo.stage import placed_config, shipped_config
from stepwarden.demo.watchdog import EngineWatchdog
from stepwarden.errors import ActionFailedError

ROOT = Path(__file__).resolve().parents[2]


def test_watchdog_fires_once_for_a_late_step() -> None:
    fired = threading.Event()
    watchdog = EngineWatchdog(0.02, lambda _: fired.set(), SystemClock())
    watchdog.arm()
    assert fired.wait(30)
    watchdog.disarm()
    watchdog.close()
    assert watchdog.fired == 1


def test_watchdog_lets_a_step_in_time_be() -> None:
    watchdog = EngineWatchdog(3600, lambda _: pytest.fail("fired"), SystemClock())
    for _ in range(100):
        watchdog.arm()
        watchdog.disarm()
    watchdog.close()
    assert watchdog.fired == 0


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Path]:
    path = tmp_path / "c.sock"
    listener = control.listen(path)

    def answer(request: control.Message) -> control.Message:
        if request.get("do") == "end":
            raise KeyboardInterrupt
        if request.get("do") != "echo":
            raise ValueError("do must be echo")
        return request

    def serve() -> None:
        with pytest.raises(KeyboardInterrupt):
            control.serve(listener, answer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield path
    with pytest.raises(ConnectionError):
        control.ask(path, {"do": "end"}, 10)
    thread.join(10)
    listener.close()


def test_control_answers_and_refuses(server: Path) -> None:
    assert control.ask(server, {"do": "echo", "batch": 4}, 10) == {"do": "echo", "batch": 4}
    with pytest.raises(ActionFailedError, match="do must be echo"):
        control.ask(server, {"do": "sing"}, 10)
    assert server.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("line", [b"{\n", b"[1]\n", b"\xff\n", b""])
def test_control_survives_nonsense(server: Path, line: bytes) -> None:
    with socket.socket(socket.AF_UNIX) as peer:
        peer.settimeout(10)
        peer.connect(str(server))
        peer.sendall(line)
        peer.shutdown(socket.SHUT_WR)
        assert b"error" in peer.recv(4096)
    assert control.ask(server, {"do": "echo"}, 10) == {"do": "echo"}


def test_control_replaces_the_socket_of_a_dead_predecessor(tmp_path: Path) -> None:
    path = tmp_path / "c.sock"
    control.listen(path).close()
    control.listen(path).close()


def feed_of(*lines: str) -> tuple[Feed, list[Happening]]:
    shown: list[Happening] = []
    code = f"print({chr(10).join(lines)!r})"
    command = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    feed = Feed(command, shown.append, SystemClock())
    command.wait(30)
    return feed, shown


def test_feed_finds_the_event_and_shows_all_on_the_way() -> None:
    feed, shown = feed_of(
        "some noise",
        '{"kind": "attached"}',
        '{"kind": "transition", "to_state": "HEALTHY"}',
        '{"kind": "retry"}',
    )
    assert feed.wait(turns("HEALTHY"), 30, "HEALTHY")["to_state"] == "HEALTHY"
    assert [event["kind"] for event in shown] == ["attached", "transition"]
    feed.wait(of_kind("retry"), 30, "retry")
    for _ in range(2):
        with pytest.raises(StoryFailedError, match="not running"):
            feed.wait(turns("DEAD"), 30, "DEAD")


def test_both_copies_of_the_demo_file_are_the_same() -> None:
    shown = ROOT / "config" / "demo.yaml"
    assert shown.read_text(encoding="utf-8") == shipped_config()


def test_the_placed_file_is_valid_and_stays_in_its_directory(tmp_path: Path) -> None:
    path = tmp_path / "demo.yaml"
    runtime, state = tmp_path / "run", tmp_path / "state"
    path.write_text(placed_config(shipped_config(), runtime, state, sys.executable), "utf-8")
    config = load(path)
    assert config.warnings == ()
    assert config.supervisor.runtime_dir == runtime
    assert config.supervisor.state_dir == state
    assert config.supervisor.health.addresses == ()
    argv = config.workers["tiny"].argv
    assert argv[0] == sys.executable
    assert argv[argv.index("--control") + 1] == str(runtime / "control.sock")


def test_a_file_without_the_known_paths_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoryFailedError, match="stepwarden-demo"):
        placed_config("supervisor: {}", tmp_path, tmp_path, sys.executable)
