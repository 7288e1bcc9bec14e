"""A rank that drains, O-PROC-6: its steps are not judged meanwhile, and not for ever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core import turn
from stepwarden.core.awareness import Awareness
from stepwarden.core.budget import Rows
from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.commands import command
from stepwarden.core.event import Kind
from stepwarden.core.evidence import ProcessId, RankEvidence, Step, Work, WorkerEvidence
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.worker import WorkerState
from support.fake_world import World, attach_at

POLICY = WorkerPolicy(
    "w",
    step=Rows(((8, 2.0),), maximum=10.0),
    first_step=0.0,
    heartbeat_timeout=30.0,
    window=5.0,
    drain=55.0,
)
NOW = 1000.0
READY = WorkerState("w", State.HEALTHY, ready_at=900.0, spawned_at=900.0, incarnation=1)
CAP = POLICY.step_cap(2.0)


def clocks(
    rank: RankEvidence, now: float = NOW, awareness: Awareness | None = None
) -> dict[Cause, RunningClock]:
    seen = WorkerEvidence({"0": rank}, ProcessId(7, 7))
    return {
        clock.cause: clock
        for clock in turn.clocks_of(READY, POLICY, seen, awareness or Awareness(), now)
    }


def draining(since: float | None = NOW, *steps: Step, work: Work | None = None) -> RankEvidence:
    return RankEvidence(
        900.0,
        phase="draining",
        phase_since=since,
        beat_at=NOW,
        page_readable=True,
        steps=steps,
        work=work,
    )


def test_o_proc_6_a_step_of_one_that_drains_has_that_much_longer() -> None:
    clock = clocks(draining(NOW, Step(3, NOW - 1.0, 8)))[Cause.STEP]
    assert clock.deadline.at == NOW - 1.0 + 2.0 + 55.0
    assert clock.cap_at == NOW - 1.0 + CAP + 55.0
    late = clocks(draining(NOW, Step(3, NOW + 50.0, 8)), NOW + 50.0)[Cause.STEP]
    assert late.deadline.at == NOW + 50.0 + 2.0 + 5.0, "only what is left of the drain budget"
    after = clocks(draining(NOW, Step(3, NOW + 60.0, 8)), NOW + 60.0)[Cause.STEP]
    assert after.deadline.at == NOW + 62.0


def test_draining_has_a_budget_of_its_own_from_where_it_began() -> None:
    clock = clocks(draining(NOW))[Cause.DRAIN]
    assert (clock.began, clock.deadline.at) == (NOW, NOW + 55.0)
    unknown = clocks(draining(None))[Cause.DRAIN]
    assert unknown.began == 900.0, "from its attach, where nobody says since when"


def test_requests_that_wait_are_no_hang_of_one_that_drains() -> None:
    waiting = Work(3, NOW - 500.0, 1, NOW)
    assert Cause.SCHEDULER not in clocks(draining(NOW, work=waiting))


def test_time_in_which_we_stood_still_is_no_time_of_the_drain() -> None:
    awareness = Awareness().woke(NOW + 10.0, NOW + 40.0)
    clock = clocks(draining(NOW), NOW + 50.0, awareness)[Cause.DRAIN]
    assert clock.deadline.at == NOW + 85.0


@given(st.floats(-100.0, 100.0), st.lists(st.floats(0.0, 500.0), max_size=8))
def test_drains_that_are_declared_again_and_again_mute_no_deadline(
    begin: float, drains: list[float]
) -> None:
    """However often it says so, one step has the drain budget once on top of its own."""
    for since in drains:
        clock = clocks(draining(NOW + since, Step(3, NOW + begin, 8)))[Cause.STEP]
        assert clock.deadline.at is not None
        assert clock.deadline.at <= NOW + begin + 2.0 + POLICY.drain + 1e-6
        assert clock.cap_at <= NOW + begin + CAP + POLICY.drain + 1e-6


def drains(world: World, at: float, seconds: float, *, exits: bool = True) -> None:
    """Its last step takes as long as the drain; then it ends."""
    world.at(at, lambda: setattr(world.rank(), "phase", "draining"))
    world.at(at, lambda: setattr(world.rank(), "attached_at", world.clock.now))
    world.step(at, seconds, 8)
    if exits:
        world.exit(at + seconds, code=0)


def test_o_proc_6_a_drain_of_55_seconds_is_no_hang() -> None:
    world = World(POLICY, attach_at(0.0))
    drains(world, 10.0, 54.0)
    world.run(64.5)
    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY", "DEAD", "RESTARTING"]
    assert world.transitions()[2][2] == "exit"
    assert not world.events(Kind.FALSE_ALARM)


def test_a_drain_that_never_ends_is_a_hang_with_a_cause_of_its_own() -> None:
    world = World(POLICY, attach_at(0.0))
    drains(world, 10.0, 1e9, exits=False)
    world.run(200.0)
    ((at, _, cause),) = [move for move in world.transitions() if move[1] == "UNHEALTHY"][:1]
    assert (at, cause) == (65.0, "drain")
    assert world.when("DEAD")[0] >= 70.0


@pytest.mark.parametrize("cause", ["step", "heartbeat", "drain"])
def test_o_proc_6_nothing_is_judged_while_it_is_stopped(cause: str) -> None:
    world = World(POLICY, attach_at(0.0))
    world.bury_seconds = 300.0
    if cause == "drain":
        world.at(5.0, lambda: setattr(world.rank(), "phase", "draining"))
    elif cause == "step":
        world.step(5.0, 1e9, 8)
    else:
        world.at(5.0, lambda: world.rank().fall_silent())
    world.command(6.0, "stop")
    world.run(400.0)
    assert [to for _, to, _ in world.transitions()][-2:] == ["STOPPING", "STOPPED"]
    assert not world.when("DEAD")
    assert not world.when("UNHEALTHY")


def test_o_proc_6_its_end_while_it_is_stopped_is_no_death() -> None:
    stopping = command(READY, "stop", NOW).state
    gone = WorkerEvidence({"0": draining()}, ProcessId(7, 7), spawn_error="late")
    assert turn.advance(stopping, POLICY, gone, Awareness(), NOW + 1).state == stopping
