"""The five worker definitions that the file must be able to say, as config/examples says them."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from stepwarden.config import Config, ShortCommand
from stepwarden.core.groups import OnDead
from stepwarden.core.policy import RestartPolicy, WorkerPolicy
from support.published import EXAMPLES, load_published

HANGS = "hangs at start take longer than within"


@pytest.fixture
def example(request: pytest.FixtureRequest, tmp_path: Path) -> Config:
    return load_published(EXAMPLES / f"{request.param}.yaml", tmp_path)


def budgets(policy: WorkerPolicy, *batches: int) -> list[float]:
    return [policy.step_budget(batch, None).seconds for batch in batches]


def warned(config: Config) -> list[tuple[str, str]]:
    """Place and the telling words of each warning; what is asked for may look odd to `check`."""
    words = (HANGS, "other hosts")
    return [
        (problem.path, next(word for word in words if word in problem.message))
        for problem in config.warnings
    ]


@pytest.mark.parametrize("example", ["bare-metal"], indirect=True)
def test_d1_one_tensor_parallel_engine_on_bare_metal(example: Config) -> None:
    worker = example.workers["chat-tp4"]
    policy = worker.policy
    assert worker.command is not None
    assert worker.command[:3] == ("/opt/engine/venv/bin/vllm", "serve", "/models/chat-70b")
    assert worker.command[-4:] == ("--host", "127.0.0.1", "--port", "8000")
    assert (worker.run_as.user, worker.run_as.group) == ("inference", "inference")
    assert worker.run_as.limits == {"nofile": 1048576}
    assert worker.cwd == "/opt/engine"
    assert worker.env["CUDA_VISIBLE_DEVICES"] == "0,1,2,3"
    assert len(worker.env) == 6
    assert worker.environment({})["HF_TOKEN"] == "hf_secret"
    assert (policy.startup, policy.first_step) == (1800.0, 120.0)
    assert (policy.heartbeat_timeout, policy.window) == (15.0, 30.0)
    assert budgets(policy, 1, 8, 9, 32, 64, 65) == [5.0, 8.0, 20.0, 20.0, 40.0, 40.0]
    assert (worker.stop_signal, worker.stop_grace) == (signal.SIGTERM, 300.0)
    assert policy.restart == RestartPolicy(
        "any_exit", 10.0, 2.0, 300.0, 0.25, limit=5, within=1800.0, stable=600.0
    )
    assert (worker.output.mode, worker.output.keep) == ("capture", 5)
    assert worker.output.max_file == 100 * 1024 * 1024
    assert worker.output.path == Path("/var/lib/stepwarden/output/chat-tp4")
    assert example.supervisor.stop_limit == 330.0
    assert warned(example) == [("workers.chat-tp4.restart", HANGS)]


@pytest.mark.parametrize("example", ["prefill-decode"], indirect=True)
def test_d2_two_roles_of_one_engine_restarted_together(example: Config) -> None:
    group = example.groups["pd-pair"]
    assert group.members == ("prefill-0", "decode-0")
    assert group.on_dead is OnDead.GROUP
    assert (group.restart.limit, group.restart.within, group.restart.delay) == (3, 7200.0, 30.0)
    prefill, decode = (example.workers[name] for name in group.members)
    assert budgets(prefill.policy, 1, 4, 5, 17) == [60.0, 300.0, 1200.0, 1200.0]
    assert budgets(decode.policy, 16, 64, 256, 257) == [2.0, 5.0, 15.0, 30.0]
    unknown = [worker.policy.step_budget(None, None).seconds for worker in (prefill, decode)]
    assert unknown == [1200.0, 30.0]
    assert (prefill.policy.startup, decode.policy.startup) == (2400.0, 2400.0)
    assert (prefill.policy.first_step, decode.policy.first_step) == (1200.0, 600.0)
    assert (prefill.policy.window, decode.policy.window) == (120.0, 20.0)
    assert (prefill.stop_grace, decode.stop_grace) == (60.0, 60.0)
    assert prefill.policy.restart == decode.policy.restart == group.restart
    assert prefill.env["DIST_BOOTSTRAP_TIMEOUT"] == "1200"
    assert set(warned(example)) == {("groups.pd-pair.restart", HANGS)}


@pytest.mark.parametrize("example", ["container"], indirect=True)
def test_d3_a_container_driven_by_its_client(example: Config) -> None:
    worker = example.workers["chat-ctr"]
    policy = worker.policy
    assert worker.pre_start == ShortCommand(("docker", "rm", "-f", "chat-ctr"), 30.0, True)
    assert worker.stop_command is not None
    assert worker.stop_command.argv == ("docker", "stop", "-t", "120", "chat-ctr")
    assert worker.stop_command.timeout == 150.0
    assert worker.kills_at_once
    assert worker.command is not None
    assert worker.command[:3] == ("docker", "run", "--rm")
    assert "/run/stepwarden:/run/stepwarden" in worker.command
    assert policy.agent == "required"
    assert budgets(policy, 1, 16, 128) == [3.0, 6.0, 20.0]
    assert (policy.startup, policy.window) == (1200.0, 20.0)
    restart = policy.restart
    assert (restart.on, restart.limit, restart.within, restart.delay) == (
        "any_exit",
        10,
        3600.0,
        10.0,
    )
    assert warned(example) == [("workers.chat-ctr.restart", HANGS)]


@pytest.mark.parametrize("example", ["small-box"], indirect=True)
def test_d4_several_servers_behind_shells_on_a_small_box(example: Config) -> None:
    coder, embed, vision = (example.workers[n] for n in ("coder-7b", "embed-cpu", "vision-lab"))
    assert coder.shell is not None
    assert coder.shell.startswith("CUDA_VISIBLE_DEVICES=0 exec llama-server --model ${MODELS_DIR}/")
    assert coder.argv == ("/bin/sh", "-c", coder.shell)
    assert embed.shell is not None
    assert embed.shell.endswith("--port 8082 2>&1 | tee -a /var/log/embed.log")
    assert budgets(coder.policy, 1, 8) == [2.0, 6.0]
    assert budgets(embed.policy, 1, 32, 512) == [10.0, 120.0, 900.0]
    assert budgets(vision.policy, 1) == [8.0]
    assert embed.run_as.nice == 5
    assert not vision.policy.autostart
    assert vision.policy.restart.on == "never"
    assert vision.env == {"CUDA_VISIBLE_DEVICES": "1"}
    for worker in (coder, embed, vision):
        policy = worker.policy
        assert (policy.heartbeat_timeout, policy.startup, policy.window) == (10.0, 500.0, 10.0)
        assert (worker.stop_signal, worker.stop_grace) == (signal.SIGTERM, 10.0)
        assert worker.output.mode == "inherit"
    restart = coder.policy.restart
    assert (restart.on, restart.limit, restart.within, restart.delay) == ("any_exit", 3, 600.0, 3.0)
    assert warned(example) == [("defaults.restart", HANGS)]


@pytest.mark.parametrize("example", ["sidecar"], indirect=True)
def test_d5_a_sidecar_of_a_process_that_the_platform_starts(example: Config) -> None:
    supervisor, worker = example.supervisor, example.workers["engine"]
    policy = worker.policy
    assert supervisor.agent_socket == Path("/run/pod/stepwarden/agent.sock")
    assert supervisor.health.addresses == ("0.0.0.0:50051",)
    assert supervisor.state_dir == Path("/var/lib/stepwarden")
    assert supervisor.stop_limit == 120.0
    assert worker.attach is not None
    assert worker.attach.expect_user == "1000"
    assert worker.argv == ()
    assert policy.attached
    assert budgets(policy, 1, 64, 256, 1024) == [5.0, 30.0, 60.0, 120.0]
    assert (policy.startup, policy.heartbeat_timeout, policy.window) == (1200.0, 10.0, 30.0)
    assert (worker.stop_signal, worker.stop_grace) == (signal.SIGTERM, 60.0)
    assert (policy.restart.on, policy.expect_external) == ("never", 600.0)
    assert policy.drain == 55.0
    assert supervisor.health.insecure
    assert warned(example) == []


@pytest.mark.parametrize("example", ["vllm-cpu"], indirect=True)
def test_the_plain_example_gives_no_warning(example: Config) -> None:
    assert example.warnings == ()
