"""A lost handle: one step stays open while later ones end. The rule stays; the operator is told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stepwarden.core.budget import Formula
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import EndedStep, RankEvidence, Step
from stepwarden.core.policy import HardCaps, WorkerPolicy
from support.fake_world import World, attach_at

POLICY = WorkerPolicy(
    "w", step=Formula(8.0, 0.0), first_step=8.0, window=3.0, hard_caps=HardCaps(step=20.0)
)


def world_that_lost(lost_at: float, *, page: bool = True) -> World:
    """Steps of 0.4 s each second, all of them ended but the one that begins at `lost_at`."""
    world = World(POLICY, attach_at(0.1, page=page))
    world.at(0.2, lambda: world.rank().use_cpu(100.0))
    world.at(lost_at, lambda: world.rank().begin(4))
    for second in range(1, 40):
        world.step(second + 0.5, 0.4, 4)
    return world


def told(world: World) -> list[tuple[float, Event]]:
    return [(at, event) for at, event in world.history if event.kind is Kind.LEFT_OPEN]


@pytest.mark.parametrize("page", [True, False])
def test_a_lost_step_is_told_once_at_half_its_budget_and_named_in_the_verdict(page: bool) -> None:
    world = world_that_lost(3.0, page=page)
    world.run(24.0)
    ((at, event),) = [pair for pair in told(world) if pair[1].incarnation == "1"]
    assert 7.0 <= at <= 8.0
    assert (event.rank, event.data["step"]) == ("0", 3)
    assert event.data["later_ended"] == 4
    assert "while 4 later steps ended (was its own end never reported?)" in event.sentence
    assert "judged by it in" in event.sentence
    (unhealthy,) = [e for e in world.events(Kind.TRANSITION) if e.to_state == "UNHEALTHY"]
    assert unhealthy.data["later_ended"] == 8
    assert "while 8 later steps ended" in unhealthy.sentence
    assert "budget 8 s" in unhealthy.sentence
    # The oldest open step has the deadline, however many later ones end.
    (dead,) = [e for e in world.events(Kind.TRANSITION) if e.to_state == "DEAD"]
    assert dead.data["later_ended"] == 20
    assert "while 20 later steps ended (was its own end never reported?)" in dead.sentence


def test_steps_that_overlap_and_one_that_hangs_alone_are_not_told() -> None:
    world = World(POLICY, attach_at(0.1))
    for tenth in range(10, 80, 5):
        world.step(tenth / 10, 0.9, 4)  # two at a time, in order
    world.step(9.0, 3.0, 4)  # out of order: a short one begins later and ends before
    world.step(9.5, 0.5, 4)
    world.step(13.0, 60.0, 4)  # a hang, and nothing after it
    world.run(35.0)
    assert told(world) == []
    (dead,) = [e for e in world.events(Kind.TRANSITION) if e.to_state == "DEAD"]
    assert dead.data["later_ended"] == 0
    assert "later" not in dead.sentence


OPEN = RankEvidence(attached_at=0.0, steps=(Step(5, 1.0), Step(9, 2.0)))


@pytest.mark.parametrize(
    ("evidence", "count"),
    [
        (replace(OPEN, steps_begun=9, steps_ended=4), 0),
        (replace(OPEN, steps_begun=9, steps_ended=7), 3),
        (replace(OPEN, steps_ended=0, last_ended=(EndedStep(4, None), EndedStep(8, 0.1))), 1),
        (replace(OPEN, steps_ended=1), 0),
        (replace(OPEN, steps=(), steps_ended=9), 0),
    ],
)
def test_how_many_later_steps_have_ended(evidence: RankEvidence, count: int) -> None:
    assert evidence.later_ended == count
