"""The manifests of config/kubernetes: valid, and each number in them fits the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.config import Config
from stepwarden.config.effective import effective_yaml
from stepwarden.config.engines import largest_step
from stepwarden.config.loader import load_text
from stepwarden.daemon.endings import KILL_WAIT_SECONDS
from stepwarden.edge.health_table import STALE_AFTER_SECONDS
from stepwarden_proto.page import ENV_ATTACH
from support.kubernetes import (
    DAEMONSET,
    SIDECAR,
    Section,
    config_text,
    container,
    documents,
    environment,
    of_kind,
    pod_spec,
)
from support.published import EXAMPLES

kubernetes_validate = pytest.importorskip("kubernetes_validate", reason="it is in the dev extra")

BOTH = [pytest.param(SIDECAR, id="sidecar"), pytest.param(DAEMONSET, id="daemonset")]
VERSIONS = ("1.29", "1.31", "1.33", "1.35", "1.37")
MARGIN = 10.0
"""Seconds that kubelet and container runtime may take for what they do themselves."""
CRASH_LOOP_SECONDS = 300.0
"""The longest delay of CrashLoopBackOff."""


def config_of(path: Path) -> Config:
    return load_text(config_text(path), path, {})


def supervisor(path: Path) -> Section:
    return container(pod_spec(path), "stepwarden")


def engine_pod(path: Path) -> Section:
    spec: Section = pod_spec(path) if path == SIDECAR else of_kind(path, "Pod")["spec"]
    return spec


def mounts(one: Section) -> dict[str, str]:
    """Volume name by the place where it is mounted."""
    return {mount["mountPath"]: mount["name"] for mount in one["volumeMounts"]}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # of the validator, which leaves files open
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("path", BOTH)
def test_every_object_is_valid_in_each_version(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("path", BOTH)
def test_the_configuration_in_it_can_be_used_without_a_warning(path: Path) -> None:
    assert [problem.message for problem in config_of(path).warnings] == []


def test_the_example_file_is_the_one_of_the_sidecar() -> None:
    example = EXAMPLES / "sidecar.yaml"
    there = load_text(example.read_text(), example, {})
    assert effective_yaml(config_of(SIDECAR)) == effective_yaml(there)


@pytest.mark.parametrize("path", BOTH)
def test_the_ports_are_those_of_the_listeners(path: Path) -> None:
    settings, one = config_of(path).supervisor, supervisor(path)
    ports = {port["name"]: port["containerPort"] for port in one["ports"]}
    assert settings.health.addresses == (f"0.0.0.0:{ports['health']}",)
    assert settings.metrics.addresses == (f"0.0.0.0:{ports['metrics']}",)
    assert settings.health.insecure
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert one[kind]["grpc"]["port"] == ports["health"]


@pytest.mark.parametrize("path", BOTH)
def test_only_the_health_of_stepwarden_itself_restarts_it(path: Path) -> None:
    one = supervisor(path)
    asked = {kind: one[kind]["grpc"]["service"] for kind in one if kind.endswith("Probe")}
    ready = "ready" if path == SIDECAR else ""
    assert asked == {"startupProbe": "", "livenessProbe": "", "readinessProbe": ready}
    assert "livenessProbe" not in container(engine_pod(path), "engine")


@pytest.mark.parametrize("path", BOTH)
def test_probes_fit_our_staleness_and_the_daemons_own_end(path: Path) -> None:
    one, loop_limit = supervisor(path), config_of(path).supervisor.loop_limit
    for kind in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert one[kind]["timeoutSeconds"] <= one[kind]["periodSeconds"]
    probe = one["livenessProbe"]
    # One stale answer is no restart ...
    assert (probe["failureThreshold"] - 1) * probe["periodSeconds"] > 2 * STALE_AFTER_SECONDS
    # ... and a stuck loop writes down where it stands before the kubelet ends it.
    soonest = STALE_AFTER_SECONDS + (probe["failureThreshold"] - 1) * probe["periodSeconds"]
    assert 0 < loop_limit < soonest


@pytest.mark.parametrize("path", BOTH)
def test_the_graces_fit_the_pods(path: Path) -> None:
    settings, spec = config_of(path).supervisor, pod_spec(path)
    total = spec["terminationGracePeriodSeconds"]
    assert settings.stop_limit + MARGIN < total
    assert supervisor(path)["livenessProbe"]["terminationGracePeriodSeconds"] < total
    for worker in config_of(path).workers.values():
        assert worker.stop_grace < settings.stop_limit


def test_the_engines_drain_and_our_end_fit_into_the_pods_grace() -> None:
    (worker,) = config_of(SIDECAR).workers.values()
    spec = pod_spec(SIDECAR)
    (_, before) = container(spec, "engine")["lifecycle"]["preStop"]["exec"]["command"]
    spent = float(before) + worker.stop_grace + 2 * KILL_WAIT_SECONDS
    assert spent + MARGIN < spec["terminationGracePeriodSeconds"]
    assert worker.policy.drain <= worker.stop_grace


@pytest.mark.parametrize("path", BOTH)
def test_the_longest_back_off_of_the_platform_is_waited_for(path: Path) -> None:
    for worker in config_of(path).workers.values():
        assert worker.policy.expect_external > CRASH_LOOP_SECONDS + MARGIN


@pytest.mark.parametrize("path", BOTH)
def test_volumes_are_mounted_where_the_configuration_says(path: Path) -> None:
    settings, one, spec = config_of(path).supervisor, supervisor(path), pod_spec(path)
    places = mounts(one)
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    assert set(places.values()) <= set(volumes)
    assert Path(one["args"][1]).parent == Path("/etc/stepwarden")
    assert "configMap" in volumes[places["/etc/stepwarden"]]
    assert not [mount for mount in one["volumeMounts"] if "subPath" in mount]
    assert str(settings.state_dir) in places
    assert environment(one)["STEPWARDEN_SOCKET"] == str(settings.admin_socket)
    shared = settings.runtime_dir.parent if path == SIDECAR else settings.runtime_dir
    volume = volumes[places[str(shared)]]
    if path == SIDECAR:
        assert volume["emptyDir"]["medium"] == "Memory"
    else:
        assert volume["hostPath"]["path"] == str(settings.runtime_dir)


@pytest.mark.parametrize("path", BOTH)
def test_the_engine_finds_its_invitation_and_is_its_user(path: Path) -> None:
    config, spec = config_of(path), engine_pod(path)
    one = container(spec, "engine")
    (worker,) = config.workers.values()
    place = config.supervisor.runtime_dir / "attach" / worker.name
    assert environment(one)[ENV_ATTACH] == str(place)
    shared = next(Path(mount) for mount in mounts(one) if place.is_relative_to(mount))
    assert config.supervisor.runtime_dir.is_relative_to(shared), "the socket is mounted too"
    assert worker.attach is not None
    assert worker.attach.expect_user == str(spec["securityContext"]["runAsUser"])


def test_the_sidecar_is_one_and_shares_the_namespace_and_the_user() -> None:
    spec, one = pod_spec(SIDECAR), supervisor(SIDECAR)
    assert one in spec["initContainers"]
    assert one["restartPolicy"] == "Always"
    assert spec["shareProcessNamespace"] is True
    assert spec["securityContext"]["runAsNonRoot"] is True
    for name in ("stepwarden", "engine"):
        assert "runAsUser" not in container(spec, name)["securityContext"]
    assert one["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_vllms_own_time_outs_are_above_ours() -> None:
    """As the daemon would set them, if it started the engine."""
    (worker,) = config_of(SIDECAR).workers.values()
    set_to = environment(container(pod_spec(SIDECAR), "engine"))
    need = largest_step(worker.policy, worker.max_num_batched_tokens, worker.stop_grace)
    assert int(set_to["VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"]) >= need.timeout
    assert int(set_to["VLLM_ENGINE_READY_TIMEOUT_S"]) >= worker.policy.startup_cap()
