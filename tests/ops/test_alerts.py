"""The alert rules: good rules, with tests of their own, and a page of the runbook for each."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.dashboard import RULES, RUNBOOK, alerts, unknown_metrics
from support.prometheus import promtool

HERE = Path(__file__).resolve().parent
UNIT_TESTS = HERE / "alerts.test.yaml"
SECTION = re.compile(r"^### Alert: (\w+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
NAMES = [rule["alert"] for rule in alerts()]


def test_prometheus_takes_the_rules() -> None:
    assert f"{len(NAMES)} rules found" in promtool("check", "rules", str(RULES))


def test_the_rules_do_what_they_should() -> None:
    assert "SUCCESS" in promtool("test", "rules", str(UNIT_TESTS))


def test_every_alert_is_seen_to_fire_and_to_be_silent() -> None:
    tests = yaml.safe_load(UNIT_TESTS.read_text(encoding="utf-8"))["tests"]
    cases = [case for test in tests for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == set(NAMES)
    silent = {case["alertname"] for case in cases if not case.get("exp_alerts")}
    assert silent == set(NAMES)


@pytest.mark.parametrize("rule", alerts(), ids=NAMES)
def test_an_alert_says_what_an_operator_needs(rule: dict[str, Any]) -> None:
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    notes = rule["annotations"]
    assert set(notes) == {"summary", "description", "runbook"}
    assert "{{ $labels.instance }}" in notes["summary"]
    assert notes["runbook"] == f"docs/runbook.md#alert-{rule['alert'].lower()}"
    assert unknown_metrics(rule["expr"]) == set()


def test_the_runbook_has_a_section_for_each_alert_and_for_no_other() -> None:
    sections = dict(SECTION.findall(RUNBOOK.read_text(encoding="utf-8")))
    assert list(sections) == NAMES
    for name, text in sections.items():
        for part in ("- **Meaning:** ", "- **First look:** ", "- **Action:** "):
            assert text.count(part) == 1, (name, part)
