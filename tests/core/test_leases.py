"""A lease extends deadlines within a cap and mutes none; overrun, it is one like any other."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.awareness import Awareness
from stepwarden.core.budget import Formula
from stepwarden.core.clocks import Cause, Scene, running_clocks
from stepwarden.core.evidence import Lease, RankEvidence, Step, WorkerEvidence
from stepwarden.core.policy import HardCaps, RestartPolicy, WorkerPolicy
from support.fake_world import LATEST, World, attach_at

POLICY = WorkerPolicy(
    "w",
    step=Formula(4.0, 0.0),
    first_step=0.0,
    startup=60.0,
    heartbeat_timeout=5.0,
    window=3.0,
    lease_cap=20.0,
    hard_caps=HardCaps(step=30.0),
    restart=RestartPolicy(delay=1.0, jitter=0.0),
)
NAMES = ("load", "compile", "weight swap", "checkpoint")


def hold(world: World, name: str, seconds: float) -> None:
    world.rank().lease = Lease(name, world.clock.now, seconds)


@pytest.mark.parametrize("name", NAMES)
def test_an_overrun_lease_is_late_and_dies_when_it_does_not_work(name: str) -> None:
    world = World(POLICY, attach_at(0.1))
    world.at(5.0, lambda: hold(world, name, 8.0))
    world.run(60.0)
    late, dead = world.when("UNHEALTHY")[0], world.when("DEAD")[0]
    assert 13.0 <= late <= 13.0 + LATEST
    assert 16.0 <= dead <= 16.0 + LATEST
    told = next(event for _, event in world.history if event.to_state == "UNHEALTHY")
    assert told.cause == "lease"
    assert f"lease {name!r} 8 s" in told.sentence


def test_one_that_works_on_is_dead_at_its_hard_cap() -> None:
    world = World(POLICY, attach_at(0.1))
    world.at(1.0, lambda: world.rank().use_cpu(100.0))
    world.at(5.0, lambda: hold(world, "compile", 8.0))
    world.run(60.0)
    assert 35.0 <= world.when("DEAD")[0] <= 35.0 + LATEST


def test_an_overrun_lease_of_a_rank_that_starts_is_late_too() -> None:
    world = World(POLICY, attach_at(0.1, phase="loading"))
    world.at(1.0, lambda: hold(world, "load", 5.0))
    world.run(7.0)
    assert world.lifecycle == "UNHEALTHY"
    assert world.state.cause == "lease"


def test_given_back_in_time_it_leaves_nothing_behind() -> None:
    world = World(POLICY, attach_at(0.1))
    world.at(5.0, lambda: hold(world, "checkpoint", 8.0))
    world.at(12.0, lambda: setattr(world.rank(), "lease", None))
    world.run(60.0)
    assert world.when("UNHEALTHY") == []


def test_under_an_endless_lease_a_hung_step_is_late_after_budget_and_cap() -> None:
    world = World(POLICY, attach_at(0.1))
    world.at(2.0, lambda: hold(world, "weight swap", 1e9))
    world.step(2.0, 500.0, 8)
    world.run(80.0)
    assert world.when("UNHEALTHY")[0] <= 2.0 + 20.0 + 4.0 + LATEST  # the lease itself is sooner
    assert world.when("DEAD") != []


def test_under_an_endless_lease_silence_is_late_all_the_same() -> None:
    world = World(POLICY, attach_at(0.1))
    world.at(2.0, lambda: hold(world, "weight swap", 1e9))
    world.at(3.0, lambda: world.rank().fall_silent())
    world.run(80.0)
    assert world.when("DEAD")[0] <= 3.0 + 5.0 + 20.0 + 3.0 + LATEST


@given(
    spans=st.lists(st.tuples(st.floats(0.0, 50.0), st.floats(0.0, 1e9)), max_size=16),
    now=st.floats(0.0, 200.0),
)
def test_any_number_of_leases_pushes_a_step_by_the_cap_at_most(
    spans: list[tuple[float, float]], now: float
) -> None:
    leases = tuple(Lease("load", begin, length) for begin, length in sorted(spans))
    ended = tuple(replace(lease, end=lease.begin + 5.0) for lease in leases[:-1])
    rank = RankEvidence(
        0.0,
        steps=(Step(2, 0.0, 8),),
        page_readable=True,
        phase="decode",
        leases=(*ended, *leases[-1:]),
    )
    scene = Scene(
        POLICY, WorkerEvidence({"0": rank}), 0.0, True, frozenset({"0"}), Awareness(), now
    )
    step = next(clock for clock in running_clocks(scene) if clock.cause is Cause.STEP)
    assert step.deadline.at is not None
    assert 4.0 <= step.deadline.at <= 4.0 + POLICY.lease_cap
    assert 30.0 <= step.cap_at <= 30.0 + POLICY.lease_cap
