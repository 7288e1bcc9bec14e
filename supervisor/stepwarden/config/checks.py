"""What is allowed and yet hardly meant: warnings about one worker."""

from __future__ import annotations

from collections.abc import Mapping

from stepwarden.config.findings import Findings
from stepwarden.config.settings import WorkerConfig


def check_worker(worker: WorkerConfig, findings: Findings, environment: Mapping[str, str]) -> None:
    """Say everything that looks wrong about one worker that can be used."""
