"""Durations of steps as a real ring shows them, with begins and ends at invented instants."""

from __future__ import annotations

import pytest
from stepwarden.edge.step_samples import StepSample, StepSampler
from stepwarden_proto import page as layout
from stepwarden_proto.ring import PAGE_WORDS, whole_slots

SECOND = 1_000_000_000
PREFILL, DECODE = 4, 5


class Words:
    """The words of a page, written as the agent would."""

    def __init__(self) -> None:
        self.words = [0] * PAGE_WORDS
        self.number = 0
        self._long = 0

    def begin(self, at: float, seqs: int = 4, tokens: int = 4, phase: int = DECODE) -> int:
        self.number += 1
        start = self._slot(self.number)
        fields = {
            layout.S_FIRST: self.number,
            layout.S_BEGIN_NS: int(at * SECOND),
            layout.S_NUM_SEQS: seqs,
            layout.S_NUM_TOKENS: tokens,
            layout.S_PHASE: phase,
            layout.S_LAST: self.number,
        }
        for field, value in fields.items():
            self.words[start + field] = value
        return self.number

    def end(self, number: int, stamp: float | None = None) -> None:
        start = self._slot(number)
        if stamp is not None:
            begin_ns = self.words[start + layout.S_BEGIN_NS]
            self.words[start + layout.S_END_NS] = int(stamp * SECOND)
            record = layout.W_LONG + self._long % layout.LONG_STEPS * layout.LONG_WORDS
            self.words[record : record + 3] = [number, begin_ns, int(stamp * SECOND)]
            self._long += 1
        self.words[start + layout.S_END] = number

    def _slot(self, number: int) -> int:
        return layout.HEADER_WORDS + number % layout.RING_SLOTS * layout.SLOT_WORDS


@pytest.fixture
def page() -> Words:
    return Words()


def taken(sampler: StepSampler, page: Words) -> tuple[list[StepSample], list[StepSample]]:
    return sampler.take(page.words, *whole_slots(page.words))


def run_short(page: Words, count: int, first: float, apart: float) -> None:
    for index in range(count):
        page.end(page.begin(first + index * apart))


def test_a_short_step_is_known_by_the_next_begin_and_told_once(page: Words) -> None:
    sampler = StepSampler()
    run_short(page, 3, 10.0, 0.25)
    assert taken(sampler, page) == (
        [],
        [StepSample(1, 0.25, "decode", 4, 4), StepSample(2, 0.25, "decode", 4, 4)],
    )
    assert taken(sampler, page) == ([], [])
    page.end(page.begin(11.0))  # 0.5 s after the third
    _, (third,) = taken(sampler, page)
    assert (third.number, third.seconds) == (3, 0.5)


def test_the_newest_are_sampled(page: Words) -> None:
    run_short(page, 100, 10.0, 0.01)
    _, short = taken(StepSampler(), page)
    assert [each.number for each in short] == list(range(95, 100))


def test_a_rest_without_work_is_no_step(page: Words) -> None:
    sampler = StepSampler()
    page.end(page.begin(10.0))
    page.end(page.begin(20.0))
    page.end(page.begin(20.7))
    _, short = taken(sampler, page)
    assert [each.number for each in short] == [2]


def test_a_stamped_end_is_exact_and_no_interval(page: Words) -> None:
    sampler = StepSampler()
    number = page.begin(10.0, seqs=64, tokens=900, phase=PREFILL)
    page.end(number, stamp=12.5)
    page.begin(12.6)
    assert taken(sampler, page) == ([StepSample(1, 2.5, "prefill", 64, 900)], [])
    assert taken(sampler, page) == ([], [])


def test_a_long_step_whose_slot_was_used_again_keeps_the_shape_it_was_seen_with(
    page: Words,
) -> None:
    sampler = StepSampler()
    number = page.begin(10.0, seqs=32)
    taken(sampler, page)
    page.end(number, stamp=13.0)
    run_short(page, 16, 13.0, 0.01)
    (long,), short = taken(sampler, page)
    assert (long.number, long.seconds, long.num_seqs) == (1, 3.0, 32)
    assert len(short) == 5


def test_a_long_step_that_nobody_saw_open_has_no_shape(page: Words) -> None:
    page.end(page.begin(10.0), stamp=10.6)
    run_short(page, 16, 10.6, 0.01)
    (long,), _ = taken(StepSampler(), page)
    assert (long.seconds, long.num_seqs, long.phase) == (0.6, None, "unknown")


def test_steps_that_end_out_of_order_are_told_each(page: Words) -> None:
    sampler = StepSampler()
    first, second = page.begin(10.0), page.begin(10.1)
    page.end(second, stamp=11.1)
    assert [each.number for each in taken(sampler, page)[0]] == [2]
    page.end(first, stamp=12.0)
    assert [each.number for each in taken(sampler, page)[0]] == [1]


def test_what_an_earlier_daemon_counted_is_not_counted_again(page: Words) -> None:
    page.end(page.begin(10.0), stamp=12.0)
    run_short(page, 3, 12.0, 0.1)
    sampler = StepSampler(known=True)
    assert taken(sampler, page) == ([], [])
    page.end(page.begin(12.3))
    assert [each.number for each in taken(sampler, page)[1]] == [4]


def test_a_slot_in_motion_and_nonsense_are_left_out(page: Words) -> None:
    run_short(page, 3, 10.0, 0.1)
    start = layout.HEADER_WORDS + 2 * layout.SLOT_WORDS
    page.words[start : start + layout.SLOT_WORDS] = [0] * layout.SLOT_WORDS
    assert taken(StepSampler(), page) == ([], [])
    backwards = Words()
    backwards.end(backwards.begin(10.0, seqs=-7, tokens=-1))
    backwards.end(backwards.begin(9.0))
    backwards.begin(9.1)
    _, (only,) = taken(StepSampler(), backwards)
    assert only.number == 2
