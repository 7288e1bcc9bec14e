"""A company's proxy variables stand in nobody's way; names of the health service."""

from __future__ import annotations

import grpc
import psutil
import pytest
from stepwarden_proto.channel import CLIENT_OPTIONS
from support.crew import SERVING_STATUS, Crew, check, health_stub, shell, stub, watch
from support.daemon import free_port
from support.stub_control import STUB_COMMAND

pytestmark = pytest.mark.timeout(120)

PROXY = "http://127.0.0.1:9"
VARIABLES = ("http_proxy", "https_proxy", "HTTP_PROXY")


def test_o_grpc_2_proxy_variables_stand_in_nobodys_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """Agents on a unix socket, on 127.0.0.1 and on localhost; the command line; the workers
    themselves still have the variables."""
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    port = free_port()
    line = " ".join(STUB_COMMAND)
    workers = {"uds": stub()}
    for name, host in {"ip": "127.0.0.1", "name": "localhost"}.items():
        told = f"STEPWARDEN_TARGET={host}:{port} exec {line}"
        workers[name] = shell(told, agent="required", env={})
    listen = f'  agents: {{listen: ["127.0.0.1:{port}"]}}\n'
    proxies = dict.fromkeys(VARIABLES, PROXY)
    with Crew(workers, supervisor=listen, env=proxies) as crew:
        crew.ready()
        for name in workers:
            crew.wait_status(
                name, lambda w: w.ranks[0].HasField("beat_age_seconds"), "heard by a beat"
            )
            environ = psutil.Process(crew.status()[name].pid).environ()
            assert {environ.get(variable) for variable in VARIABLES} == {PROXY}
        assert crew.health("worker/uds") == "SERVING"
        said = crew.cli("status", "--config", str(crew.config))
        assert said.returncode == 0, said.stderr
        assert said.stdout.count("HEALTHY  -") == 3


def test_o_hlth_1_names_of_the_running_daemon() -> None:
    """'' and each worker are there; W9 is NOT_FOUND, and a Watch of it SERVICE_UNKNOWN. A crowd
    of watchers holds up neither the answers nor the beats."""
    with Crew({"W1": stub(), "W2": stub()}) as crew:
        crew.ready()
        crew.wait_status("W2", lambda w: w.state == "HEALTHY", "HEALTHY")
        options = [*CLIENT_OPTIONS, ("grpc.max_concurrent_streams", 2000)]
        with (
            health_stub(crew.health_address) as asked,
            grpc.insecure_channel(crew.health_address, options=options) as channel,
        ):
            assert check(asked, "") == "SERVING"
            for name, wanted in {
                "worker/W1": "SERVING",
                "ready": "SERVING",
                "worker/W9": "NOT_FOUND",
                "W9": "NOT_FOUND",
            }.items():
                assert crew.health(name) == wanted
            calls = [watch(channel, f"nobody-{number}") for number in range(300)]
            assert {SERVING_STATUS[next(call)[0]] for call in calls} == {"SERVICE_UNKNOWN"}
            assert check(asked, "") == "SERVING"
            crew.wait_status("W1", lambda w: w.ranks[0].beat_age_seconds < 1.0, "heard meanwhile")
            for call in calls:
                call.cancel()
            assert check(asked, "worker/W2") == "SERVING"
