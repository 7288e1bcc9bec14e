"""Field cases O-START-1..3 with a fake clock: loading, first steps, and what a newborn inherits."""

from __future__ import annotations

import pytest
from stepwarden.core.budget import Rows
from stepwarden.core.event import Kind
from stepwarden.core.evidence import Step
from stepwarden.core.heartbeat import BeatFacts, RankBeats, accept
from stepwarden.core.policy import AGENT_OPTIONAL, HardCaps, RestartPolicy, WorkerPolicy
from support.fake_world import LATEST, World, attach_at


def policy(startup: float = 20.0, first_step: float = 0.0, limit: int = 5) -> WorkerPolicy:
    return WorkerPolicy(
        "w1",
        step=Rows(((8, 2.0),)),
        startup=startup,
        first_step=first_step,
        heartbeat_timeout=3.0,
        window=3.0,
        hard_caps=HardCaps(step=5.0, startup=0.0),
        restart=RestartPolicy(delay=1.0, jitter=0.0, limit=limit),
    )


def test_o_start_1_a_load_longer_than_every_other_budget_is_left_alone() -> None:
    """Silent for 12 s, with a heartbeat timeout of 3 s and a step budget of 2 s."""
    world = World(policy(), attach_at(12.0))
    world.run(40.0)
    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY"]
    assert world.when("HEALTHY") == [12.0]


def test_o_start_1_a_load_that_holds_the_interpreter_lock_is_left_alone() -> None:
    """Attached at once, then neither beats nor a moving page until the load is over."""

    def on_spawn(world: World) -> None:
        world.attach(phase="loading").fall_silent()

    world = World(policy(), on_spawn)

    def loaded() -> None:
        world.rank().phase, world.rank().beats, world.rank().ticks = "idle", True, True

    world.at(12.0, loaded)
    world.run(40.0)
    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY"]


def test_o_start_1_silence_for_ever_ends_at_the_startup_budget() -> None:
    world = World(policy())
    world.run(24.0)

    (unhealthy,) = world.when("UNHEALTHY")
    (dead,) = world.when("DEAD")
    assert 20.0 <= unhealthy <= 20.0 + LATEST
    assert 23.0 <= dead <= 23.0 + LATEST
    assert [cause for _, to, cause in world.transitions() if to in {"UNHEALTHY", "DEAD"}] == [
        "startup",
        "startup",
    ]
    assert world.state.ledger.used(world.policy.restart, world.clock.now) == 1
    world.run(26.0)
    assert world.lives == 2


def test_o_start_1_startup_failures_end_in_failed() -> None:
    world = World(policy(limit=3))
    world.run(120.0)
    assert world.lives == 3
    assert world.lifecycle == "FAILED"


def test_o_start_1_an_exit_while_silent_is_seen_at_once() -> None:
    world = World(policy())
    world.exit(3.0, code=1)
    world.run(3.5)
    assert world.when("DEAD") == [3.0]
    assert world.state.last_exit == "exit code 1"


def test_o_start_1_a_loading_rank_keeps_the_worker_starting() -> None:
    """Two ranks; only one is past its load. The budget counts from spawn, for the one that lags."""

    def on_spawn(world: World) -> None:
        world.attach("0")
        world.attach("1", phase="loading")

    world = World(policy(), on_spawn)
    world.run(19.9)
    assert world.lifecycle == "STARTING"
    world.run(20.8)
    assert world.transitions()[-1][1:] == ("UNHEALTHY", "startup")
    assert world.history[-1][1].rank == "1"


def test_o_start_1_ranks_that_attach_late_do_not_stretch_the_hard_cap() -> None:
    """A start that hangs, seen under a new name each second: still dead at its cap."""
    world = World(policy())
    world.at(19.0, lambda: world.attach("0", phase="loading"))
    for second in range(20, 30):
        name = str(second)
        world.at(second + 0.5, lambda name=name: world.attach(name, phase="loading"))  # type: ignore[misc]
    world.run(30.0)
    (dead,) = world.when("DEAD")
    assert 23.0 <= dead <= 23.0 + LATEST


def test_o_start_1_the_name_of_a_late_start_may_change_without_a_false_alarm() -> None:
    world = World(policy())
    world.at(21.0, lambda: world.attach("0", phase="loading"))
    world.at(22.5, lambda: setattr(world.rank(), "phase", "idle"))
    world.run(30.0)
    states = [to for _, to, _ in world.transitions()]
    assert states == ["STARTING", "UNHEALTHY", "HEALTHY"]
    assert len(world.events(Kind.FALSE_ALARM)) == 1


def test_o_start_1_lateness_of_one_rank_that_passes_does_not_make_a_starting_worker_healthy() -> (
    None
):
    def on_spawn(world: World) -> None:
        world.attach("0")
        world.attach("1", phase="loading")

    world = World(policy(), on_spawn)
    world.step(5.0, 3.0, 8, rank="0")
    world.at(12.0, lambda: setattr(world.rank("1"), "phase", "idle"))
    world.run(30.0)
    states = [to for _, to, _ in world.transitions()]
    assert states == ["STARTING", "UNHEALTHY", "STARTING", "HEALTHY"]
    assert world.when("HEALTHY")[0] >= 12.0


