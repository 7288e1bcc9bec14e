"""The dashboard: every panel asks for what is there, in words that Prometheus takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.dashboard import dashboard, expressions, filled, panels, unknown_metrics
from support.prometheus import promtool

TITLES = [panel["title"] for panel in panels()]


@pytest.mark.parametrize("panel", panels(), ids=TITLES)
def test_a_panel_asks_for_what_is_served(panel: dict[str, Any]) -> None:
    for expression in expressions(panel):
        assert unknown_metrics(expression) == set()
        assert "$" not in expression
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}


def test_every_expression_can_be_read(tmp_path: Path) -> None:
    """promtool has no check for one expression: as recording rules they are all read."""
    asked = [expression for panel in panels() for expression in expressions(panel)]
    asked += [filled(each["expr"]) for each in dashboard()["annotations"]["list"]]
    rules = [{"record": f"x:{index}", "expr": each} for index, each in enumerate(asked)]
    file = tmp_path / "rules.yaml"
    file.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(asked)} rules found" in promtool("check", "rules", str(file))


def test_the_panels_lie_side_by_side() -> None:
    taken: dict[tuple[int, int], str] = {}
    for panel in dashboard()["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert (x, y) not in taken, (panel["title"], taken[x, y])
                taken[x, y] = panel["title"]
    ids = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(ids)) == len(ids)


def test_the_variables_are_those_of_the_expressions() -> None:
    names = [variable["name"] for variable in dashboard()["templating"]["list"]]
    assert names == ["datasource", "job", "instance", "worker"]
    for variable in dashboard()["templating"]["list"][1:]:
        assert unknown_metrics(variable["definition"]) == set()
