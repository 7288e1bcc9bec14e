"""Field cases O-HANG-1..4 with a fake clock: slow is not dead, frozen is, idle is neither."""

from __future__ import annotations

import pytest
from stepwarden.core.budget import Formula, Rows
from stepwarden.core.event import Kind
from stepwarden.core.policy import HardCaps, RestartPolicy, WorkerPolicy
from support.fake_world import LATEST, World, attach_at

RESTART = RestartPolicy(delay=1.0, jitter=0.0)


def policy(cap: float | None = 5.0, window: float = 3.0, first_step: float = 0.0) -> WorkerPolicy:
    return WorkerPolicy(
        "w1",
        step=Rows(((8, 2.0),)),
        first_step=first_step,
        heartbeat_timeout=3.0,
        window=window,
        hard_caps=HardCaps(step=cap),
        restart=RESTART,
    )


def world_with_frozen_step(frozen: float, percent: float | None = 100.0) -> World:
    """Steps of 0.3 s, then one that stands for so many seconds from 10 s on."""
    world = World(policy(), attach_at(0.1))
    world.at(0.2, lambda: world.rank().use_cpu(percent))
    for tenth in range(10, 95, 5):
        world.step(tenth / 10, 0.3, 8)
    world.step(10.0, frozen, 8)
    return world


@pytest.mark.parametrize("percent", [100.0, 1.0, 0.0, 6400.0, None])
def test_o_hang_1_a_frozen_step_is_found_and_replaced_once(percent: float | None) -> None:
    world = world_with_frozen_step(10.0, percent)
    world.run(30.0)

    (unhealthy,) = world.when("UNHEALTHY")
    (dead,) = world.when("DEAD")
    assert 12.0 <= unhealthy <= 12.0 + LATEST
    assert 15.0 <= dead <= 15.0 + LATEST
    assert world.lives == 2
    assert world.all_lives[0].main != world.all_lives[1].main
    assert world.lifecycle == "HEALTHY"


def test_o_hang_1_the_event_names_step_budget_and_row() -> None:
    world = world_with_frozen_step(10.0)
    world.run(13.0)

    event = world.history[-1][1]
    assert (event.to_state, event.cause, event.rank) == ("UNHEALTHY", "step", "0")
    assert event.data["step"] == 18
    assert event.data["budget"] == 2.0
    assert event.data["num_seqs"] == 8
    assert "row 8: 2 s" in str(event.data["arithmetic"])
    assert "step 18 (decode, 8 seqs) of rank 0" in event.sentence


def test_o_hang_1_beats_do_not_refresh_the_step() -> None:
    """Beats each 0.2 s and a moving page go on through the whole freeze."""
    world = world_with_frozen_step(10.0)
    world.run(14.0)
    assert world.clock.now - (world.rank().evidence().beat_at or 0.0) < 0.25
    assert world.lifecycle == "UNHEALTHY"


def test_o_hang_1_a_freeze_of_1_8_s_is_nothing() -> None:
    world = world_with_frozen_step(1.8)
    world.run(30.0)
    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY"]


def test_o_hang_1_a_freeze_of_3_5_s_is_a_false_alarm() -> None:
    world = world_with_frozen_step(3.5)
    world.run(30.0)

    states = [to for _, to, _ in world.transitions()]
    assert states == ["STARTING", "HEALTHY", "UNHEALTHY", "HEALTHY"]
    assert 13.5 <= world.when("HEALTHY")[-1] <= 13.5 + 1.0
    (alarm,) = world.events(Kind.FALSE_ALARM)
    assert alarm.data["seconds"] == pytest.approx(3.5)
    assert world.lives == 1


@pytest.mark.parametrize("percent", [0.0, 100.0])
def test_o_hang_2_an_idle_worker_is_not_a_hung_worker(percent: float) -> None:
    world = World(policy(), attach_at(0.1, percent=percent))
    world.step(1.0, 0.3, 8)
    world.run(2.0)
    before = len(world.history)

    world.run(2.0 + 15 * 2.0)

    assert world.lifecycle == "HEALTHY"
    assert len(world.history) == before
    assert world.lives == 1


def test_o_hang_2_silence_while_idle_is_still_found() -> None:
    world = World(policy(), attach_at(0.0))
    world.at(10.0, lambda: world.rank().fall_silent())
    world.run(30.0)

    (unhealthy, *_) = world.when("UNHEALTHY")
    assert 13.0 - 0.2 <= unhealthy <= 13.0 + LATEST  # the last beat lies up to 0.2 s before 10 s
    assert world.transitions()[2][2] == "heartbeat"
    assert world.lives == 2


