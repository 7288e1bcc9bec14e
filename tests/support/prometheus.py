"""A real Prometheus and its tool, for tests of what is shipped for them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pytest

from support.daemon import free_port
from support.waiting import wait_for

NEEDED = "STEPWARDEN_TEST_TOOLS"
"""Set where a missing tool is an error: in CI, which installs them."""


def tool(name: str) -> str:
    """The path of a program of Prometheus; the test is skipped where it is not installed."""
    found = shutil.which(name)
    if found is None:
        assert NEEDED not in os.environ, f"{name} is not installed"
        pytest.skip(f"{name} is not installed (Debian: apt install prometheus)")
    return found


def promtool(*words: str, said: str = "") -> str:
    """What promtool says of something; fails where it is not content. `said`: its input."""
    done = subprocess.run(
        [tool("promtool"), *words],
        input=said,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


class Prometheus:
    """One that scrapes `target` each second as the job `stepwarden`, with `rules`."""

    def __init__(self, directory: Path, target: str, rules: Path) -> None:
        self._program = tool("prometheus")
        self._directory = directory
        self._address = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {"job_name": "stepwarden", "static_configs": [{"targets": [target]}]}
            ],
        }
        self._config = directory / "prometheus.yaml"
        self._config.write_text(json.dumps(config), encoding="utf-8")

    def __enter__(self) -> Self:
        with (self._directory / "prometheus.log").open("wb") as log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    f"--config.file={self._config}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process is not None
        if kind is not None:
            print((self._directory / "prometheus.log").read_text(errors="replace")[-3000:])
        self._process.kill()
        self._process.wait(10)

    def query(self, expression: str) -> list[Mapping[str, Any]]:
        """What an expression gives now; each with `metric` and `value`."""
        words = urllib.parse.urlencode({"query": expression})
        return list(self._ask(f"query?{words}")["result"])

    def firing(self) -> set[tuple[str, str]]:
        """Name and worker of each alert that fires now."""
        alerts = self._ask("alerts")["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("worker", ""))
            for alert in alerts
            if alert["state"] == "firing"
        }

    def wait_for_data(self, expression: str, limit: float = 60.0) -> list[Mapping[str, Any]]:
        """The answer as soon as there is one."""
        found: list[Mapping[str, Any]] = []

        def answered() -> bool:
            found[:] = self.query(expression)
            return bool(found)

        wait_for(answered, limit, f"data for {expression}", every=0.3)
        return found

    def wait_until_it_answers(self) -> None:
        """It has started and scraped at least once."""
        wait_for(self._has_scraped, 60.0, "Prometheus has scraped", every=0.2)

    def _has_scraped(self) -> bool:
        try:
            return bool(self.query('up{job="stepwarden"} == 1'))
        except OSError:
            return False

    def _ask(self, path: str) -> Any:
        url = f"http://{self._address}/api/v1/{path}"
        with urllib.request.urlopen(url, timeout=20.0) as answer:
            return json.load(answer)["data"]
