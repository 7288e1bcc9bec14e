"""Readings of facts take a tenth of the time, whoever is late and however many are."""

from __future__ import annotations

from stepwarden.daemon.fact_pace import FORGOTTEN_SECONDS, MOST_AT_ONCE, FactPace


def test_a_single_late_worker_is_read_whenever_it_asks() -> None:
    pace = FactPace()
    for turn in range(20):
        now = 100.0 + turn
        assert pace.may_begin("w", now)
        pace.ended(now, now + 0.01)


def test_all_together_take_a_tenth_of_the_time_and_each_has_its_turn() -> None:
    pace = FactPace()
    readings = dict.fromkeys("abcdefgh", 0)
    now, reading = 0.0, 0.05
    while now < 60.0:
        for worker in readings:
            if pace.may_begin(worker, now):
                readings[worker] += 1
                pace.ended(now, now + reading)
        now += 0.1
    assert sum(readings.values()) * reading <= 60.0 * 0.11
    assert max(readings.values()) - min(readings.values()) <= 1


def test_one_that_hangs_leaves_room_for_the_others() -> None:
    pace = FactPace()
    begun = [worker for worker in "abcd" if pace.may_begin(worker, 1.0)]
    assert begun == ["a", "b"][:MOST_AT_ONCE]


def test_one_that_does_not_ask_again_holds_up_nobody() -> None:
    pace = FactPace()
    assert pace.may_begin("a", 1.0)
    assert pace.may_begin("b", 1.0)
    assert not pace.may_begin("gone", 1.0)
    pace.ended(1.0, 1.0)
    pace.ended(1.0, 1.0)
    assert not pace.may_begin("c", 1.5)
    assert pace.may_begin("c", 1.0 + FORGOTTEN_SECONDS)
