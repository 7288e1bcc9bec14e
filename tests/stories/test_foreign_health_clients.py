"""The health service asked by clients that others wrote: grpc-js (npm) and grpcurl (Go)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from stepwarden.edge.health_messages import HealthCheckRequest
from stepwarden_proto.v1 import agent_pb2, supervisor_pb2
from support import foreign
from support.crew import Crew, stub

pytestmark = pytest.mark.timeout(180)

LIMIT = 60.0


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    """Two workers that are HEALTHY; one of them is restarted slowly enough to be seen."""
    workers = {"a": stub("attach; step 5"), "b": stub(restart={"delay": "2s"})}
    with Crew(workers) as made:
        made.ready()
        yield made


def node(crew: Crew, *words: str) -> str:
    """What the client of node prints."""
    command, environment = foreign.node_client()
    ran = subprocess.run(
        [*command, crew.health_address, *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=True,
    )
    return ran.stdout.strip()


@contextmanager
def watching(crew: Crew, name: str) -> Iterator[tuple[subprocess.Popen[str], Callable[[], str]]]:
    """The client of node that watches this name, and what gives the next status that it prints."""
    command, environment = foreign.node_client()
    with subprocess.Popen(
        [*command, crew.health_address, "watch", name],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    ) as client:
        assert client.stdout is not None
        printed = client.stdout
        try:
            yield client, lambda: printed.readline().strip()
        finally:
            client.terminate()


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The messages of all our services for grpcurl, which gets no reflection here."""
    descriptions = descriptor_pb2.FileDescriptorSet()
    for made in (
        HealthCheckRequest.DESCRIPTOR.file,
        agent_pb2.DESCRIPTOR,
        supervisor_pb2.DESCRIPTOR,
    ):
        made.CopyToProto(descriptions.file.add())
    path = tmp_path_factory.mktemp("described") / "all.protoset"
    path.write_bytes(descriptions.SerializeToString())
    return path


def curl(crew: Crew, *words: str) -> subprocess.CompletedProcess[str]:
    """Run grpcurl on the health listener; `words` without the address hold flags, then a method."""
    command = [foreign.grpcurl(), "-plaintext", "-max-time", "20", *words[:-1]]
    return subprocess.run(
        [*command, crew.health_address, words[-1]],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("", "SERVING"),
        ("ready", "SERVING"),
        ("worker/a", "SERVING"),
        ("worker/nobody", "NOT_FOUND"),
        ("wörker", "NOT_FOUND"),
    ],
)
def test_o_hlth_1_check_by_node(crew: Crew, name: str, answer: str) -> None:
    assert node(crew, "check", name) == answer


def test_list_by_node(crew: Crew) -> None:
    statuses = json.loads(node(crew, "list"))
    assert set(statuses) == {"", "ready", "worker/a", "worker/b"}
    assert {status["status"] for status in statuses.values()} == {"SERVING"}


def test_o_hlth_1_watch_by_node_follows_a_worker_through_its_death(crew: Crew) -> None:
    with watching(crew, "worker/b") as (_, status):
        assert status() == "SERVING"
        crew.stub("b").tell("exit 3")
        assert status() == "NOT_SERVING"
        assert status() == "SERVING"


def test_a_watch_of_nobody_by_node(crew: Crew) -> None:
    with watching(crew, "worker/nobody") as (_, status):
        assert status() == "SERVICE_UNKNOWN"


def test_check_by_grpcurl(crew: Crew, described: Path) -> None:
    asked = ("-protoset", str(described), "-d", '{"service": "worker/a"}')
    ran = curl(crew, *asked, "grpc.health.v1.Health/Check")
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {"status": "SERVING"}
    asked = ("-protoset", str(described), "-d", '{"service": "worker/nobody"}')
    ran = curl(crew, *asked, "grpc.health.v1.Health/Check")
    assert "NotFound" in ran.stderr
    assert "known are '', 'ready' and 'worker/NAME'" in ran.stderr


def test_the_health_listener_shows_nothing_else_to_grpcurl(crew: Crew, described: Path) -> None:
    """No reflection, no commands, no agents."""
    ran = curl(crew, "list")
    assert ran.returncode != 0
    assert "does not support the reflection API" in ran.stderr
    for method in (
        "stepwarden.v1.SupervisorService/ListWorkers",
        "stepwarden.v1.SupervisorService/StopWorker",
        "stepwarden.v1.AgentService/Attach",
    ):
        ran = curl(crew, "-protoset", str(described), "-d", "{}", method)
        assert "Unimplemented" in ran.stderr, ran.stderr


def test_o_hlth_2_node_is_told_of_the_end_and_its_stream_ended() -> None:
    with Crew({"a": stub()}) as crew:
        crew.ready()
        with watching(crew, "") as (client, status):
            assert status() == "SERVING"
            crew.stop()
            assert (status(), status()) == ("NOT_SERVING", "OK")
            assert client.wait(LIMIT) == 0
