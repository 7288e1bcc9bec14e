"""Was it right? Alarms and deaths scored from the events of whole judged lives."""

from __future__ import annotations

from dataclasses import replace

import pytest
from core.test_learn_modes import world_that_hangs
from core.test_observe import POLICY, frozen
from stepwarden.core.event import Event, Kind
from stepwarden.core.ledger import LearnedChange, learned_change, rows
from stepwarden.core.scores import CameOut, Score, Scorebook, Scored
from support.fake_world import World

ENFORCED = replace(POLICY, observe=False)


def scores_of(world: World) -> list[Score]:
    return scored(event for _, event in world.history)


def scored(events: object) -> list[Score]:
    book = Scorebook()
    found = [score for event in events for score in book.take(event)]  # type: ignore[attr-defined]
    return [*found, *book.pending()]


def outcomes(scores: list[Score]) -> list[tuple[str, str]]:
    return [(score.scored.value, score.came_out.value) for score in scores]


def test_an_alarm_that_goes_away_is_false_and_says_after_how_long() -> None:
    world = frozen(4.0, ENFORCED)
    world.run(12.0)
    (score,) = scores_of(world)
    assert score.came_out is CameOut.FALSE
    assert score.detected == pytest.approx(2.0, abs=0.3)
    assert score.recovered == pytest.approx(2.0, abs=0.5)
    assert (score.scored, score.cause, score.rule) == (Scored.ALARM, "step", "yaml")


def test_a_death_confirms_its_alarm_and_is_undecided_itself_where_nobody_saw_the_stacks() -> None:
    world = frozen(500.0, ENFORCED)
    world.run(15.0)
    alarm, death = scores_of(world)[:2]
    assert outcomes([alarm, death]) == [("alarm", "confirmed"), ("death", "undecided")]
    assert alarm.recovered is None
    assert death.detected is not None
    assert alarm.detected is not None
    assert death.detected > alarm.detected


def test_what_an_observed_worker_was_spared_for_and_recovered_from_is_false_twice() -> None:
    world = frozen(60.0)
    world.run(80.0)
    assert outcomes(scores_of(world)) == [("alarm", "false"), ("observed_death", "false")]


def test_a_step_that_hangs_on_is_pending() -> None:
    world = frozen(500.0)
    world.run(100.0)
    assert outcomes(scores_of(world)) == [("alarm", "pending"), ("observed_death", "pending")]


def test_an_alarm_of_the_learned_rule_alone_is_false_when_the_step_ends() -> None:
    world = world_that_hangs("observe", seconds=90.0)
    world.run(130.0)
    found = scores_of(world)
    assert outcomes(found)[0] == ("learned_alarm", "false")
    assert {score.rule for score in found} == {"learned"}
    assert found[0].sooner is not None
    assert found[0].sooner > 200.0
    change = learned_change(found)
    assert change is not None
    assert (change.alarms_confirmed, change.alarms_false) == (0, 1)


def test_what_learning_would_have_found_sooner_is_confirmed_by_the_death() -> None:
    world = world_that_hangs("observe", seconds=10_000.0)
    world.run(600.0)
    found = [score for score in scores_of(world) if score.came_out is not CameOut.PENDING]
    change = learned_change(found)
    assert change is not None
    assert (change.alarms_confirmed, change.deaths_confirmed) == (1, 1)
    assert change.sooner == pytest.approx(308.0 - 10.0, abs=15.0)


def told(kind: Kind, to: str = "", rank: str = "0", **data: float | str) -> Event:
    life = {"worker": "w", "incarnation": "1"}
    return Event(kind, "", **life, to_state=to, cause="step", rank=rank, data=data)


ALARM = told(Kind.TRANSITION, "UNHEALTHY", step=7, age=10.0, rule="yaml", diagnosis="slow")


def test_what_two_looks_saw_decides_a_death() -> None:
    looks = {"wedged": "confirmed", "moving": "false", "partly": "undecided"}
    for place, came_out in looks.items():
        found = scored([ALARM, told(Kind.TRANSITION, "DEAD", step=7, age=40.0, stacks=place)])
        alarm = "false" if place == "moving" else "confirmed"
        assert outcomes(found) == [("alarm", alarm), ("death", came_out)]


def test_an_exit_confirms_an_alarm_and_is_no_verdict() -> None:
    gone = replace(told(Kind.TRANSITION, "DEAD"), cause="exit")
    assert outcomes(scored([ALARM, gone])) == [("alarm", "confirmed")]
    assert scored([gone]) == []


def test_more_time_and_an_operators_stop_decide_nothing() -> None:
    more = told(Kind.FALSE_ALARM, step=7, seconds=12.0, still_open=1)
    assert outcomes(scored([ALARM, more])) == [("alarm", "undecided")]
    assert outcomes(scored([ALARM, told(Kind.TRANSITION, "STOPPING")])) == [("alarm", "undecided")]


def test_a_late_start_that_gets_a_name_is_one_alarm() -> None:
    start = replace(ALARM, cause="startup", rank="", data={"age": 5.0})
    named = replace(told(Kind.SUSPICION, age=6.0), cause="startup")
    ended = replace(told(Kind.FALSE_ALARM, seconds=9.0), cause="startup")
    (score,) = scored([start, named, ended])
    assert (score.came_out, score.rank, score.recovered) == (CameOut.FALSE, "0", 3.0)


def test_an_alarm_raised_again_or_in_an_earlier_life_is_undecided() -> None:
    assert outcomes(scored([ALARM, ALARM])) == [("alarm", "undecided"), ("alarm", "pending")]
    later = replace(told(Kind.TRANSITION, "STARTING"), incarnation="2")
    assert outcomes(scored([ALARM, later])) == [("alarm", "undecided")]


def test_the_book_holds_no_more_than_what_is_pending() -> None:
    book = Scorebook()
    for number in range(1000):
        book.take(replace(ALARM, data={"step": number, "age": 1.0}))
        book.take(told(Kind.FALSE_ALARM, step=number, seconds=2.0))
    assert book.pending() == ()


def test_rows_add_up() -> None:
    false = told(Kind.FALSE_ALARM, step=7, seconds=14.0)
    dead = told(Kind.TRANSITION, "DEAD", step=7, age=40.0, stacks="wedged", diagnosis="slow")
    found = scored([ALARM, false, ALARM, false, ALARM, dead])
    alarms, deaths = rows(found)
    assert (alarms.confirmed, alarms.false) == (1, 2)
    assert alarms.precision == pytest.approx(1 / 3)
    assert (alarms.detected, alarms.recovered) == (10.0, 4.0)
    assert (deaths.confirmed, deaths.precision, deaths.detected) == (1, 1.0, 40.0)
    assert learned_change(found) is None
    assert rows([]) == ()


def test_nothing_decided_has_no_precision() -> None:
    (row,) = rows(scored([ALARM]))
    assert (row.pending, row.precision) == (1, None)


def test_the_learned_rule_may_only_have_deaths_to_show() -> None:
    death = Score("w", "1", Scored.LEARNED_DEATH, "step", "0", came_out=CameOut.FALSE)
    assert learned_change([death]) == LearnedChange(0, 0, 0, 1, None)
