"""A blocked loop is told by the metrics themselves, and a scrape never asks the loop."""

from __future__ import annotations

import urllib.request

import pytest
from prometheus_client.parser import text_string_to_metric_families
from stepwarden.edge.health_table import STALE_AFTER_SECONDS
from support.crew import stub
from support.daemon import free_port
from support.faulty_crew import FaultyCrew
from support.waiting import wait_for


class Scraped:
    """The page of metrics of one daemon."""

    def __init__(self, port: int) -> None:
        self._url = f"http://127.0.0.1:{port}/metrics"

    def value(self, name: str, **labels: str) -> float:
        """One sample as it is now; one that is not there is -1."""
        with urllib.request.urlopen(self._url, timeout=20.0) as answer:
            text = answer.read().decode()
        samples = (s for family in text_string_to_metric_families(text) for s in family.samples)
        found = {(s.name, tuple(sorted(s.labels.items()))): s.value for s in samples}
        return found.get((f"stepwarden_{name}", tuple(sorted(labels.items()))), -1.0)


@pytest.mark.timeout(120)
def test_o_hlth_3_a_scrape_of_a_blocked_loop_answers_and_says_how_old_it_is() -> None:
    port = free_port()
    metrics = f'  metrics: {{listen: "127.0.0.1:{port}"}}\n'
    with FaultyCrew({"a": stub("attach; step 5")}, supervisor=metrics) as crew:
        crew.ready()
        scraped = Scraped(port)
        wait_for(lambda: scraped.value("worker_state", worker="a", state="HEALTHY") == 1.0)
        crew.fault("block")
        age = "supervisor_loop_age_seconds"
        wait_for(lambda: scraped.value(age) > STALE_AFTER_SECONDS, what="the loop's age rises")
        assert scraped.value("worker_state", worker="a", state="HEALTHY") == 1.0, "as it was left"
        crew.mend()
        wait_for(lambda: scraped.value("supervisor_paused_seconds_total") > 1.0)
        assert scraped.value(age) < STALE_AFTER_SECONDS
        assert scraped.value("worker_deaths_total", worker="a", cause="heartbeat") == 0.0
