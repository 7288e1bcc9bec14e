"""Field cases O-TIME-1 and O-TIME-2: the wall clock steps; the supervisor itself stands still."""

from __future__ import annotations

import inspect
from dataclasses import replace

import pytest
from stepwarden.core import awareness, clocks, restarts, suspicions, turn, verdict
from stepwarden.core.budget import Rows
from stepwarden.core.burying import buried
from stepwarden.core.commands import command
from stepwarden.core.policy import HardCaps, RestartPolicy, WorkerPolicy
from stepwarden.core.resume import resume
from support.fake_world import LATEST, World, attach_at

POLICY = WorkerPolicy(
    "w1",
    step=Rows(((8, 2.0),)),
    first_step=0.0,
    heartbeat_timeout=3.0,
    window=3.0,
    hard_caps=HardCaps(step=5.0),
    restart=RestartPolicy(delay=2.0, jitter=0.0),
)


def eventful_world(steps: tuple[float, ...]) -> World:
    """A start of 1 s, a false alarm, a hang, a delay; the wall steps in the midst of each."""
    world = World(POLICY, attach_at(1.0))
    world.step(4.0, 3.0, 8)
    world.step(10.0, 1e9, 8)
    for index, at in enumerate((0.5, 6.5, 13.0, 15.5, 16.5)):
        size = steps[index % len(steps)] if steps else 0.0
        world.at(at, lambda size=size: _step_wall(world, size))  # type: ignore[misc]
    return world


def _step_wall(world: World, seconds: float) -> None:
    world.clock.wall_offset += seconds


@pytest.mark.parametrize("steps", [(3600.0, -7200.0, 3600.0), (-7200.0,), (1e9,)])
def test_o_time_1_steps_of_the_wall_clock_change_nothing(steps: tuple[float, ...]) -> None:
    """The same life, instant by instant, as without them: windows and delays keep their length."""
    calm, stepped = eventful_world(()), eventful_world(steps)
    calm.run(60.0)
    stepped.run(60.0)
    assert stepped.history == calm.history
    assert calm.clock.wall() != stepped.clock.wall()
    assert " ".join(to for _, to, _ in calm.transitions()) == (
        "STARTING HEALTHY UNHEALTHY HEALTHY UNHEALTHY DEAD RESTARTING STARTING HEALTHY"
    )


def test_o_time_1_a_stopped_worker_stays_so() -> None:
    world = World(POLICY, attach_at(0.0))
    world.command(5.0, "stop")
    for at, size in ((10.0, 3600.0), (11.0, -7200.0), (12.0, 3600.0)):
        world.at(at, lambda size=size: _step_wall(world, size))  # type: ignore[misc]
    world.run(100.0)
    assert world.lifecycle == "STOPPED"


@pytest.mark.parametrize(
    "function",
    [
        turn.advance,
        turn.clocks_of,
        turn.next_wake,
        resume,
        command,
        buried,
        verdict.judge,
        suspicions.weigh,
        restarts.record_death,
        awareness.Awareness.woke,
        clocks.running_clocks,
    ],
)
def test_o_time_1_no_decision_is_handed_wall_time(function: object) -> None:
    names = inspect.signature(function).parameters  # type: ignore[arg-type]
    assert not [name for name in names if "wall" in name or "date" in name]


def stepping_world(until: float, every: float = 0.3) -> World:
    world = World(POLICY, attach_at(0.0, percent=50.0))
    for index in range(round(until / every)):
        world.step(0.5 + index * every, 0.9 * every, 8)
    return world


def test_o_time_2_a_pause_of_15_s_kills_nobody() -> None:
    world = stepping_world(60.0)
    world.pause(20.0, 15.0)
    world.run(60.0)
    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY"]
    (pause,) = world.awareness.pauses
    assert pause.end - pause.begin == pytest.approx(15.0, abs=1.0)


def test_o_time_2_short_pauses_again_and_again_kill_nobody() -> None:
    world = stepping_world(60.0)
    for index in range(10):
        world.pause(10.0 + 3.0 * index, 1.5)
    world.run(60.0)
    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY"]


