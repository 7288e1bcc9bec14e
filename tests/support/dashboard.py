"""What is shipped for Prometheus and Grafana, as data."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from stepwarden.edge.metrics_table import HISTOGRAM, METRICS

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "config" / "prometheus" / "stepwarden.rules.yaml"
DASHBOARD = ROOT / "config" / "grafana" / "stepwarden.json"
RUNBOOK = ROOT / "docs" / "runbook.md"

# What Grafana puts in for its variables.
VARIABLES = {"$job": ".*", "$instance": ".*", "$worker": ".*", "$__rate_interval": "20s"}
OF_THE_PROCESS = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_open_fds",
}


def alerts() -> list[dict[str, Any]]:
    """Every alert rule."""
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    """The dashboard."""
    found: dict[str, Any] = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    return found


def panels() -> list[dict[str, Any]]:
    """Every panel that shows something."""
    return [panel for panel in dashboard()["panels"] if panel["type"] != "row"]


def expressions(panel: dict[str, Any]) -> Iterator[str]:
    """What a panel asks, with the variables put in."""
    for target in panel["targets"]:
        yield filled(target["expr"])


def filled(expression: str) -> str:
    """An expression as Grafana sends it."""
    for name, value in VARIABLES.items():
        expression = expression.replace(name, value)
    return expression


def unknown_metrics(expression: str) -> set[str]:
    """Names in an expression that look like ours, or like the process's, and are not served."""
    known = set(OF_THE_PROCESS)
    for metric in METRICS:
        parts = ("_bucket", "_sum", "_count") if metric.kind == HISTOGRAM else ("",)
        known |= {metric.name + part for part in parts}
    return set(re.findall(r"\b(?:stepwarden|process)_[a-z_]+\b", expression)) - known
