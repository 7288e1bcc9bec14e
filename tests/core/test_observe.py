"""`mode: observe`: judged as ever, recorded, and never acted upon; deaths that are held up."""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core import turn
from stepwarden.core.budget import Rows
from stepwarden.core.burying import buried
from stepwarden.core.event import Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.governor import Held, Refusal
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import HardCaps, RestartPolicy, WorkerPolicy
from stepwarden.core.worker import Outcome
from support.fake_world import World, attach_at

POLICY = WorkerPolicy(
    "w1",
    step=Rows(((8, 2.0),)),
    first_step=0.0,
    heartbeat_timeout=3.0,
    window=3.0,
    hard_caps=HardCaps(step=20.0),
    restart=RestartPolicy(delay=1.0, jitter=0.0),
    observe=True,
)


def frozen(seconds: float, policy: WorkerPolicy = POLICY) -> World:
    world = World(policy, attach_at(0.1))
    world.step(1.0, 0.3, 8)
    world.step(5.0, seconds, 8)
    return world


def test_a_frozen_step_would_be_dead_once_and_nothing_is_done() -> None:
    world = frozen(500.0)
    world.run(100.0)
    (shadow,) = world.events(Kind.SHADOW_DEATH)
    assert shadow.data["rule"] == "observe"
    assert shadow.cause == "step"
    assert "would be DEAD" in shadow.sentence
    assert world.lifecycle == "UNHEALTHY"
    assert world.lives == 1
    assert world.when("DEAD") == []
    assert world.events(Kind.RETRY) == []


def test_what_would_have_been_killed_and_recovers_is_a_false_alarm_that_says_so() -> None:
    world = frozen(60.0)
    world.run(80.0)
    (alarm,) = world.events(Kind.FALSE_ALARM)
    assert alarm.data["would_be_dead"] == 1
    assert world.lifecycle == "HEALTHY"


def test_once_it_is_enforced_the_next_window_kills() -> None:
    world = frozen(500.0)
    world.run(50.0)
    world.policy = replace(POLICY, observe=False)
    world.run(54.0)
    assert len(world.when("DEAD")) == 1


def test_a_rank_that_ends_is_told_once_and_the_worker_goes_on() -> None:
    world = World(replace(POLICY, agent="optional"), attach_at(0.1))
    world.at(5.0, lambda: setattr(world.rank(), "lost", True), wakes=True)
    world.run(20.0)
    (shadow,) = world.events(Kind.SHADOW_DEATH)
    assert shadow.cause == "rank_exit"
    assert world.lives == 1
    assert world.when("DEAD") == []


def test_an_exit_restarts_when_nothing_is_left() -> None:
    world = World(POLICY, attach_at(0.1))
    world.exit(5.0, code=1)
    world.run(20.0)
    assert world.lives == 2
    dead = next(e for _, e in world.history if e.to_state == "DEAD")
    assert "left alone" in dead.sentence


def test_what_an_exit_leaves_behind_is_named_and_nothing_begins_beside_it() -> None:
    world = World(POLICY, attach_at(0.1))
    world.leftovers = frozenset({ProcessId(77, 1)})
    world.exit(5.0, code=1)
    world.run(20.0)
    assert world.lifecycle == "FAILED"
    assert "77 are left alone, for its mode is observe" in world.state.sentence
    gone = buried(world.state, POLICY, frozenset(), world.clock.now, 0.0)
    assert gone.state.lifecycle is State.RESTARTING


def test_an_operator_is_obeyed() -> None:
    world = frozen(500.0)
    world.command(40.0, "stop")
    world.run(45.0)
    assert world.lifecycle == "STOPPED"


def refused_turn(world: World, capped: list[bool], refuse: bool) -> Outcome:
    def leave(at_cap: bool, _now: float) -> Refusal | None:
        capped.append(at_cap)
        return Refusal(Held.FREEZE, "kills are frozen") if refuse else None

    evidence, now = world.life.evidence(), world.clock.now
    return turn.advance(world.state, world.policy, evidence, world.awareness, now, leave)


def test_a_refused_death_gets_a_further_window_with_the_reason() -> None:
    world = frozen(500.0, replace(POLICY, observe=False))
    world.run(9.9)  # late at 7.0, judged at 10.0
    world.clock.now += 0.2
    asked: list[bool] = []
    outcome = refused_turn(world, asked, refuse=True)
    assert asked == [False]
    assert outcome.state.lifecycle is State.UNHEALTHY
    assert outcome.actions == []
    (retry,) = outcome.events
    assert retry.kind is Kind.RETRY
    assert retry.data["held_up"] == "freeze"
    assert "its death is held up: kills are frozen; judged again in 3 s" in retry.sentence
    assert outcome.state.sentence == retry.sentence
    (suspicion,) = outcome.state.suspicions
    assert suspicion.window_ends == world.clock.now + 3.0
    assert suspicion.windows == 2


def test_past_the_hard_cap_a_refused_death_is_asked_for_once_a_window_not_in_each_turn() -> None:
    world = frozen(500.0, replace(POLICY, observe=False, hard_caps=HardCaps(step=5.0)))
    world.run(9.9)
    world.clock.now += 0.2
    asked: list[bool] = []
    world.state = refused_turn(world, asked, refuse=True).state
    world.clock.now += 1.0
    assert refused_turn(world, asked, refuse=True).events == []
    world.clock.now += 2.1
    outcome = refused_turn(world, asked, refuse=False)
    assert asked == [True, True]
    assert outcome.state.lifecycle is State.DEAD