@pytest.mark.parametrize("frozen_at", [19.9, 20.1, 27.0, 34.9])
def test_o_time_2_one_that_froze_in_the_pause_is_found_after_it(frozen_at: float) -> None:
    """Within budget + window of the resume, and not before its own budget and window."""
    world = World(POLICY, attach_at(0.0))
    world.step(1.0, 0.3, 8)
    world.step(frozen_at, 1e9, 8)
    world.pause(20.0, 15.0)
    world.run(60.0)

    (unhealthy,) = world.when("UNHEALTHY")
    (dead,) = world.when("DEAD")
    assert 35.0 < unhealthy <= 35.0 + 2.0 + LATEST
    assert unhealthy + 3.0 - 0.5 <= dead <= 35.0 + 2.0 + 3.0 + LATEST


@pytest.mark.parametrize("seconds", [0.6, 1.5, 15.0, 3600.0])
def test_o_time_2_a_pause_inside_the_window_does_not_count_for_it(seconds: float) -> None:
    """UNHEALTHY since 12 s; the loop stands still from 13 s on; 2 s of the window are left then."""
    world = World(POLICY, attach_at(0.0))
    world.step(1.0, 0.3, 8)
    world.step(10.0, 1e9, 8)
    world.pause(13.0, seconds)
    world.run(30.0 + seconds)
    (unhealthy,) = world.when("UNHEALTHY")
    (dead,) = world.when("DEAD")
    assert dead - unhealthy >= 3.0 + seconds - 1.0  # it was due to wake up to 1 s into the pause
    assert dead - unhealthy <= 3.0 + seconds + LATEST


def test_o_time_2_a_start_is_not_late_for_our_pause() -> None:
    world = World(WorkerPolicy("w1", startup=10.0, window=3.0), attach_at(20.0))
    world.pause(5.0, 12.0)
    world.run(40.0)
    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY"]


def test_o_time_2_a_worker_that_was_paused_with_us_is_not_taken_for_idle() -> None:
    """A paused host: no CPU was used meanwhile, and the step goes on working after it."""
    world = World(
        WorkerPolicy("w1", step=Rows(((8, 2.0),)), first_step=0.0, window=3.0), attach_at(0.0)
    )
    world.at(9.0, lambda: world.rank().use_cpu(20.0))
    world.step(10.0, 26.0, 8)
    world.at(13.0, lambda: world.rank().use_cpu(0.0))
    world.pause(13.0, 20.0)
    world.at(33.0, lambda: world.rank().use_cpu(20.0))
    world.run(60.0)
    assert "DEAD" not in [to for _, to, _ in world.transitions()]


def test_o_time_2_a_late_start_keeps_our_pause_when_its_rank_becomes_known() -> None:
    """Late under the worker's name, then we stood still, then its rank attached; and meanwhile the
    operator made window and hard cap shorter. The first window of 3 s is whole all the same.
    """
    slow = replace(POLICY, startup=10.0, hard_caps=HardCaps(startup=0.0))
    world = World(slow)
    world.pause(11.0, 4.0)

    def attach() -> None:
        world.attach(phase="loading")
        world.policy = replace(slow, window=0.5)

    world.at(14.9, attach)
    world.run(40.0)
    unhealthy, dead = world.when("UNHEALTHY")[0], world.when("DEAD")[0]
    assert dead - unhealthy >= 3.0 + 4.0 - 1.0  # it was due to wake up to 1 s into the pause
    assert dead - unhealthy <= 3.0 + 4.0 + LATEST


def test_o_time_2_what_was_due_in_the_past_is_no_pause_of_ours() -> None:
    """A start that is late for long, and then has a new name and a shorter hard cap at once: its
    first window was over 17 s ago. It is judged now, and those 17 s are not excused as a pause.
    """
    slow = replace(POLICY, startup=10.0)
    world = World(slow)

    def attach() -> None:
        world.attach(phase="loading")
        world.policy = replace(slow, window=0.5, hard_caps=HardCaps(startup=0.0))

    world.at(29.9, attach)
    world.run(33.0)
    (dead,) = world.when("DEAD")
    assert dead <= 30.0 + LATEST
    assert world.awareness.pauses == ()
