"""What is counted of a group."""

from __future__ import annotations

from pathlib import Path

from stepwarden.config import load
from stepwarden.core.burying import buried
from stepwarden.core.event import Event, Kind
from stepwarden.core.groups import GroupPolicy
from stepwarden.core.lifecycle import State
from stepwarden.core.worker import Outcome, WorkerState
from stepwarden.daemon.grouping import Groups
from stepwarden.daemon.unit import Unit

NOW = 500.0


def died(unit: Unit) -> Outcome:
    event = Event(Kind.TRANSITION, "", unit.config.name, to_state=State.DEAD.value)
    return Outcome(unit.state, events=[event])


def test_the_deaths_of_all_members_are_counted_and_told(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    worker = "{command: [a], agent: none}"
    file.write_text(f"workers: {{a: {worker}, b: {worker}, alone: {worker}}}\n")
    units = {
        name: Unit(config, WorkerState(name, State.DEAD))
        for name, config in load(file).workers.items()
    }
    known = Groups(units, [GroupPolicy("pair", ("a", "b"))])
    for name in ("a", "b", "a", "alone"):
        known.follow(units[name], died(units[name]), NOW)
    assert [known.used(name, NOW) for name in units] == [3, 3, None]
    assert [known.name_of(name) for name in units] == ["pair", "pair", ""]
    unit = units["b"]
    then = buried(unit.state, unit.policy, frozenset(), NOW, 0.0, group=known.ledger("b"))
    assert "3 of 5 deaths used" in then.state.sentence
    restart = unit.policy.restart
    assert then.state.restart_at.at == NOW + restart.delay * restart.factor**2
