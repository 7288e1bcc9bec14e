"""Field cases O-RSTR-1 and O-RSTR-3 with a fake clock: every exit counts, and not for ever."""

from __future__ import annotations

import itertools

import pytest
from stepwarden.core.budget import Rows
from stepwarden.core.event import Kind
from stepwarden.core.policy import RestartPolicy, WorkerPolicy
from support.fake_world import World, attach_at

THREE_RESTARTS = RestartPolicy(
    delay=1.0, factor=2.0, max_delay=4.0, jitter=0.0, limit=4, within=60.0, stable=30.0
)
"""`limit` counts deaths, not restarts: with `limit: 4` the fourth death ends in FAILED, so that
there are exactly three restarts."""


@pytest.mark.parametrize(
    ("code", "signal", "shown"),
    [
        (0, None, "exit code 0"),
        (1, None, "exit code 1"),
        (137, None, "exit code 137"),
        (143, None, "exit code 143"),
        (None, 11, "signal SIGSEGV"),
        (None, 6, "signal SIGABRT"),
    ],
)
def test_o_rstr_1_every_exit_of_a_server_is_a_failure(
    code: int | None, signal: int | None, shown: str
) -> None:
    policy = WorkerPolicy("w1", restart=RestartPolicy(delay=1.0, jitter=0.0))
    world = World(policy, attach_at(0.1))
    world.step(9.5, 20.0, 8)
    world.exit(10.0, code, signal)
    world.run(20.0)

    assert world.when("DEAD") == [10.0]
    assert world.lives == 2
    assert world.lifecycle == "HEALTHY"
    assert world.state.last_exit == shown
    (dead,) = [e for e in world.events(Kind.TRANSITION) if e.to_state == "DEAD"]
    assert shown in dead.sentence
    assert dead.cause == "exit"
    assert dead.sentence.endswith("; ending what is left of its tree")
    (waits,) = [e for e in world.events(Kind.TRANSITION) if e.to_state == "RESTARTING"]
    assert waits.sentence.endswith(f"1 of 5 deaths used; last: {world.state.last_death}")
    assert world.state.last_death in dead.sentence
    assert world.state.last_death.endswith(shown)
    assert world.state.ledger.used(policy.restart, world.clock.now) == 1


@pytest.mark.parametrize(("code", "lives"), [(0, 1), (1, 2)])
def test_on_failure_means_any_other_code_than_0(code: int, lives: int) -> None:
    """An operator may choose it; then a clean end is final and the state says so."""
    policy = WorkerPolicy("w1", restart=RestartPolicy(on="failure", delay=1.0, jitter=0.0))
    world = World(policy, attach_at(0.1))
    world.exit(10.0, code)
    world.run(20.0)
    assert world.lives == lives
    assert world.lifecycle == ("HEALTHY" if lives == 2 else "STOPPED")


def dies_after(seconds: float, policy: RestartPolicy = THREE_RESTARTS) -> World:
    def on_spawn(world: World) -> None:
        if seconds > 1.0:
            world.attach()
        world.exit(world.now + seconds, code=1)

    return World(WorkerPolicy("w1", restart=policy), on_spawn)


def gaps(world: World) -> list[float]:
    """Seconds from each confirmed burial to the next start."""
    starts = world.when("STARTING")
    found = [
        (gone, min([s for s in starts if s >= gone], default=gone))
        for gone in world.when("RESTARTING")
    ]
    return [round(start - gone, 3) for gone, start in found]


def test_o_rstr_3_a_worker_that_always_dies_is_given_up() -> None:
    world = dies_after(0.1)
    world.run(300.0)

    assert world.lives == 1 + 3
    assert gaps(world) == [1.0, 2.0, 4.0]
    assert world.lifecycle == "FAILED"
    assert world.state.sentence == (
        "gave up after 4 deaths (restart.limit 4);"
        " last: its main process ended by itself with exit code 1"
    )
    attempts = [e for e in world.events(Kind.TRANSITION) if e.to_state == "STARTING"]
    assert len(attempts) == 4
    assert world.turns < 400  # the loop turns once a second, and for what happens


def test_o_rstr_3_a_worker_that_dies_now_and_then_is_never_given_up() -> None:
    """Each 61 s, `stable` 30 s: the delay is back at 1 s each time."""
    world = dies_after(61.0)
    world.run(61.0 * 40)
    assert world.lives > 35
    assert set(gaps(world)) == {1.0}
    assert world.lifecycle != "FAILED"