@pytest.mark.parametrize("percent", [100.0, 6400.0, None])
def test_o_hang_3_a_spinning_deadlock_gets_time_up_to_the_hard_cap(percent: float | None) -> None:
    """Busy, or of unknown CPU: windows up to the hard cap of 4 x 2 s, said in events."""
    world = World(policy(cap=None, window=1.5), attach_at(0.1))
    world.at(0.2, lambda: world.rank().use_cpu(percent))
    world.at(1.0, lambda: world.rank().begin(8))
    world.run(30.0)

    (dead,) = world.when("DEAD")
    assert 1.0 + 8.0 <= dead <= 1.0 + 8.0 + LATEST
    retries = world.events(Kind.RETRY)
    assert len(retries) == 3
    assert all("hard cap at" in event.sentence for event in retries)
    assert all(event.data["ruling"] == "UNHEALTHY_RETRY" for event in retries)


@pytest.mark.parametrize("percent", [1.0, 0.0])
def test_o_hang_3_a_frozen_step_without_cpu_dies_after_one_window(percent: float) -> None:
    world = World(policy(cap=None, window=1.5), attach_at(0.1, percent=percent))
    world.at(1.0, lambda: world.rank().begin(8))
    world.run(30.0)
    (dead,) = world.when("DEAD")
    assert 1.0 + 3.5 <= dead <= 1.0 + 3.5 + LATEST
    assert world.events(Kind.RETRY) == []


@pytest.mark.parametrize("percent", [1.0, 0.0, 100.0, 6400.0, None])
def test_o_hang_3_steps_that_advance_are_healthy_at_any_cpu(percent: float | None) -> None:
    world = World(policy(), attach_at(0.1, percent=percent))
    for half in range(2, 22):
        world.step(half / 2, 0.49, 8)
    world.run(11.0)
    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY"]


ROWS = Rows(((1, 1.0), (8, 2.0), (32, 6.0), (64, 10.0)))


def rows_world() -> World:
    rows = WorkerPolicy("w1", step=ROWS, max_num_seqs=64, first_step=0.0, window=3.0)
    return World(rows, attach_at(0.1))


def test_o_hang_4_the_budget_follows_the_batch_of_the_step_in_flight() -> None:
    world = rows_world()
    world.step(1.0, 5.0, 32)
    world.step(7.0, 0.3, 1)
    world.step(8.0, 8.0, 48)
    world.step(20.0, 9.0, 200)
    world.step(30.0, 9.0, 200)
    world.run(40.0)

    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY"]
    (warning,) = world.events(Kind.OVER_ROWS)
    assert "200 seqs is beyond the last row 64" in warning.sentence


@pytest.mark.parametrize(
    ("batch", "budget"),
    [
        (1, 1.0),
        (8, 2.0),
        (9, 6.0),
        (32, 6.0),
        (48, 10.0),
        (64, 10.0),
        (200, 10.0),
        (4294967295, 10.0),
        (0, 10.0),
        (-1, 10.0),
        (None, 10.0),
    ],
)
def test_o_hang_4_a_frozen_step_is_found_by_the_row_of_its_batch(
    batch: int | None, budget: float
) -> None:
    """The next row up; beyond the last row the last one; 0, -1, none: that of max_num_seqs (64)."""
    world = rows_world()
    world.at(1.0, lambda: world.rank().begin(batch))
    world.run(1.0 + budget + LATEST)

    (unhealthy,) = world.when("UNHEALTHY")
    assert 1.0 + budget <= unhealthy <= 1.0 + budget + LATEST
    odd = batch is None or batch < 1 or batch > 64
    assert len(world.events(Kind.OVER_ROWS)) == (1 if odd else 0)


@pytest.mark.parametrize("batch", [0, -1, None, 4294967295])
def test_o_hang_4_an_odd_batch_kills_nobody(batch: int | None) -> None:
    """Many steps of it, one warning."""
    world = rows_world()
    for second in range(2, 60, 2):
        world.step(float(second), 1.3, batch)
    world.run(62.0)
    assert [to for _, to, _ in world.transitions()] == ["STARTING", "HEALTHY"]
    assert len(world.events(Kind.OVER_ROWS)) == 1


def test_o_hang_4_a_huge_batch_is_capped_by_a_formula_too() -> None:
    formula = WorkerPolicy("w1", step=Formula(1.0, 0.5, maximum=12.0), first_step=0.0)
    assert formula.step_budget(4294967295, None).seconds == 12.0
    assert formula.step_budget(1, 10**18).seconds == 1.5
