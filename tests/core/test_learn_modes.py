"""What learned numbers do: nothing, only tell, or judge; always within the frame of the YAML."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.awareness import Awareness
from stepwarden.core.budget import Formula
from stepwarden.core.clocks import BY_YAML, LEARNED
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import Step
from stepwarden.core.learned import bounds
from stepwarden.core.policy import (
    LEARN_OBSERVE,
    LEARN_OFF,
    LEARN_ON,
    HardCaps,
    RestartPolicy,
    WorkerPolicy,
)
from stepwarden.core.shadows import shadow_subjects
from stepwarden.core.starved import Starved
from stepwarden.core.step_bounds import bounds_of, configured, frame_of, size_of_step
from stepwarden.core.turn import clocks_of
from stepwarden.core.usual import Usual
from support.fake_world import LATEST, World, attach_at

POLICY = WorkerPolicy(
    "w",
    step=Formula(300.0, 1.0),
    first_step=0.0,
    window=30.0,
    restart=RestartPolicy(delay=1.0, jitter=0.0),
)
BATCH = 8
WARM = 9
"""Steps before the one that is looked at: it is not young."""


def taught(seconds: float) -> Usual:
    usual = Usual()
    for _ in range(50):
        usual = usual.learn(BATCH, seconds)
    return usual


def world_that_hangs(
    learn: str, seconds: float = 20.0, percent: float = 0.0, usual: float = 1.0
) -> World:
    """Short steps of 1 s as usual, then at 20 s one that takes so long."""
    world = World(replace(POLICY, learn=learn), attach_at(0.1, usual=taught(usual)))
    world.at(0.2, lambda: world.rank().use_cpu(percent))
    for second in range(1, 1 + WARM):
        world.step(float(second), 0.5, BATCH)
    world.step(20.0, seconds, BATCH)
    return world


def only(world: World, kind: Kind) -> Event:
    (event,) = world.events(kind)
    return event


def test_on_a_hang_is_found_by_what_is_usual_and_not_by_the_budget() -> None:
    world = world_that_hangs(LEARN_ON, 10_000.0)
    world.run(100.0)
    (unhealthy,) = world.when("UNHEALTHY")
    (dead,) = world.when("DEAD")
    assert 30.0 <= unhealthy <= 30.0 + LATEST
    assert 60.0 <= dead <= 60.0 + LATEST
    died = next(event for _, event in world.history if event.to_state == "DEAD")
    assert died.data["rule"] == LEARNED
    assert "5 * usual 1 s of 49 steps up to 8 tokens = 5 s, held at 10 s" in died.sentence
    assert world.events(Kind.SHADOW_ALARM) == []


def test_on_a_rank_that_computes_has_twenty_times_the_usual_and_a_minute_at_least() -> None:
    world = world_that_hangs(LEARN_ON, 10_000.0, percent=100.0)
    world.run(200.0)
    assert [80.0 <= at <= 80.0 + LATEST for at in world.when("DEAD")] == [True]


def test_on_the_first_window_reaches_to_the_idle_death() -> None:
    world = world_that_hangs(LEARN_ON, 10_000.0, usual=10.0)
    world.run(300.0)
    (unhealthy,) = world.when("UNHEALTHY")
    (dead,) = world.when("DEAD")
    assert 70.0 <= unhealthy <= 70.0 + LATEST
    assert 120.0 <= dead <= 120.0 + LATEST
    late = next(event for _, event in world.history if event.to_state == "UNHEALTHY")
    assert "watching its CPU for 50.0 s before judging" in late.sentence


def test_on_a_slow_step_is_a_false_alarm_and_tells_its_rule() -> None:
    world = world_that_hangs(LEARN_ON, 15.0)
    world.run(100.0)
    assert world.when("DEAD") == []
    alarm = only(world, Kind.FALSE_ALARM)
    assert (alarm.data["rule"], alarm.data["budget"]) == (LEARNED, 10.0)


def test_observe_tells_what_would_have_been_and_changes_nothing() -> None:
    world = world_that_hangs(LEARN_OBSERVE, 10_000.0)
    world.run(700.0)
    without = world_that_hangs(LEARN_OFF, 10_000.0)
    without.run(700.0)
    assert world.transitions() == without.transitions()
    assert [328.0 <= at <= 328.0 + LATEST for at in world.when("UNHEALTHY")] == [True]
    alarm, death = only(world, Kind.SHADOW_ALARM), only(world, Kind.SHADOW_DEATH)
    assert (alarm.rank, alarm.cause) == ("0", "step")
    assert (alarm.data["rule"], alarm.data["yaml"]) == (LEARNED, "quiet")
    assert (alarm.data["budget"], alarm.data["yaml_budget"]) == (10.0, 308.0)
    assert 10.0 <= float(alarm.data["seconds"] or 0) <= 11.0 + LATEST
    assert (death.data["how"], death.data["yaml"]) == ("idle", "quiet")
    assert 40.0 <= float(death.data["seconds"] or 0) <= 41.0 + LATEST
    late = next(event for _, event in world.history if event.to_state == "UNHEALTHY")
    assert late.data["rule"] == BY_YAML


def test_observe_a_shadow_alarm_that_was_none_is_told_with_its_length() -> None:
    world = world_that_hangs(LEARN_OBSERVE, 15.0)
    world.run(100.0)
    cleared = only(world, Kind.SHADOW_CLEARED)
    assert cleared.data["seconds"] == pytest.approx(15.0)
    assert cleared.data["over"] == pytest.approx(5.0)
    assert cleared.data["died"] == 0
    assert cleared.sentence.endswith("it was no hang")
    assert world.events(Kind.SHADOW_DEATH) == []
    assert world.state.shadows == ()


def test_observe_a_shadow_death_that_was_wrong_is_told() -> None:
    world = world_that_hangs(LEARN_OBSERVE, 70.0)
    world.run(150.0)
    assert only(world, Kind.SHADOW_CLEARED).data["died"] == 1
    assert len(world.events(Kind.SHADOW_DEATH)) == 1
    assert world.transitions()[-1][1] == "HEALTHY"


def test_observe_a_busy_rank_is_called_dead_at_the_hard_cap_alone() -> None:
    world = world_that_hangs(LEARN_OBSERVE, 200.0, percent=100.0)
    world.run(250.0)
    death = only(world, Kind.SHADOW_DEATH)
    assert death.data["how"] == "busy"
    assert 60.0 <= float(death.data["seconds"] or 0) <= 61.0 + LATEST


def test_observe_a_death_takes_its_shadows_with_it() -> None:
    world = world_that_hangs(LEARN_OBSERVE, 10_000.0)
    world.exit(40.0, code=1)
    world.run(45.0)
    assert world.when("DEAD")
    assert world.state.shadows == ()
    assert world.events(Kind.SHADOW_CLEARED) == []


def test_off_and_without_anything_learned_nothing_is_told() -> None:
    for world in (
        world_that_hangs(LEARN_OFF, 100.0),
        World(POLICY, attach_at(0.1, usual=Usual())),
    ):
        world.step(20.0, 100.0, BATCH)
        world.run(150.0)
        told = {event.kind for _, event in world.history}
        assert told.isdisjoint({Kind.SHADOW_ALARM, Kind.SHADOW_DEATH, Kind.SHADOW_CLEARED})


def test_on_a_young_life_has_what_the_yaml_says() -> None:
    world = World(replace(POLICY, learn=LEARN_ON), attach_at(0.1, usual=taught(1.0)))
    world.step(5.0, 10_000.0, BATCH)
    world.run(400.0)
    assert [313.0 <= at <= 313.0 + LATEST for at in world.when("UNHEALTHY")] == [True]


def test_a_reload_to_on_leaves_the_open_step_what_it_began_with() -> None:
    from stepwarden.core.reconfigured import judged_anew

    world = world_that_hangs(LEARN_OBSERVE, 10_000.0)

    def reload() -> None:
        before, world.policy = world.policy, replace(world.policy, learn=LEARN_ON)
        world.state = judged_anew(world.state, before, world.policy, world.clock.now).state

    world.at(25.0, reload)
    world.run(340.0)
    assert [328.0 <= at <= 328.0 + LATEST for at in world.when("UNHEALTHY")] == [True]


@pytest.mark.parametrize(
    ("seqs", "tokens", "size"),
    [(4, 64, 64), (4, None, 4), (None, None, 256), (0, 0, 256), (-1, -1, 256), (4, 0, 4)],
)
def test_a_step_is_compared_by_its_tokens(seqs: int | None, tokens: int | None, size: int) -> None:
    assert size_of_step(POLICY, seqs, tokens) == size


@given(
    st.floats(1e-3, 1e4),
    st.integers(1, 20),
    st.integers(1, 1 << 18),
    st.floats(0.1, 100.0),
    st.one_of(st.none(), st.floats(1.0, 4000.0)),
)
def test_nothing_learned_leaves_the_frame_of_the_yaml(
    seconds: float, number: int, tokens: int, floor: float, cap: float | None
) -> None:
    policy = replace(POLICY, learn_floor=floor, hard_caps=HardCaps(step=cap))
    step = Step(number, 0.0, BATCH, tokens)
    found, yaml = bounds_of(policy, taught(seconds), step), configured(policy, step)
    ceiling = policy.step.maximum
    assert floor <= found.alarm <= ceiling
    assert found.idle_death >= found.alarm + policy.window
    assert found.idle_death <= found.busy_death
    assert found.busy_death <= max(ceiling, found.alarm + policy.window, yaml.busy_death)
    if cap is not None and number > 5:
        own = bounds(taught(seconds), tokens, frame_of(policy), yaml, lived=number)
        young = taught(seconds).guess(tokens)
        assert young is not None
        if young.steps >= 3:
            assert own.busy_death <= max(cap, own.alarm + policy.window)
    if number <= 5:
        assert found.alarm >= yaml.alarm
        assert found.busy_death >= yaml.busy_death


@pytest.mark.parametrize(("lost", "late"), [(0.0, {"0"}), (5.0, set())])
def test_observe_allows_for_starved_time_as_the_rule_in_force_would(
    lost: float, late: set[str]
) -> None:
    world = world_that_hangs(LEARN_OBSERVE, 10_000.0)
    world.run(31.0)  # of a step that began at 20 s and should have ended by 30 s
    now = world.clock.now
    starved = Starved().noted(now - 10.0, now, lost)
    evidence = replace(world.life.evidence(), starved=starved)
    clocks = clocks_of(world.state, world.policy, evidence, Awareness(), now)
    assert shadow_subjects(world.policy, evidence, clocks, now) == late
