"""Each word of the closed list with the evidence it rests on, and what holds for all of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.case import Case
from stepwarden.core.clocks import WORKER, Cause
from stepwarden.core.diagnosis import RULES, diagnose, most_telling, standing
from stepwarden.core.evidence import Lease, ProcessId, RankEvidence, Work
from stepwarden.core.facts import RankFacts
from stepwarden.core.finding import Diagnosis, Finding, data_of
from stepwarden.core.moves import moves_between
from stepwarden.core.stacks import Place
from stepwarden.core.verdict import Activity, Measurement
from support.cases import NOW, RANK, SPAN, case, clock, rank, reading, thread

STATES = Path(__file__).parents[2] / "docs" / "states.md"
EARLIER = NOW - SPAN
ASLEEP = reading(EARLIER), reading(NOW)


def found(one: Case, diagnosis: Diagnosis, *words: str) -> Finding:
    finding = diagnose(one)
    assert finding.diagnosis is diagnosis, finding
    for word in words:
        assert word in finding.sentence, finding.sentence
    return finding


def test_a_stopped_process_is_stopped_by_the_sample_of_this_turn_alone() -> None:
    stopped = Measurement(Activity.NOT_WORKING, None, 0.0, "T")
    one = case(None, None, measurement=stopped)
    assert found(one, Diagnosis.STOPPED, "process 4711", "state T").rank == "0"
    found(case(reading(EARLIER), reading(NOW, state="T")), Diagnosis.STOPPED)


def test_a_stopped_child_stops_a_rank_that_is_at_rest() -> None:
    before, after = ASLEEP
    child = replace(after.processes[0], process=ProcessId(4712, 5), state="T", threads=())
    with_child = replace(after, processes=(*after.processes, child))
    found(case(before, with_child), Diagnosis.STOPPED, "process 4712")


def test_a_profiler_that_traces_it_has_not_stopped_it() -> None:
    found(case(reading(EARLIER), reading(NOW, state="t")), Diagnosis.WAITING)


def test_a_zombie_has_ended() -> None:
    found(case(reading(EARLIER), reading(NOW, state="Z")), Diagnosis.EXITED, "state Z")


def test_a_thread_in_state_d_at_both_looks_is_uninterruptible() -> None:
    stuck = thread(state="D", wchan="nfs_wait")
    one = case(reading(EARLIER, stuck), reading(NOW, stuck))
    found(one, Diagnosis.UNINTERRUPTIBLE, "4711 (t4711)", "in nfs_wait", "10.0 s apart")


def test_any_thread_may_be_the_one_that_is_stuck() -> None:
    stuck = thread(state="D", tid=4800)
    one = case(reading(EARLIER, thread(), stuck), reading(NOW, thread(), stuck))
    found(one, Diagnosis.UNINTERRUPTIBLE, "4800")


def test_one_look_at_state_d_needs_that_it_is_at_rest() -> None:
    stuck = reading(NOW, thread(state="D"))
    at_rest = Measurement(Activity.NOT_WORKING, 0.1, 5.0, "D")
    found(case(None, stuck, measurement=at_rest), Diagnosis.UNINTERRUPTIBLE)
    found(case(None, stuck), Diagnosis.UNKNOWN, "once")


def test_a_disk_that_delivers_is_slow_and_not_stuck() -> None:
    stuck = thread(state="D")
    one = case(reading(EARLIER, stuck), reading(NOW, stuck, io=50_000_000))
    found(one, Diagnosis.SLOW, "5 MB/s")


def test_time_that_we_lost_ourselves_says_nothing() -> None:
    found(case(*ASLEEP, lost=11.0), Diagnosis.SUPERVISOR_PAUSED, "11.0 s of the last 20.0 s")
    found(case(*ASLEEP, lost=9.0), Diagnosis.WAITING)


def test_a_quota_that_holds_it_back_starves_it() -> None:
    one = case(
        reading(EARLIER, thread(state="R"), throttled=100.0),
        reading(NOW, thread(2.0, "R"), throttled=108.0),
    )
    found(one, Diagnosis.STARVED, "8 s", "2 s of CPU in 10.0 s", "5 of 10 periods")


def test_a_quota_of_others_does_not_starve_a_sleeper() -> None:
    one = case(reading(EARLIER, throttled=100.0), reading(NOW, throttled=108.0))
    found(one, Diagnosis.WAITING)


def test_a_crowded_host_starves_it() -> None:
    one = case(reading(EARLIER, thread(state="R")), reading(NOW, thread(1.0, "R", waited=8.0)))
    found(one, Diagnosis.STARVED, "short of CPU", "8 s of 10.0 s")


def test_one_that_gets_half_of_what_it_wants_is_not_starved() -> None:
    one = case(reading(EARLIER, thread(state="R")), reading(NOW, thread(5.0, "R", waited=5.0)))
    found(one, Diagnosis.SPINNING)


def test_memory_that_is_short_starves_it() -> None:
    one = case(reading(EARLIER), reading(NOW, memory=6.0, major=900))
    found(one, Diagnosis.STARVED, "short of memory", "900 pages")


def test_a_tick_that_stands_with_a_step_open_is_a_held_lock() -> None:
    held = rank(ticked=NOW - 25.0)
    found(case(*ASLEEP, who=held), Diagnosis.LOCK_HELD, "25.0 s", "step 7", "at rest")
    busy = reading(EARLIER, thread(state="R")), reading(NOW, thread(9.9, "R"))
    found(case(*busy, who=held), Diagnosis.LOCK_HELD, "thread 4711 (t4711) at 99 %")


@pytest.mark.parametrize(
    "who",
    [
        rank(ticked=NOW - 2.0),
        rank(ticked=None),
        rank(ticked=NOW - 25.0, page_readable=False),
        rank(ticked=NOW - 25.0, steps=()),
    ],
)
def test_without_a_tick_that_stands_nothing_is_said_of_the_lock(who: RankEvidence) -> None:
    found(case(*ASLEEP, who=who), Diagnosis.WAITING)


def test_the_rank_that_is_behind_is_named_whoever_is_late() -> None:
    peers = {"0": rank(), "1": rank(begun=6, ended=6, steps=()), "2": rank()}
    finding = found(case(*ASLEEP, peers=peers), Diagnosis.RANK_BEHIND, "rank 1 has begun 6")
    assert finding.rank == "1"
    assert "2 peers have begun 7" in finding.sentence


def test_the_rank_that_does_not_end_the_step_of_its_peers_is_behind() -> None:
    peers = {"0": rank(begun=7, ended=7, steps=()), "1": rank()}
    late = clock(subject="1")
    assert found(case(*ASLEEP, late=late, who=rank(), peers=peers), Diagnosis.RANK_BEHIND).rank == (
        "1"
    )


@pytest.mark.parametrize(
    "other",
    [
        rank(),  # in the same step
        rank(begun=40, ended=40),  # not in step with it at all
        rank(begun=0, ended=0),  # the engine core does no steps
        rank(begun=6, ended=6, stepped_at=NOW - 0.2),  # it steps on
    ],
)
def test_ranks_that_are_not_one_step_apart_are_not_behind(other: RankEvidence) -> None:
    found(case(*ASLEEP, peers={"0": rank(), "1": other}), Diagnosis.WAITING)


def test_requests_that_wait_without_a_step_are_a_stuck_scheduler() -> None:
    core = rank(steps=(), work=Work(3, NOW - 60.0, 99, NOW - 12.0))
    one = case(*ASLEEP, late=clock(Cause.SCHEDULER), who=core)
    found(one, Diagnosis.SCHEDULER_STUCK, "3 requests", "its loop stands", "number 99")
    turning = rank(steps=(), work=Work(3, NOW - 60.0, 99, NOW - 0.2))
    found(case(*ASLEEP, late=clock(Cause.SCHEDULER), who=turning), Diagnosis.SCHEDULER_STUCK)


def test_an_agent_that_says_nothing_with_nothing_in_flight_is_silent() -> None:
    quiet = rank(steps=(), ticked=NOW - 30.0)
    found(
        case(*ASLEEP, late=clock(Cause.HEARTBEAT), who=quiet),
        Diagnosis.AGENT_SILENT,
        "its page stands",
    )
    nobody = case(None, None, late=clock(Cause.HEARTBEAT, subject=WORKER), peers={})
    found(nobody, Diagnosis.AGENT_SILENT, "no agent of the worker")


def test_what_moves_besides_cpu_is_slow() -> None:
    found(case(*ASLEEP, late=clock(later_ended=3)), Diagnosis.SLOW, "3 later steps")
    busy = [thread(state="R", tid=4711 + n) for n in range(4)]
    worked = [thread(9.0, "R", tid=4711 + n) for n in range(4)]
    one = case(reading(EARLIER, *busy), reading(NOW, *worked))
    found(one, Diagnosis.SLOW, "4 threads", "360 %")
    paged = case(reading(EARLIER, thread()), reading(NOW, thread(9.0, "R", faults=5000)))
    found(paged, Diagnosis.SLOW, "5000 new pages")
    now_and_then = case(reading(EARLIER, thread()), reading(NOW, thread(2.0, "R")))
    found(now_and_then, Diagnosis.SLOW, "now and then", "20 %")


def test_one_thread_that_burns_while_nothing_moves_spins() -> None:
    one = case(reading(EARLIER, thread(state="R")), reading(NOW, thread(9.8, "R")))
    found(one, Diagnosis.SPINNING, "98 % of a core", "nothing else moves")


def test_two_stacks_settle_what_cpu_cannot() -> None:
    burning = reading(EARLIER, thread(state="R")), reading(NOW, thread(9.8, "R"))
    found(case(*burning, stacks=Place.MOVING), Diagnosis.SLOW, "stacks move")
    many = [thread(9.0, "R", faults=9000, tid=4711 + n) for n in range(4)]
    before = [thread(0.0, "R", tid=4711 + n) for n in range(4)]
    one = case(reading(EARLIER, *before), reading(NOW, *many), stacks=Place.WEDGED)
    found(one, Diagnosis.SPINNING)


@pytest.mark.parametrize(
    ("late", "who", "words"),
    [
        (clock(), rank(), "step 7 is in flight"),
        (clock(Cause.STARTUP), rank(steps=(), phase="loading"), "start is under way"),
        (clock(Cause.DRAIN), rank(steps=(), phase="draining"), "draining"),
        (clock(Cause.PROGRESS, subject=WORKER), None, "work is there"),
        (
            clock(Cause.LEASE),
            rank(steps=(), leases=(Lease("swap", NOW - 30.0, 5.0),)),
            "'swap' is under way",
        ),
    ],
)
def test_asleep_with_work_in_flight_is_waiting(
    late: object, who: RankEvidence | None, words: str
) -> None:
    one = case(*ASLEEP, late=late, who=who)  # type: ignore[arg-type]
    found(one, Diagnosis.WAITING, words, "CPU 0.0 %", "state S")


def test_a_rank_out_of_sight_that_rests_is_waiting_by_its_beats() -> None:
    resting = Measurement(Activity.NOT_WORKING, 0.3, 30.0, None)
    found(case(None, None, measurement=resting), Diagnosis.WAITING, "CPU 0.3 %")


def test_what_nobody_can_look_at_is_unknown() -> None:
    found(case(None, None), Diagnosis.UNKNOWN, "could not be looked at")
    working = Measurement(Activity.WORKING, 98.0, 30.0, None)
    found(case(None, None, measurement=working), Diagnosis.UNKNOWN, "98 %")


def test_of_several_late_things_the_most_telling_is_shown() -> None:
    waiting = Finding(Diagnosis.WAITING, "a", "0")
    stopped = Finding(Diagnosis.STOPPED, "b", "1")
    unknown = Finding(Diagnosis.UNKNOWN, "c", "2")
    assert most_telling([unknown, waiting, None, stopped]) is stopped
    assert most_telling([unknown, waiting]) is waiting
    assert most_telling([None]) is None


def test_of_one_that_is_well_it_says_whether_it_idles_or_is_silent() -> None:
    resting = rank(steps=())
    idle = standing({"0": resting}, frozenset(), NOW)
    assert idle is not None
    assert (idle.diagnosis, "30.0 s ago" in idle.sentence) == (Diagnosis.IDLE, True)
    silent = standing({"0": resting}, frozenset({"0"}), NOW)
    assert silent is not None
    assert silent.diagnosis is Diagnosis.AGENT_SILENT
    assert standing({"0": rank()}, frozenset(), NOW) is None
    assert standing({}, frozenset({"0"}), NOW) is None
    asked = rank(steps=(), work=Work(1, NOW, 0, NOW))
    assert standing({"0": asked}, frozenset(), NOW) is None


def test_an_event_carries_word_and_grounds() -> None:
    assert data_of(None) == {}
    assert data_of(Finding(Diagnosis.SLOW, "why")) == {"diagnosis": "slow", "grounds": "why"}


def test_every_word_has_a_row_in_the_docs_and_the_list_is_closed() -> None:
    rows = STATES.read_text()
    assert [word.value for word in Diagnosis if f"| `{word.value}` |" not in rows] == []
    by_rule = {diagnosis for diagnosis, _ in RULES}
    elsewhere = {
        *(Diagnosis.IDLE, Diagnosis.OOM, Diagnosis.UNKILLABLE, Diagnosis.UNKNOWN),
    }
    assert by_rule | elsewhere == set(Diagnosis)


letters = st.sampled_from(["R", "S", "D", "T", "t", "Z", "X", "I"])
totals = st.floats(0.0, 50.0)
threads = st.builds(
    thread, totals, letters, st.none() | totals, st.integers(0, 10**6), st.integers(4711, 4714)
)


@st.composite
def readings(draw: st.DrawFn, at: float) -> RankFacts | None:
    if draw(st.booleans()):
        return None
    return reading(
        at,
        *draw(st.lists(threads, max_size=4, unique_by=lambda each: each.tid)),
        io=draw(st.none() | st.integers(0, 10**9)),
        major=draw(st.integers(0, 10**4)),
        throttled=draw(st.none() | totals),
        memory=draw(totals),
        state=draw(letters),
    )


measurements = st.builds(
    Measurement,
    st.sampled_from(Activity),
    st.none() | st.floats(0.0, 1600.0),
    st.floats(0.0, 60.0),
    st.none() | letters,
)
ranks = st.builds(
    rank,
    st.none() | st.floats(NOW - 60.0, NOW),
    st.integers(0, 8),
    st.integers(0, 8),
    steps=st.just(()) | st.just(rank().steps),
    work=st.none() | st.builds(Work, st.integers(0, 3), st.just(NOW), st.just(1), st.just(NOW)),
    page_readable=st.booleans(),
    phase=st.sampled_from(["decode", "loading", "idle", "draining"]),
)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    cause = draw(st.sampled_from(list(Cause)))
    who = draw(ranks)
    as_a_whole = cause in (Cause.STARTUP, Cause.HEARTBEAT, Cause.PROGRESS) and draw(st.booleans())
    late = clock(cause, subject=WORKER if as_a_whole else "0")
    peers = {"0": who} | draw(st.dictionaries(st.sampled_from("123"), ranks, max_size=3))
    return case(
        draw(readings(NOW - draw(st.floats(0.0, 30.0)))),
        draw(readings(NOW)),
        late=late,
        who=None if as_a_whole else who,
        peers=peers,
        measurement=draw(st.none() | measurements),
        lost=draw(st.sampled_from([0.0, 5.0, 15.0])),
        stacks=draw(st.sampled_from(Place)),
    )


@given(cases())
def test_every_case_has_one_word_and_one_sentence(one: Case) -> None:
    finding = diagnose(one)
    assert isinstance(finding.diagnosis, Diagnosis)
    assert finding.sentence
    assert "\n" not in finding.sentence
    assert diagnose(one) == finding


@given(cases())
def test_what_is_measured_not_to_work_is_never_unknown(one: Case) -> None:
    """So an unknown diagnosis never stands behind a death, but for the hard cap's."""
    if one.measurement is not None and one.measurement.activity is Activity.NOT_WORKING:
        assert diagnose(one).diagnosis is not Diagnosis.UNKNOWN


@given(cases())
def test_without_any_look_nothing_is_said_of_its_processes(one: Case) -> None:
    blind = replace(one, facts=None, moves=None, measurement=None, peers={}, lost=0.0)
    words = {
        *(Diagnosis.UNKNOWN, Diagnosis.LOCK_HELD, Diagnosis.SCHEDULER_STUCK),
        *(Diagnosis.AGENT_SILENT,),
    }
    assert diagnose(blind).diagnosis in words


def test_readings_of_two_processes_are_not_compared() -> None:
    other = replace(reading(EARLIER).processes[0], process=ProcessId(RANK.pid, 99))
    before = replace(reading(EARLIER), processes=(other,))
    assert moves_between(before, reading(NOW)) is None
    assert moves_between(reading(NOW - 0.1), reading(NOW)) is None
    assert moves_between(replace(before, processes=()), reading(NOW)) is None
