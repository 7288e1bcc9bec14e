"""Each check both ways: with what this host really has where that can be made, else with facts."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from stepwarden.cli.doctor_subject import find_daemon
from stepwarden.config.engines import VLLM_READY_TIMEOUT, VLLM_STEP_TIMEOUT
from stepwarden.doctor import (
    accounts,
    daemon_state,
    engine_times,
    groups,
    limits,
    machine,
    network,
    places,
    process,
    seeing,
    service,
    sockets,
    times,
)
from stepwarden.doctor.finding import Finding, Level
from stepwarden.doctor.subject import Daemon
from stepwarden.install.lay import State, drift
from stepwarden.install.ways import Place, Way, pieces
from support.doctor_subject import VLLM, subject, worst


def levels(findings: Iterable[Finding]) -> list[str]:
    return [str(finding.level) for finding in findings]


def test_pages_on_tmpfs_or_not() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as memory:
        found = places.gather(subject(Path(memory)))
        assert found.runtime.kind in places.MEMORY
        assert levels(places.judge_pages(found)) == ["ok"]
        assert "is in memory" in worst(places.judge_state(found)).found
        full = replace(found, runtime=replace(found.runtime, free=1024))
        assert worst(places.judge_pages(full)).level is Level.PROBLEM
    disk = replace(
        found, runtime=replace(found.runtime, kind="ext4"), shared=replace(found.shared, kind="")
    )
    assert "in memory" in worst(places.judge_pages(disk)).found


def test_directories_that_others_may_write_to(tmp_path: Path) -> None:
    asked = subject(tmp_path)
    found = places.gather(asked)
    assert "not there yet" in worst(places.judge_runtime(found)).found
    for name, mode in (("run", 0o755), ("state", 0o700)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
    found = places.gather(asked)
    assert levels(places.judge_runtime(found)) == ["ok"]
    assert "PROBLEM" not in levels(places.judge_state(found))
    (tmp_path / "run").chmod(0o777)
    (tmp_path / "state").chmod(0o755)
    found = places.gather(asked)
    assert "replace our sockets" in worst(places.judge_runtime(found)).found
    assert any("read history" in finding.found for finding in places.judge_state(found))


@pytest.mark.parametrize(
    ("change", "level"),
    [
        ({"read_only": True}, Level.PROBLEM),
        ({"free": 1 << 20}, Level.PROBLEM),
        ({"free": 100 << 20}, Level.WARNING),
        ({"kind": "nfs4"}, Level.WARNING),
        ({"is_directory": False}, Level.PROBLEM),
        ({"owner": 4242}, Level.PROBLEM),
        ({}, Level.OK),
    ],
)
def test_the_state_directory(change: dict[str, int], level: Level) -> None:
    good = places.Place(Path("/s"), "ext4", 1 << 40, False, os.geteuid(), 0o700)
    place = replace(good, **change)  # type: ignore[arg-type]
    facts = places.Places(good, place, good, 1, os.geteuid())
    assert worst(places.judge_state(facts)).level is level


def test_users_and_groups(tmp_path: Path) -> None:
    asked = subject(tmp_path, "command: [a], user: no-such-user")
    found = worst(accounts.judge_accounts(accounts.gather_accounts(asked)))
    assert (found.level, found.worker) == (Level.PROBLEM, "w0")
    good = subject(tmp_path, "command: [a], user: root", supervisor=", socket_group: root")
    assert levels(accounts.judge_accounts(accounts.gather_accounts(good))) == ["ok"]
    bad = subject(tmp_path, supervisor=", socket_group: nogrp-here")
    assert worst(accounts.judge_accounts(accounts.gather_accounts(bad))).level is Level.PROBLEM


def test_warnings_of_the_file(tmp_path: Path) -> None:
    asked = subject(tmp_path, "backend: cpu, command: [a], stop: {grace: 5m}")
    assert "stop_limit" in worst(accounts.judge_file(accounts.gather_file(asked))).found
    good = subject(tmp_path, "backend: cpu, command: [a]")
    assert levels(accounts.judge_file(accounts.gather_file(good))) == ["ok"]
    assert worst(accounts.judge_file(accounts.File(None))).level is Level.WARNING


def test_proxies_are_named_and_never_shown(tmp_path: Path) -> None:
    secret = {"HTTPS_PROXY": "http://me:hush@proxy:1"}
    facts = network.gather_proxies(subject(tmp_path, environment=secret))
    found = worst(network.judge_proxies(facts))
    assert (found.level, "HTTPS_PROXY" in found.found) == (Level.WARNING, True)
    assert "hush" not in repr(facts) + repr(found)
    spared = {**secret, "no_proxy": "localhost, 127.0.0.1"}
    facts = network.gather_proxies(subject(tmp_path, environment=spared))
    assert levels(network.judge_proxies(facts)) == ["ok"]
    assert levels(network.judge_proxies(network.gather_proxies(subject(tmp_path)))) == ["ok"]


def test_a_port_that_somebody_else_has(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        asked = subject(tmp_path, supervisor=f', health: {{listen: ["{address}"]}}')
        found = worst(network.judge_ports(network.gather_ports(asked)))
        assert (found.level, address in found.found) == (Level.PROBLEM, True)
        assert f"pid {os.getpid()}" in found.found
        own = replace(asked, daemon=Daemon(silence="not for you", refused=True))
        assert levels(network.judge_ports(network.gather_ports(own))) == ["ok"]
    assert levels(network.judge_ports(network.gather_ports(asked))) == ["ok"]


def test_two_workers_with_one_port(tmp_path: Path) -> None:
    line = 'command: [a, --port, "8000"]'
    asked = subject(
        tmp_path, line, 'command: [b, "--port=8000"]', supervisor=", health: {listen: []}"
    )
    assert "w0 and w1" in worst(network.judge_ports(network.gather_ports(asked))).found


def test_sockets_as_they_lie_there(tmp_path: Path) -> None:
    asked = subject(tmp_path)
    assert levels(sockets.judge(sockets.gather(asked))) == ["ok", "ok"]
    (tmp_path / "run").mkdir()
    with socket.socket(socket.AF_UNIX) as admin, socket.socket(socket.AF_UNIX) as agent:
        for one, path in (
            (admin, asked.settings.admin_socket),
            (agent, asked.settings.agent_socket),
        ):
            one.bind(str(path))
            path.chmod(0o600)
        ours = replace(asked, daemon=Daemon(os.getpid()))
        assert levels(sockets.judge(sockets.gather(ours))) == ["ok", "ok"]
        asked.settings.admin_socket.chmod(0o666)
        found = worst(sockets.judge(sockets.gather(ours)))
        assert (found.level, "mode 0666" in found.found) == (Level.PROBLEM, True)
        asked.settings.agent_socket.unlink()
        assert any("is gone" in f.found for f in sockets.judge(sockets.gather(ours)))
        asked.settings.agent_socket.write_text("")
        assert any("no socket" in f.found for f in sockets.judge(sockets.gather(ours)))


@pytest.mark.parametrize(
    ("facts", "level"),
    [
        (seeing.Seeing("d", None, frozenset(), (), None), Level.OK),
        (seeing.Seeing("d", None, frozenset(), ("w",), None), Level.PROBLEM),
        (seeing.Seeing("d", None, frozenset(process.CAPABILITIES), ("w",), None), Level.OK),
        (seeing.Seeing("d", None, None, ("w",), None), Level.UNKNOWN),
    ],
)
def test_processes_of_other_users(facts: seeing.Seeing, level: Level) -> None:
    assert worst(seeing.judge_reach(facts)).level is level


@pytest.mark.parametrize(
    ("scope", "capable", "level"),
    [
        *((None, False, "ok"), (0, False, "ok"), (1, False, "warning"), (1, True, "ok")),
        *((2, False, "warning"), (3, True, "warning")),
    ],
)
def test_stacks_under_yama(scope: int | None, capable: bool, level: str) -> None:
    powers = frozenset({"CAP_SYS_PTRACE"} if capable else ())
    facts = seeing.Seeing("d", scope, powers, (), "/usr/bin/py-spy")
    assert levels(seeing.judge_stacks(facts)) == [level, "ok"]


def test_what_is_read_of_a_real_process(tmp_path: Path) -> None:
    own = str(os.getpid())
    assert process.uid_of(own) == os.geteuid()
    assert process.capabilities_of(own) is not None
    assert set(process.limits_of(own)) == {"nofile", "nproc", "memlock"}
    assert "PATH" in (process.environment_of(own) or {})
    assert (process.uid_of("0"), process.limits_of("0")) == (None, {})
    assert process.environment_of("0") is None
    asked = subject(tmp_path)
    seeing.gather(asked)
    assert list(limits.judge(limits.gather(asked)))
    assert list(groups.judge(groups.gather(asked)))
    assert list(times.judge(times.gather(asked)))
    assert list(machine.judge_kernel(machine.gather_kernel(asked)))


def test_control_groups() -> None:
    own = Path("/sys/fs/cgroup/a")
    good = groups.Groups("d", True, own, frozenset({"cgroup2"}), True, True, True)
    assert levels(groups.judge(good)) == ["ok", "ok"]
    assert levels(groups.judge(replace(good, ours=False))) == ["warning", "ok"]
    assert levels(groups.judge(replace(good, ours=False, runs=False))) == ["unknown", "ok"]
    assert levels(groups.judge(replace(good, can_kill=False))) == ["ok", "warning"]
    old = replace(good, own=None, mounted=frozenset({"cgroup"}))
    assert "version 1 alone" in worst(groups.judge(old)).found


def test_limits() -> None:
    values: dict[str, tuple[int | None, int | None]] = {
        "nofile": (1024, 65536),
        "nproc": (None, None),
        "memlock": (8 << 20, 8 << 20),
    }
    good = limits.Limits("d", values, 10, False, False, ("w",))
    assert levels(limits.judge(good)) == ["ok", "ok", "ok"]
    few = replace(good, values={**values, "nofile": (256, 256), "nproc": (100, 100)}, rdma=True)
    assert levels(limits.judge(few)) == ["problem", "warning", "warning"]
    assert levels(limits.judge(replace(good, values={}))) == ["unknown"]


def test_clocks() -> None:
    assert levels(times.judge(times.Times(True, "tsc", 0.0))) == ["ok", "ok"]
    assert levels(times.judge(times.Times(False, "hpet", 9.0))) == ["warning", "warning", "ok"]
    assert levels(times.judge(times.Times(None, None, 0.0))) == ["unknown"]


def test_kernel_and_load(tmp_path: Path) -> None:
    assert levels(machine.judge_kernel(machine.Kernel(True, "6.14.0-x"))) == ["ok", "ok"]
    assert levels(machine.judge_kernel(machine.Kernel(False, "5.2"))) == ["warning", "ok"]
    assert levels(machine.judge_load(machine.Load(5.0, 8, {"a": 4, "b": 4}))) == ["ok", "ok"]
    both = machine.judge_load(machine.Load(80.0, 8, {"a": 4}, ("b",)))
    assert levels(both) == ["warning", "warning"]
    assert levels(machine.judge_load(machine.Load(None, 8))) == ["unknown", "ok"]
    asked = subject(
        tmp_path,
        "command: [a], backend: cpu, env: {VLLM_CPU_OMP_THREADS_BIND: 0-3|8}",
        'command: [a], backend: cpu, env: {OMP_NUM_THREADS: "2"}',
        "command: [a], backend: cpu",
    )
    facts = machine.gather_load(asked)
    assert (facts.threads, facts.unsaid) == ({"w0": 5, "w1": 2}, ("w2",))


@pytest.mark.parametrize(
    ("env", "level", "source"),
    [
        ({}, Level.OK, "stepwarden, above its own hard cap"),
        ({VLLM_STEP_TIMEOUT: "330"}, Level.PROBLEM, "daemon was started with"),
        ({VLLM_STEP_TIMEOUT: "400"}, Level.WARNING, "daemon was started with"),
        ({VLLM_STEP_TIMEOUT: "soon"}, Level.PROBLEM, "daemon was started with"),
        ({VLLM_READY_TIMEOUT: "5"}, Level.WARNING, "hard cap"),
    ],
)
def test_time_outs_of_vllm(tmp_path: Path, env: dict[str, str], level: Level, source: str) -> None:
    found = list(engine_times.judge(engine_times.gather(subject(tmp_path, VLLM, environment=env))))
    assert worst(found).level is level
    assert source in found[0].found


def test_time_outs_that_vllm_keeps_to_itself(tmp_path: Path) -> None:
    asked = subject(tmp_path, f"{VLLM}, agent: optional", "command: [a]")
    (found,) = engine_times.judge(engine_times.gather(asked))
    assert (found.level, "vLLM's own default" in found.found) == (Level.PROBLEM, True)
    assert levels(engine_times.judge([])) == ["ok"]


def test_what_a_daemon_says_of_itself() -> None:
    from stepwarden import __version__

    good = daemon_state.State(__version__, "", 7, 0, 0)
    assert set(levels(daemon_state.judge(good))) == {"ok"}
    for change, level in (
        ({"version": "0.0.9"}, Level.WARNING),
        ({"our_uid": 1000}, Level.WARNING),
        ({"loop_age": 9.0}, Level.PROBLEM),
        ({"trouble": "full"}, Level.PROBLEM),
        ({"reload_failure": "bad"}, Level.PROBLEM),
        ({"runner_note": "spawn"}, Level.WARNING),
        ({"unknown_workers": ("w",)}, Level.WARNING),
        ({"version": "", "silence": "silent"}, Level.PROBLEM),
        ({"version": "", "silence": "none", "pid": None}, Level.UNKNOWN),
        ({"version": "", "silence": "no", "pid": None, "refused": True}, Level.UNKNOWN),
        ({"version": "", "silence": "no", "pid": None, "killed": True}, Level.PROBLEM),
    ):
        facts = replace(good, **change)
        assert worst(daemon_state.judge(facts)).level is level, change


def test_files_of_the_service(tmp_path: Path) -> None:
    assert levels(service.judge_files([])) == ["ok"]
    place = Place(tmp_path)
    way = Way("root", "stepwarden", ("/opt/stepwarden",))
    for piece in pieces(way, place):
        piece.path.parent.mkdir(parents=True, exist_ok=True)
        piece.path.write_text(piece.text)
    assert levels(service.judge_files(drift(place, way.program))) == ["ok"]
    unit = place.units / "stepwarden.service"
    unit.write_text(unit.read_text() + "# mine\n")
    found = drift(place, way.program)
    assert [one.state for one in found if one.state is State.EDITED]
    told = worst(service.judge_files(found))
    assert "was edited" in told.found
    assert told.advice.startswith("stepwarden install --force;")


def test_limits_and_sandbox_of_the_unit() -> None:
    second = 1_000_000
    properties = {"WatchdogUSec": 10 * second, "TimeoutStopUSec": 90 * second}
    good = service.Service("s.service", properties=properties, longest=("w", 30.0))
    assert levels(service.judge(good)) == ["ok", "ok", "ok"]
    long = replace(good, longest=("w", 70.0), properties={**properties, "WatchdogUSec": 0})
    assert levels(service.judge(long)) == ["warning", "problem", "ok"]
    assert levels(service.judge(replace(good, stop_limit=200.0)))[1] == "warning"
    assert levels(service.judge(replace(long, ends_workers=False)))[1] == "ok"
    strict = {**properties, "PrivateDevices": True}
    boxed = replace(good, properties=strict, spawned=("w",))
    assert levels(service.judge(boxed)) == ["ok", "ok", "warning"]
    assert levels(service.judge(service.Service("", "in no service"))) == ["unknown"]


def test_a_socket_that_nobody_listens_on_tells_of_a_killed_daemon(tmp_path: Path) -> None:
    path = tmp_path / "admin.sock"
    assert not find_daemon(path).killed
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    found = find_daemon(path)
    assert (found.killed, found.runs) == (True, False)
    asked = replace(subject(tmp_path), daemon=found)
    (told,) = daemon_state.judge(daemon_state.gather(asked))
    assert (told.level, "nobody listens" in told.found) == (Level.PROBLEM, True)
