"""docs/metrics.md is what the table gives."""

from __future__ import annotations

from stepwarden.edge.metrics_reference import markdown
from stepwarden.edge.metrics_table import METRICS
from support.dashboard import ROOT


def test_the_page_is_made_from_the_table() -> None:
    assert (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8") == markdown()


def test_names_are_there_once_and_help_is_a_sentence() -> None:
    names = [metric.name for metric in METRICS]
    assert len(set(names)) == len(names)
    assert [m.name for m in METRICS if not m.help.endswith(".") or "\n" in m.help] == []
