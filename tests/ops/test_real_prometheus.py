"""A real Prometheus scrapes a real daemon: a worker dies, the alert fires, every panel has data."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.crew import Crew
from support.daemon import free_port
from support.dashboard import RULES, dashboard, expressions, filled, panels
from support.prometheus import Prometheus, promtool
from support.stub_control import STUB_COMMAND
from support.waiting import wait_for


def workers() -> dict[str, dict[str, Any]]:
    """`works` has false alarms, long steps and short ones; `dies` is there to be killed twice."""
    return {
        "dies": {
            "backend": "cpu",
            "command": STUB_COMMAND,
            "restart": {"delay": "0.1s", "limit": 2},
            "env": {"STUB_SCRIPT": "attach; steps 0.9"},
        },
        "works": {
            "backend": "cpu",
            "command": STUB_COMMAND,
            "step": {"base": "1s", "per_seq": "1ms"},
            "startup": {"first_step": "1s"},
            "retry": {"window": "20s"},
            "env": {"STUB_SCRIPT": "attach; step 50 8; steps 0.1 2 2 0.9"},
        },
    }


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def crew(port: int) -> Iterator[Crew]:
    metrics = f'  metrics: {{listen: "127.0.0.1:{port}"}}\n'
    with Crew(workers(), supervisor=metrics) as crew:
        yield crew


def page(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20.0) as answer:
        return str(answer.read().decode())


def test_the_page_of_a_real_daemon_is_as_prometheus_wants_it(crew: Crew, port: int) -> None:
    crew.ready()
    wait_for(lambda: 'stepwarden_rank_steps_total{worker="works",rank="0"}' in page(port))
    assert promtool("check", "metrics", said=page(port)).strip() == ""


@pytest.mark.timeout(240)
def test_an_alert_fires_when_a_worker_dies_and_every_panel_has_data(
    crew: Crew, port: int, tmp_path: Path
) -> None:
    with Prometheus(tmp_path, f"127.0.0.1:{port}", RULES) as prometheus:
        prometheus.wait_until_it_answers()
        crew.ready()
        # The first scrape of a series is where an increase begins.
        prometheus.wait_for_data('stepwarden_worker_deaths_total{worker="dies"} == 0')
        prometheus.wait_for_data('stepwarden_worker_false_alarms_total{worker="works"} > 0')
        assert ("StepwardenWorkerDied", "dies") not in prometheus.firing()
        crew.stub("dies").tell("exit 3")
        wait_for(lambda: ("StepwardenWorkerDied", "dies") in prometheus.firing(), 60.0, every=0.3)
        crew.wait_status("dies", lambda seen: seen.incarnation == "2", "alive again")
        wait_for(lambda: crew.wait_state("dies", "HEALTHY"))
        without = {
            panel["title"]: expression
            for panel in panels()
            for expression in expressions(panel)
            if not prometheus.wait_for_data(expression)
        }
        assert without == {}
        crew.stub("dies").tell("exit 4")
        crew.wait_state("dies", "FAILED")
        wait_for(lambda: ("StepwardenWorkerFailed", "dies") in prometheus.firing(), 60.0, every=0.3)
        deaths = filled(dashboard()["annotations"]["list"][0]["expr"])
        assert prometheus.wait_for_data(deaths)
        assert ("StepwardenDown", "") not in prometheus.firing()
        assert ("StepwardenLoopStale", "") not in prometheus.firing()