def test_o_rstr_3_by_hand_it_starts_at_once_with_counters_at_zero() -> None:
    world = dies_after(0.1)
    world.run(30.0)
    assert world.lifecycle == "FAILED"
    world.command(40.0, "restart")
    world.run(40.05)
    assert world.lifecycle == "STARTING"
    assert world.state.ledger.used(THREE_RESTARTS, world.clock.now) == 0
    world.run(100.0)
    assert world.lives == 4 + 4
    assert gaps(world)[-3:] == [1.0, 2.0, 4.0]
    assert world.lifecycle == "FAILED"


def test_a_hang_at_each_slow_start_ends_in_failed_however_slow() -> None:
    """`limit` deaths never fit into `within`; the rule of deaths in a row finds it."""
    policy = WorkerPolicy("w1", startup=1000.0, restart=RestartPolicy(limit=3, within=60.0))
    world = World(policy)
    world.run(20_000.0)
    assert world.lives == 3
    assert world.lifecycle == "FAILED"


def test_a_hang_longer_than_stable_does_not_forgive_itself() -> None:
    """Ready, then the first step spins until its hard cap, far longer than `stable`."""
    policy = WorkerPolicy(
        "w1",
        step=Rows(((8, 300.0),)),
        restart=RestartPolicy(limit=3, within=60.0, stable=100.0),
    )

    def on_spawn(world: World) -> None:
        world.attach(percent=100.0)
        world.step(world.now + 1.0, 1e9, 8)

    world = World(policy, on_spawn)
    world.run(20_000.0)
    assert world.lives == 3
    assert world.lifecycle == "FAILED"


def test_a_hung_engine_that_ends_itself_is_not_forgiven_either() -> None:
    """Its own watchdog ends it before our deadline; the hang was longer than `stable`."""
    policy = WorkerPolicy(
        "w1",
        step=Rows(((8, 300.0),)),
        restart=RestartPolicy(limit=3, within=60.0, stable=100.0),
    )

    def on_spawn(world: World) -> None:
        world.attach()
        world.step(world.now + 1.0, 1e9, 8)
        world.exit(world.now + 250.0, code=0)

    world = World(policy, on_spawn)
    world.run(20_000.0)
    assert world.lives == 3


def test_an_unkillable_tree_has_no_successor_until_it_is_gone() -> None:
    world = dies_after(5.0)
    world.leftovers = frozenset({world.life.main})
    world.run(60.0)
    assert world.lifecycle == "FAILED"
    assert str(world.life.main.pid) in world.state.sentence
    world.command(61.0, "start")
    world.run(70.0)
    assert world.lives == 1

    world.leftovers = frozenset()
    world.at(80.0, world.bury)
    world.run(82.0)
    assert world.lives == 2


@pytest.mark.parametrize("word", ["stop", "restart"])
def test_an_unkillable_tree_ends_at_last_as_the_operator_wanted(word: str) -> None:
    world = World(WorkerPolicy("w1"), attach_at(0.0))
    world.leftovers = frozenset({world.life.main})
    world.command(5.0, word)
    world.run(10.0)
    assert world.lifecycle == "FAILED"
    world.leftovers = frozenset()
    world.at(20.0, world.bury)
    world.run(60.0)
    assert world.lifecycle == ("STOPPED" if word == "stop" else "HEALTHY")


@pytest.mark.parametrize("at", [0.5, 5.0, 11.5, 14.0, 16.0, 17.0])
def test_a_stop_holds_whatever_was_going_on(at: float) -> None:
    """While starting, healthy, unhealthy, dead, waiting and started again."""
    policy = WorkerPolicy(
        "w1",
        step=Rows(((8, 1.0),)),
        first_step=0.0,
        window=2.0,
        restart=RestartPolicy(delay=2.0, jitter=0.0),
    )
    begin = itertools.count()

    def on_spawn(world: World) -> None:
        attach_at(1.0)(world)
        if next(begin) == 0:
            world.step(10.0, 1e9, 8)

    world = World(policy, on_spawn)
    world.bury_seconds = 1.5
    world.command(at, "stop")
    world.run(200.0)
    assert world.lifecycle == "STOPPED"
    assert world.life.gone
    world.command(201.0, "start")
    world.run(210.0)
    assert world.lifecycle == "HEALTHY"


def test_start_while_dead_means_start() -> None:
    """restart.on is never, its tree is being ended, and the operator wants it back."""
    world = World(WorkerPolicy("w1", restart=RestartPolicy(on="never")), attach_at(0.0))
    world.bury_seconds = 5.0
    world.exit(10.0, code=1)
    world.command(12.0, "start")
    world.run(30.0)
    assert world.lives == 2
    assert world.lifecycle == "HEALTHY"
