"""Which clocks run, from where, and what pushes their ends out."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stepwarden.core.awareness import Awareness, Pause
from stepwarden.core.budget import Formula
from stepwarden.core.clocks import (
    WORKER,
    Cause,
    RunningClock,
    Scene,
    granted_seconds,
    last_sign,
    lease_seconds,
    running_clocks,
)
from stepwarden.core.evidence import Lease, ProcessId, RankEvidence, Step, Work, WorkerEvidence
from stepwarden.core.policy import AGENT_NONE, AGENT_OPTIONAL, HardCaps, WorkerPolicy

POLICY = WorkerPolicy("w", step=Formula(30.0, 0.2), window=30.0, first_step=120.0)
UP = RankEvidence(
    attached_at=10.0, process=ProcessId(5, 5), phase="idle", beat_at=99.0, page_readable=True
)
STEP = Step(7, 90.0, 64, None, "decode")


def clocks(
    ranks: dict[str, RankEvidence],
    *,
    ready: bool = True,
    came_up: frozenset[str] | None = None,
    policy: WorkerPolicy = POLICY,
    pauses: tuple[Pause, ...] = (),
    now: float = 100.0,
) -> dict[tuple[str, Cause], RunningClock]:
    scene = Scene(
        policy,
        WorkerEvidence(ranks, ProcessId(4, 4)),
        spawned_at=5.0,
        ready=ready,
        came_up=frozenset(ranks) if came_up is None else came_up,
        awareness=Awareness(pauses),
        now=now,
    )
    return {(clock.subject, clock.cause): clock for clock in running_clocks(scene)}


def test_before_anything_attaches_the_start_of_the_worker_is_timed_from_spawn() -> None:
    (clock,) = clocks({}, ready=False).values()
    assert (clock.subject, clock.cause, clock.began) == (WORKER, Cause.STARTUP, 5.0)
    assert clock.deadline.at == 605.0
    assert clock.cap_at == 5.0 + 1800.0


def test_each_rank_that_loads_is_timed_from_spawn_and_by_nothing_else() -> None:
    loading = replace(UP, phase="loading", steps=(STEP,))
    found = clocks({"0": loading, "1": loading}, ready=False, came_up=frozenset())
    assert set(found) == {("0", Cause.STARTUP), ("1", Cause.STARTUP)}
    assert {clock.began for clock in found.values()} == {5.0}


def test_a_rank_that_attaches_to_a_ready_worker_is_timed_from_its_attach() -> None:
    found = clocks({"0": UP, "1": replace(UP, phase="loading")}, came_up=frozenset({"0"}))
    assert found["1", Cause.STARTUP].began == 10.0


def test_a_rank_that_is_up_is_timed_while_another_still_loads() -> None:
    found = clocks(
        {"0": replace(UP, steps=(STEP,)), "1": replace(UP, phase="loading")},
        ready=False,
        came_up=frozenset({"0"}),
    )
    assert set(found) == {("0", Cause.STEP), ("1", Cause.STARTUP)}


def test_an_idle_rank_has_no_step_clock() -> None:
    assert set(clocks({"0": UP})) == {("0", Cause.HEARTBEAT)}


def test_the_oldest_open_step_is_timed_from_its_begin() -> None:
    younger = Step(8, 95.0, 1)
    clock = clocks({"0": replace(UP, steps=(STEP, younger))})["0", Cause.STEP]
    assert clock.began == 90.0
    assert clock.budget == pytest.approx(42.8)
    assert clock.deadline.at == pytest.approx(132.8)
    assert clock.hard_cap == pytest.approx(171.2)
    assert clock.key == ("0", Cause.STEP, 7)


def test_the_first_step_of_a_process_has_its_allowance() -> None:
    first = clocks({"0": replace(UP, steps=(Step(1, 90.0, 64),))})["0", Cause.STEP]
    assert first.budget == 120.0
    small = replace(POLICY, first_step=10.0)
    plain = clocks({"0": replace(UP, steps=(Step(1, 90.0, 64),))}, policy=small)["0", Cause.STEP]
    assert plain.budget == pytest.approx(42.8)


def test_an_open_step_on_a_readable_page_stands_in_for_beats() -> None:
    """An interpreter lock held through a long step silences them, and the step has a deadline."""
    stepping = replace(UP, steps=(STEP,))
    assert ("0", Cause.HEARTBEAT) not in clocks({"0": stepping})
    blind = replace(stepping, page_readable=False)
    assert set(clocks({"0": blind})) == {("0", Cause.STEP), ("0", Cause.HEARTBEAT)}


@pytest.mark.parametrize(
    ("beat", "moved", "sign"), [(None, None, 10.0), (50.0, None, 50.0), (50.0, 70.0, 70.0)]
)
def test_silence_counts_from_the_last_sign_of_life(
    beat: float | None, moved: float | None, sign: float
) -> None:
    rank = replace(UP, beat_at=beat, moved_at=moved)
    assert last_sign(rank) == sign
    assert clocks({"0": rank})["0", Cause.HEARTBEAT].began == sign


@pytest.mark.parametrize("facts", [{"bye": True}, {"lost": True}])
def test_a_rank_that_is_gone_has_no_clock(facts: dict[str, bool]) -> None:
    found = clocks({"0": UP, "1": replace(UP, steps=(STEP,), **facts)})  # type: ignore[arg-type]
    assert set(found) == {("0", Cause.HEARTBEAT)}


def test_a_ready_worker_whose_last_agent_left_is_silent() -> None:
    found = clocks({"0": replace(UP, bye=True)})
    assert found[WORKER, Cause.HEARTBEAT].began == 99.0
    assert "no agent is left" in found[WORKER, Cause.HEARTBEAT].arithmetic


@pytest.mark.parametrize("agent", [AGENT_OPTIONAL, AGENT_NONE])
def test_without_a_required_agent_nobody_misses_it(agent: str) -> None:
    assert clocks({}, policy=replace(POLICY, agent=agent)) == {}


WORK = Work(unfinished=3, since=80.0, loop_turns=4, loop_at=99.0)


def test_waiting_requests_without_a_step_are_timed() -> None:
    core = replace(UP, work=WORK)
    rank = replace(UP, stepped_at=85.0, steps_begun=9, steps_ended=9)
    clock = clocks({"core": core, "0": rank})["core", Cause.SCHEDULER]
    assert clock.began == 85.0
    assert clock.budget == pytest.approx(30.0 + 0.2 * 256)
    assert "3 requests wait and no step begins" in clock.arithmetic


def test_before_the_first_step_the_scheduler_has_the_first_allowance() -> None:
    clock = clocks({"core": replace(UP, work=WORK), "0": UP})["core", Cause.SCHEDULER]
    assert (clock.began, clock.budget) == (80.0, 120.0)


@pytest.mark.parametrize(
    "ranks",
    [
        {"core": replace(UP, work=WORK), "0": replace(UP, steps=(STEP,))},
        {"core": replace(UP, work=replace(WORK, unfinished=0)), "0": UP},
        {"0": UP},
    ],
)
def test_an_open_step_or_an_empty_queue_has_no_scheduler_clock(
    ranks: dict[str, RankEvidence],
) -> None:
    assert not [cause for _, cause in clocks(ranks) if cause is Cause.SCHEDULER]


def test_our_own_pauses_push_both_limits_out() -> None:
    plain = clocks({"0": replace(UP, steps=(STEP,))})["0", Cause.STEP]
    paused = clocks({"0": replace(UP, steps=(STEP,))}, pauses=(Pause(88.0, 95.0),))
    clock = paused["0", Cause.STEP]
    assert clock.deadline.at == pytest.approx((plain.deadline.at or 0.0) + 5.0)
    assert clock.cap_at == pytest.approx(plain.cap_at + 5.0)


def test_a_lease_pushes_out_what_runs_beside_it_and_has_a_clock_of_its_own() -> None:
    leased = replace(UP, steps=(STEP,), leases=(Lease("weight swap", 95.0, 120.0),))
    found = clocks({"0": leased})
    assert found["0", Cause.STEP].deadline.at == pytest.approx(90.0 + 42.8 + 120.0)
    lease = found["0", Cause.LEASE]
    assert (lease.began, lease.budget) == (95.0, 120.0)
    assert lease.deadline.at == 215.0


def test_a_lease_is_capped() -> None:
    capped = replace(POLICY, lease_cap=60.0)
    leased = replace(UP, steps=(STEP,), leases=(Lease("swap", 95.0, 1e9),))
    found = clocks({"0": leased}, policy=capped)
    assert found["0", Cause.STEP].deadline.at == pytest.approx(90.0 + 42.8 + 60.0)
    assert found["0", Cause.LEASE].budget == 60.0
    assert "capped at 60 s" in found["0", Cause.LEASE].arithmetic


def test_a_lease_that_was_given_back_has_no_clock_and_leaves_its_share() -> None:
    leased = replace(UP, steps=(STEP,), leases=(Lease("swap", 95.0, 120.0, end=98.0),))
    found = clocks({"0": leased})
    assert ("0", Cause.LEASE) not in found
    assert found["0", Cause.STEP].deadline.at == pytest.approx(90.0 + 42.8 + 3.0)


@pytest.mark.parametrize(
    ("lease", "since", "seconds"),
    [
        (Lease("x", 10.0, 20.0), 0.0, 20.0),  # wholly after the clock began
        (Lease("x", 10.0, 20.0), 15.0, 15.0),  # partly before
        (Lease("x", 10.0, 20.0), 40.0, 0.0),  # wholly before
        (Lease("x", 10.0, 20.0, end=12.0), 0.0, 2.0),
        (Lease("x", 10.0, 20.0, end=99.0), 0.0, 20.0),  # held too long: what it asked for
        (Lease("x", 10.0, 1e9), 0.0, 100.0),  # capped
        (Lease("x", 10.0, -5.0), 0.0, 0.0),
    ],
)
def test_the_share_of_a_lease(lease: Lease, since: float, seconds: float) -> None:
    assert lease_seconds([lease], since, cap=100.0) == seconds
    assert 0.0 <= granted_seconds(lease, 100.0) <= 100.0


@pytest.mark.parametrize(
    ("spans", "seconds"),
    [
        ([], 0.0),
        ([(10.0, 20.0, None), (40.0, 30.0, None)], 50.0),
        ([(40.0, 30.0, None), (10.0, 20.0, None)], 50.0),  # in whatever order
        ([(10.0, 20.0, None), (15.0, 5.0, None)], 20.0),  # one inside the other
        ([(10.0, 20.0, None), (25.0, 20.0, None)], 35.0),  # overlapping
        ([(10.0, 90.0, 20.0), (15.0, 15.0, None)], 20.0),  # given back, the other goes on
        ([(10.0, 80.0, None), (200.0, 80.0, None)], 100.0),  # capped once, not each
        ([(-50.0, 60.0, None), (30.0, 5.0, 32.0)], 12.0),  # from the begin of the clock on
    ],
)
def test_several_leases_count_for_the_time_that_any_of_them_covers(
    spans: list[tuple[float, float, float | None]], seconds: float
) -> None:
    leases = [Lease("x", begin, length, end) for begin, length, end in spans]
    assert lease_seconds(leases, 0.0, cap=100.0) == seconds


def test_a_second_lease_never_brings_a_deadline_nearer() -> None:
    """1800 s granted and used for 1500 s; a minute later 1200 s more, which is 1800 s in all."""
    loading = replace(UP, phase="loading")
    first = Lease("load", 5.0, 1800.0)
    used = replace(first, end=1505.0)
    second = Lease("warm", 1565.0, 1200.0)

    def deadline(now: float, *leases: Lease) -> float | None:
        rank = replace(loading, leases=leases)
        found = clocks({"0": rank}, ready=False, came_up=frozenset(), now=now)
        return found["0", Cause.STARTUP].deadline.at

    assert deadline(100.0, first) == 5.0 + 600.0 + 1800.0
    assert deadline(1505.0, used) == 5.0 + 600.0 + 1500.0
    assert deadline(1565.0, used, second) == 5.0 + 600.0 + 1800.0


@pytest.mark.parametrize("override", [None, 0.0, 10.0, 1e6])
def test_every_hard_cap_leaves_room_for_the_first_window(override: float | None) -> None:
    caps = HardCaps(step=override, startup=override, heartbeat=override)
    policy = replace(POLICY, hard_caps=caps)
    ranks = {"0": replace(UP, steps=(STEP,)), "1": replace(UP, phase="loading"), "2": UP}
    for clock in clocks(ranks, policy=policy, came_up=frozenset({"0", "2"})).values():
        assert clock.hard_cap >= clock.budget + policy.window
        assert clock.deadline.at is not None
        assert clock.cap_at == pytest.approx(clock.deadline.at + clock.hard_cap - clock.budget)
