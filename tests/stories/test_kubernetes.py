"""The manifests' own configuration with a real daemon and an engine that a platform starts."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from stepwarden_proto.page import ENV_ATTACH
from support import processes
from support.kubernetes import (
    DAEMONSET,
    SIDECAR,
    Probe,
    StepwardenContainer,
    container,
    pod_spec,
    probe,
    setpriv,
)
from support.pid_namespace import CONTAINER
from support.platform import Platform, platform
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(180)

ENGINE = "attach; batch 1; idle"
STRANGER = 20001
EXIT_LIMIT = 20.0
"""What an end of stepwarden may take here: less than any grace of the manifests."""


@contextmanager
def engine(pod: StepwardenContainer, *prefix: str) -> Iterator[Platform]:
    """The container of the engine: it has one variable, and its platform starts it again."""
    theirs = {k: v for k, v in pod.environment().items() if k != processes.MARK_VARIABLE}
    with platform(theirs | {ENV_ATTACH: str(pod.invitation)}, ENGINE, *prefix) as made:
        yield made


def says(asked: Probe, pod: StepwardenContainer, answer: str) -> None:
    wait_for(lambda: asked.ask(pod.health_address) == answer, what=f"{asked} says {answer}")


@pytest.mark.parametrize("mode", [0o777, 0o2777], ids=["plain", "with-fsGroup"])
def test_d5_one_dead_engine_is_started_again_and_the_pod_lives(mode: int) -> None:
    """Without any capability, in volumes as the kubelet makes them."""
    liveness, readiness = probe(SIDECAR, "livenessProbe"), probe(SIDECAR, "readinessProbe")
    with StepwardenContainer(SIDECAR, volume_mode=mode) as pod:
        assert liveness.ask(pod.health_address) == "SERVING"
        assert readiness.ask(pod.health_address) == "NOT_SERVING"
        with engine(pod) as made:
            pod.wait_state("engine", "HEALTHY")
            says(readiness, pod, "SERVING")
            made.stub.send("freeze")
            dead = pod.wait_transition("engine", "DEAD")
            assert liveness.ask(pod.health_address) == "SERVING"
            pod.wait_transition("engine", "HEALTHY", after=dead.id)
            says(readiness, pod, "SERVING")
            assert [(s.pid, s.name) for s in made.stub.signals()] == [(made.lives[0], "SIGTERM")]
            assert len(made.lives) == 2


def test_d5_a_killed_sidecar_comes_back_and_the_engine_does_not_notice() -> None:
    readiness = probe(SIDECAR, "readinessProbe")
    with StepwardenContainer(SIDECAR) as pod, engine(pod) as made:
        first = pod.wait_state("engine", "HEALTHY")
        pod.kill()
        assert readiness.ask(pod.health_address) == "UNAVAILABLE"
        pod.start()
        again = pod.wait_state("engine", "HEALTHY")
        assert (again.pid, again.incarnation) == (first.pid, first.incarnation)
        says(readiness, pod, "SERVING")
        assert made.stub.signals() == []


def test_d5_a_pod_that_ends_waits_for_the_engine_and_not_for_us() -> None:
    """The kubelet ends the engine first, then the sidecar, and all within the grace period."""
    with StepwardenContainer(SIDECAR) as pod, engine(pod) as made:
        first = pod.wait_state("engine", "HEALTHY")
        made.hold()
        os.kill(first.pid, signal.SIGTERM)
        pod.wait_transition("engine", "RESTARTING")
        pod.stop(limit=EXIT_LIMIT)
        assert len(made.lives) == 1


def test_d5_a_stopped_sidecar_leaves_the_engine_alone() -> None:
    with StepwardenContainer(SIDECAR) as pod, engine(pod) as made:
        pod.wait_state("engine", "HEALTHY")
        pod.stop(limit=EXIT_LIMIT)
        assert made.stub.signals() == []
        pod.start()


def test_o_reld_2_an_edit_of_the_config_map_is_loaded_and_a_bad_one_changes_nothing() -> None:
    readiness = probe(SIDECAR, "readinessProbe")
    with StepwardenContainer(SIDECAR) as pod, engine(pod) as made:
        first = pod.wait_state("engine", "HEALTHY")
        pod.write_config(pod.text().replace("window: 1s", "window: 1 s"))
        failed = pod.wait_event(lambda event: event.kind == "reload_failed")
        assert "retry.window" in failed.sentence
        pod.write_config(pod.text().replace("window: 1s", "window: 2s"))
        pod.wait_event(lambda event: event.kind == "reloaded" and event.id > failed.id)
        assert pod.status()["engine"].pid == first.pid
        says(readiness, pod, "SERVING")
        assert made.stub.signals() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has capabilities to give up")
def test_a_node_level_daemon_ends_an_engine_of_another_user_and_another_pid_namespace() -> None:
    """With the capabilities of the manifest alone; the engine is in a container of its own."""
    added = container(pod_spec(DAEMONSET), "stepwarden")["securityContext"]["capabilities"]["add"]
    daemon = StepwardenContainer(DAEMONSET, capabilities=added, user=STRANGER)
    daemon.directory.chmod(0o711)
    with daemon as pod, engine(pod, *container_of(STRANGER)) as made:
        seen = pod.wait_state("engine", "HEALTHY")
        assert psutil.Process(seen.pid).uids().real == STRANGER
        assert seen.pid not in made.lives, "its own pid is that of its namespace"
        pod.wait_status("engine", lambda w: w.ranks[0].beat_age_seconds < 3, "beats")
        made.stub.send("freeze")
        dead = pod.wait_transition("engine", "DEAD", limit=120)
        pod.wait_transition("engine", "HEALTHY", after=dead.id)
        assert [s.name for s in made.stub.signals()] == ["SIGTERM"]


def container_of(user: int) -> list[str]:
    """A pid namespace of its own, and there this user; it may read our Python, wherever that is."""
    reads = "dac_read_search"
    return [
        *("sh", "-c", f'chown {user} "$STUB_DIR" && chmod 711 "$STUB_DIR" && exec "$@"', "sh"),
        *CONTAINER,
        *setpriv(reads),
        *(f"--reuid={user}", f"--regid={user}", "--clear-groups", "--"),
    ]
