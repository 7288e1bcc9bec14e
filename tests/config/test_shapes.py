"""A worker has one shape, and says nothing that means nothing for it."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.config import (
    OutputConfig,
    ProgressCounter,
    ReadyProbe,
    ReleaseGate,
    RunAs,
    ShortCommand,
)
from stepwarden.config.effective import effective_yaml
from stepwarden.config.explanation import explain
from stepwarden.core.policy import RestartPolicy
from support.loading import RICH, RICH_ENVIRONMENT, errors, loaded, warnings

ATTACHED = "workers: {w: {backend: cpu, attach: {expect_user: 1000}%s}}"
UNIT = "workers: {w: {backend: cpu, unit: engine.service%s}}"
STARTED = "workers: {w: {backend: cpu, command: [a]%s}}"


def test_everything_that_can_be_said_arrives() -> None:
    config = loaded(RICH, RICH_ENVIRONMENT)
    assert config.supervisor.on_exit == "leave"
    assert config.supervisor.runner == "spawn"
    assert config.supervisor.stop_limit == 600.0
    a = config.workers["a"]
    assert a.command == ("serve", "8000", "${X}")
    assert a.runner == "systemd"
    limits = {"memlock": None, "core": 0, "nofile": 1048576, "stack": 8 << 20, "as": 3 << 29}
    assert a.run_as == RunAs("inference", "20", 0o027, -5, limits)
    assert a.cwd == "/srv/run"
    assert a.env == {"A": "8000", "EMPTY": ""}
    assert a.pre_start == ShortCommand(("clear", "8000"), 5.0, True)
    assert a.stop_command is not None
    assert (a.stop_command.argv, a.stop_command.timeout) == (("halt", "8000"), 40.0)
    assert a.stop_grace == 3.0
    assert a.ready == ReadyProbe(
        "grpc", "127.0.0.1:50052", service="model", interval=3.0, timeout=4.0
    )
    url = "http://127.0.0.1:8000/metrics"
    assert a.progress == ProgressCounter(url, ("x:a", "x:b"), ("x:c",), 2.0, 90.0)
    files = (Path("/run/gpu.lock"),)
    assert a.release == ReleaseGate((8000, 8001), files, ("free", "8000"), 9.0)
    assert a.output == OutputConfig("append", Path("/srv/log"))
    assert (a.policy.drain, a.policy.progress_budget, a.policy.probed) == (30.0, 90.0, True)


def test_each_shape_gets_what_means_something_for_it() -> None:
    config = loaded(RICH, RICH_ENVIRONMENT)
    b, c, d, e = (config.workers[name] for name in "bcde")
    assert b.output.path == Path("/var/lib/stepwarden/output/b")
    assert (b.output.max_file, b.output.keep) == (10**9, 0)
    assert b.run_as.user == "inference"
    assert b.policy.heartbeat_timeout == 30.0, "no agent, so the shipped value stands"
    assert b.needs == ("a",)
    assert b.ready == ReadyProbe("command", argv=("ok",))
    assert c.unit == "c@8000.service"
    assert c.run_as == d.run_as == RunAs()
    assert c.output == d.output == OutputConfig()
    assert c.ready == ReadyProbe("delay", delay=5.0)
    assert d.policy.attached
    assert (d.policy.expect_external, d.policy.restart.limit) == (60.0, 2)
    assert d.ready == ReadyProbe("tcp", "[::1]:80")
    assert e.policy.restart == RestartPolicy("never")
    assert e.ready == ReadyProbe("http", "https://h/x", 204)
    assert e.policy.expect_external == 600.0


def test_a_group_has_one_restart_budget() -> None:
    config = loaded(RICH, RICH_ENVIRONMENT)
    group = config.groups["pair"]
    assert (group.restart.limit, group.restart.within, group.restart.delay) == (7, 7200.0, 1.0)
    a, b = config.workers["a"].policy.restart, config.workers["b"].policy.restart
    assert (a.on, b.on) == ("failure", "any_exit")
    assert (a.within, b.limit) == (7200.0, 7)


def test_what_holds_loads_again_and_keeps_variables_as_they_are_written() -> None:
    config = loaded(RICH, RICH_ENVIRONMENT)
    text = effective_yaml(config)
    again = loaded(text, RICH_ENVIRONMENT)
    assert again.workers == config.workers
    assert again.groups == config.groups
    assert again.supervisor == config.supervisor
    assert "${PORT}" in text
    assert "c@8000" not in text


@pytest.mark.parametrize(
    ("written", "path", "words"),
    [
        ("workers: {w: {command: [a], unit: b.service}}", "workers.w", "command and unit are both"),
        (
            "workers: {w: {command: [a], shell: b, unit: b.service}}",
            "workers.w",
            "command, shell, unit are all written",
        ),
        ("workers: {w: {unit: b.socket}}", "workers.w.unit", "a systemd service, NAME.service"),
        ("workers: {w: {unit: stepwarden.service}}", "workers.w.unit", "the daemon's own unit"),
        ("workers: {w: {attach: {}}}", "workers.w.attach", "the key expect_user is missing"),
        (ATTACHED % ", pre_start: {command: [a]}", "workers.w.pre_start", "something else starts"),
        (
            "workers: {v: {backend: cpu, command: [a]},"
            " w: {backend: cpu, attach: {expect_user: 1}, needs: [v]}}",
            "workers.w.needs",
            "with attach, leave it out",
        ),
        (ATTACHED % ", release: {ports: [1]}", "workers.w.release", "something else starts"),
        (ATTACHED % ", agent: none", "workers.w.agent", "found by its agent"),
        (ATTACHED % ", restart: {delay: 1s}", "workers.w.restart.delay", "means nothing"),
        (UNIT % ", stop: {signal: INT}", "workers.w.stop.signal", "KillSignal="),
        (STARTED % ", restart: {expect_external: 1m}", "workers.w.restart.expect_external", "only"),
        (
            STARTED % ', restart: {"on": never, limit: 3}',
            "workers.w.restart.limit",
            "means nothing with on: never",
        ),
        (STARTED % ", agent: none, step: {max: 1m}", "workers.w.step", "without an agent"),
        (STARTED % ", agent: none, heartbeat: {}", "workers.w.heartbeat", "without an agent"),
        (STARTED % ", agent: none, drain: 1m", "workers.w.drain", "without an agent"),
        (STARTED % ", agent: none, ready: {agent: true}", "workers.w.ready.agent", "no agent"),
        (STARTED % ", ready: {agent: false}", "workers.w.ready.agent", "false says no probe"),
        (STARTED % ", ready: {}", "workers.w.ready", "says no probe (accepted: one of agent"),
        (STARTED % ", ready: {interval: 1s}", "workers.w.ready", "says no probe"),
        (STARTED % ', ready: {tcp: "a:1", delay: 1s}', "workers.w.ready", "tcp and delay are"),
        (STARTED % ', ready: {tcp: "a:0"}', "workers.w.ready.tcp", "not an address"),
        (STARTED % ', ready: {tcp: "a:1", status: 200}', "workers.w.ready.status", "with http"),
        (STARTED % ', ready: {http: "http://a", service: b}', "workers.w.ready.service", "grpc"),
        (STARTED % ", ready: {delay: 1s, timeout: 1s}", "workers.w.ready.timeout", "with delay"),
        (STARTED % ", ready: {http: 'http://a:70000/'}", "workers.w.ready.http", "a URL such as"),
        (STARTED % ", ready: {http: 'http://me@a/'}", "workers.w.ready.http", "a URL such as"),
        (STARTED % ", ready: {command: []}", "workers.w.ready.command", "names no program"),
        (STARTED % ", release: {}", "workers.w.release", "nothing that must be free"),
        (STARTED % ", release: {command: ['']}", "workers.w.release.command", "names no program"),
        (STARTED % ", stop: {timeout: 3s}", "workers.w.stop.timeout", "is for a command"),
        (STARTED % ", output: {keep: 3}", "workers.w.output.keep", "mode: capture"),
        (STARTED % ", output: {path: /x}", "workers.w.output", "mode inherit takes no path"),
        (STARTED % ", pre_start: {}", "workers.w.pre_start", "the key command is missing"),
        (STARTED % ", umask: 027", "workers.w.umask", "write it in quotes"),
        (STARTED % ", user: a b", "workers.w.user", "a user name, or its number"),
        (STARTED % ", group: 4294967295", "workers.w.group", "a group name, or its number"),
        (STARTED % ", nice: 20", "workers.w.nice", "from -20 to 19"),
        (STARTED % ", limits: {nofiles: 5}", "workers.w.limits.nofiles", "did you mean nofile?"),
        (STARTED % ", limits: {nofile: 1MiB}", "workers.w.limits.nofile", "or unlimited"),
        (STARTED % ", limits: {core: -1}", "workers.w.limits.core", "or unlimited"),
        (STARTED % ", env_file: here", "workers.w.env_file", "an absolute path"),
        (STARTED % ", env_file: []", "workers.w.env_file", "the list is empty"),
        (STARTED % ", on_exit: stop", "workers.w.on_exit", "did you mean supervisor.on_exit?"),
    ],
)
def test_what_means_nothing_is_refused_in_one_line(written: str, path: str, words: str) -> None:
    found = errors(written)
    assert list(found) == [path]
    assert words in found[path]
    assert "accepted: " in found[path] or "is missing" in found[path]


@pytest.mark.parametrize(
    "key",
    ["runner: spawn", "user: a", "nice: 1", "cwd: /a", "env: {A: b}", "env_file: /a", "output: {}"],
)
@pytest.mark.parametrize("shape", [ATTACHED, UNIT])
def test_what_is_for_processes_of_our_own_is_refused_elsewhere(shape: str, key: str) -> None:
    (path,) = errors(shape % f", {key}")
    assert path == f"workers.w.{key.partition(':')[0]}"


@pytest.mark.parametrize("shape", [ATTACHED, UNIT, STARTED])
def test_in_the_defaults_the_same_keys_may_stand(shape: str) -> None:
    shared = "defaults: {user: a, nice: 1, restart: {delay: 1s, within: 10h}, stop: {signal: INT},"
    shared += " drain: 1m, output: {mode: append, path: /log}}\n"
    assert warnings(shared + shape % "") == {}


def test_what_is_hardly_meant_about_a_shape_is_a_warning() -> None:
    grace = STARTED % ", stop: {signal: KILL, grace: 5s}"
    assert "nothing is waited for" in warnings(grace)["workers.w.stop.grace"]
    unused = "backends: {npu: {step: {base: 1s}}}\n" + STARTED % ""
    assert warnings(unused) == {"backends.npu": "no worker has this backend"}


def test_the_longest_stop_has_to_fit_into_the_limit_of_the_daemon() -> None:
    long = STARTED % ", stop: {command: [a], timeout: 100s, grace: 60s}"
    message = warnings(long)["workers.w.stop"]
    assert "stopping w may take 160s" in message
    assert "at least 190s" in message
    assert warnings("supervisor: {stop_limit: 190s}\n" + long) == {}
    assert warnings("supervisor: {on_exit: leave}\n" + long) == {}
    assert warnings(long.replace("grace: 60s", "signal: KILL").replace("100s", "60s")) == {}
    assert warnings(ATTACHED % ", stop: {grace: 1h}") == {}, "nobody stops it with the daemon"


def test_files_of_captured_output_belong_to_one_worker() -> None:
    two = "workers: {a: {backend: cpu, command: [a], output: {mode: %s, path: /x}},"
    two += " b: {backend: cpu, command: [b], output: {mode: capture, path: /x}}}"
    assert "worker a writes to /x too" in errors(two % "append")["workers.b.output.path"]
    both = two.replace("capture", "append") % "append"
    assert warnings(both) == {}


def test_a_unit_belongs_to_one_worker() -> None:
    text = "workers: {a: {backend: cpu, unit: x.service}, b: {backend: cpu, unit: x.service}}"
    assert "worker a has x.service too" in errors(text)["workers.b.unit"]


def test_a_progress_counter_is_explained() -> None:
    text = STARTED % ", agent: none, progress: {url: 'http://a/', counter: b, work: c, budget: 2m}"
    remarks = explain(loaded(text).workers["w"], None, None).remarks
    assert "its progress counter may stand still for 120 s while there is work" in remarks