def test_an_optional_agent_makes_the_worker_ready_without_it() -> None:
    optional = WorkerPolicy("w1", agent=AGENT_OPTIONAL)
    world = World(optional)
    world.run(5000.0)
    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY"]


def warm_world(first_step: float) -> World:
    """Three steps, of 9 s, 0.5 s and 4 s, in each life."""

    def on_spawn(world: World) -> None:
        begun = world.now
        world.attach(percent=100.0)
        world.step(begun + 1.0, 9.0, 8)
        world.step(begun + 11.0, 0.5, 8)
        world.step(begun + 12.0, 4.0, 8)

    return World(policy(first_step=first_step), on_spawn)


def test_o_start_2_the_first_step_has_an_allowance_and_the_third_has_not() -> None:
    world = warm_world(15.0)
    world.run(20.0)
    (unhealthy,) = world.when("UNHEALTHY")
    assert 14.0 <= unhealthy <= 14.0 + LATEST
    assert world.history[-1][1].to_state == "HEALTHY"


def test_o_start_2_a_new_life_has_the_allowance_again() -> None:
    world = warm_world(15.0)
    world.exit(20.0, code=1)
    world.run(40.0)
    assert world.lives == 2
    second = world.when("STARTING")[1]
    first_late, second_late = world.when("UNHEALTHY")
    assert first_late < second
    assert second + 14.0 - 1e-6 <= second_late <= second + 14.0 + LATEST


def test_o_start_2_a_recovery_does_not_give_it_again() -> None:
    """After the false alarm of the third step a fourth of 4 s is late at 2 s again."""
    world = warm_world(15.0)
    world.step(18.0, 4.0, 8)
    world.run(24.0)
    assert len(world.when("UNHEALTHY")) == 2
    assert 20.0 <= world.when("UNHEALTHY")[1] <= 20.0 + LATEST


def test_o_start_2_the_allowance_counts_from_the_begin_of_the_step() -> None:
    """A worker may wait for its first request as long as it likes."""
    world = World(policy(first_step=15.0), attach_at(0.0))
    world.step(300.0, 14.0, 8)
    world.run(320.0)
    assert world.when("UNHEALTHY") == []


def test_o_start_2_without_an_allowance_the_plain_budget_holds() -> None:
    world = warm_world(0.0)
    world.run(4.0)
    (unhealthy,) = world.when("UNHEALTHY")
    assert 3.0 <= unhealthy <= 3.0 + LATEST


def test_o_start_3_a_newborn_does_not_answer_for_its_predecessor() -> None:
    """The former life was silent for a minute; the new one attaches after 4 s with no step."""
    lives = iter([0.0, 4.0])
    young = policy(startup=10.0)

    def on_spawn(world: World) -> None:
        attach_at(next(lives))(world)

    world = World(young, on_spawn)
    world.at(1.0, lambda: world.rank().begin(8))
    world.at(1.5, lambda: world.rank().fall_silent())
    world.bury_seconds = 60.0
    world.run(70.0)
    born = world.when("STARTING")[1]
    world.run(born + 30.0)

    after = [to for at, to, _ in world.transitions() if at >= born]
    assert after == ["STARTING", "HEALTHY"]
    assert world.when("HEALTHY")[-1] == pytest.approx(born + 4.0)
    assert world.state.suspicions == ()


def test_o_start_3_nothing_of_the_old_life_is_left_in_the_state() -> None:
    world = World(policy(), attach_at(0.0))
    world.step(1.0, 60.0, None)
    world.run(4.5)
    assert world.state.suspicions
    assert world.state.warned
    world.exit(5.0, signal=9)
    world.run(6.2)

    state = world.state
    assert (state.incarnation, state.lifecycle.value) == (2, "HEALTHY")
    assert (state.suspicions, state.warned, state.silent) == ((), frozenset(), frozenset())
    assert state.ready_at == state.spawned_at


def beat(pid: int, seq: int, now: float, step: int) -> BeatFacts:
    return BeatFacts(
        rank="0", seq=seq, pid=pid, start_ticks=pid, now=now, own_clock=True, steps_begun=step
    )


def test_o_start_3_a_late_beat_of_an_older_process_is_refused() -> None:
    """By the token it would not even get here; the pure rule refuses it by its process too."""
    young, _ = accept(None, beat(pid=200, seq=1, now=104.0, step=0), 104.0)
    late, reason = accept(young, beat(pid=100, seq=900, now=44.0, step=100), 104.5)
    assert reason
    assert isinstance(late, RankBeats)
    assert late.steps_begun == 0
    assert late.step is None
    assert late.process.pid == 200


def test_step_numbers_may_start_again_in_a_new_life() -> None:
    """A lower step number is a new process, not a lack of progress."""
    world = World(policy(), attach_at(0.0))
    for second in range(1, 50):
        world.step(float(second), 0.3, 8)
    world.exit(50.0, code=0)
    world.step(53.0, 0.3, 8)
    world.run(80.0)
    assert world.lives == 2
    assert world.rank().evidence().steps == ()
    assert world.rank().evidence().last_ended[0].number == 1
    assert Step(1, 0.0).number == 1
    assert world.when("UNHEALTHY") == []
