"""The ring of steps: what begin and end store, and that they never raise."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from stepwarden_agent.page_file import private_page
from stepwarden_agent.progress import LONG_STEP_NS, Ring, as_count
from stepwarden_proto import page, ring


def armed() -> tuple[Ring, memoryview]:
    made = Ring(lambda: None)
    words = private_page("idle").words
    made.attach(words)
    return made, words


def words_of(words: memoryview) -> list[int]:
    return words[: ring.PAGE_WORDS].tolist()


def test_a_step_is_open_until_its_end() -> None:
    steps, words = armed()
    handle = steps.begin(4, 100, "decode")
    assert handle == 1
    (step,) = ring.open_steps(words_of(words))
    assert (step.number, step.num_seqs, step.num_tokens) == (1, 4, 100)
    assert page.PHASES[step.phase] == "decode"
    steps.end(handle)
    assert ring.open_steps(words_of(words)) == []
    done = ring.step_at(words_of(words), ring.SLOT_STARTS[1])
    assert done.begin_ns > 0
    assert done.end_ns == 0


def age(words: memoryview, number: int) -> None:
    """Let a step look as if it had begun long ago."""
    words[ring.SLOT_STARTS[number % page.RING_SLOTS] + page.S_BEGIN_NS] -= 2 * LONG_STEP_NS


def test_the_end_of_a_long_step_is_stamped() -> None:
    steps, words = armed()
    long, short = steps.begin(1, 1, "decode"), steps.begin(1, 1, "decode")
    age(words, long)
    steps.watch()
    for handle in (long, short):
        steps.end(handle)
    told = [ring.step_at(words_of(words), ring.SLOT_STARTS[n]) for n in (long, short)]
    assert told[0].end_ns - told[0].begin_ns > LONG_STEP_NS
    assert told[1].end_ns == 0
    steps.watch()
    again = [steps.begin(1, 1, "decode") for _ in range(page.RING_SLOTS)]
    steps.end(again[-2])
    reused = ring.step_at(words_of(words), ring.SLOT_STARTS[again[-2] % page.RING_SLOTS])
    assert reused.number == again[-2]
    assert reused.end_ns == 0  # an old stamp is no stamp of this step


def test_the_last_long_steps_outlive_their_slots() -> None:
    steps, words = armed()
    long = []
    for _ in range(page.LONG_STEPS + 2):
        handle = steps.begin(1, 1, "decode")
        age(words, handle)
        steps.watch()
        steps.end(handle)
        long.append(handle)
        for _ in range(2 * page.RING_SLOTS):
            steps.end(steps.begin(1, 1, "decode"))
    kept = ring.long_steps(words_of(words))
    assert [number for number, _, _ in kept] == long[-page.LONG_STEPS :]
    assert all(end_ns - begin_ns > LONG_STEP_NS for _, begin_ns, end_ns in kept)


def test_a_look_at_any_instant_loses_no_end() -> None:
    steps, words = armed()
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            steps.watch()

    looking = threading.Thread(target=look)
    looking.start()
    for _ in range(100_000):
        steps.end(steps.begin(1, 1, "decode"))
    stop.set()
    looking.join()
    assert ring.open_steps(words_of(words)) == []
    assert words[page.W_OVERFLOWS] == 0


def test_a_phase_is_stored_where_it_differs_from_what_the_slot_holds() -> None:
    steps, words = armed()
    for phase in ("decode", "prefill", "nonsense", "decode"):
        handles = [steps.begin(1, 1, phase) for _ in range(page.RING_SLOTS)]
        told = {page.PHASES[step.phase] for step in ring.open_steps(words_of(words))}
        assert told == {phase if phase in page.PHASES else "unknown"}
        for handle in handles:
            steps.end(handle)


def test_overlapping_steps_end_in_any_order_and_thread() -> None:
    steps, words = armed()
    first, second, third = (steps.begin(n, n, "decode") for n in (1, 2, 3))
    thread = threading.Thread(target=steps.end, args=(second,))
    thread.start()
    thread.join()
    assert [step.number for step in ring.open_steps(words_of(words))] == [first, third]
    steps.end(third)
    assert [step.number for step in ring.open_steps(words_of(words))] == [first]


def test_a_full_ring_counts_and_records_again_once_there_is_room() -> None:
    steps, words = armed()
    handles = [steps.begin(1, 1, "decode") for _ in range(page.RING_SLOTS)]
    assert [steps.begin(1, 1, "decode") for _ in range(3)] == [0, 0, 0]
    assert words[page.W_OVERFLOWS] == 3
    for handle in handles:
        steps.end(handle)
    assert steps.begin(1, 1, "decode") == page.RING_SLOTS + 4


def test_one_lost_handle_does_not_stop_the_others() -> None:
    steps, words = armed()
    lost = steps.begin(1, 1, "decode")
    for _ in range(5 * page.RING_SLOTS):
        steps.end(steps.begin(2, 2, "decode"))
    assert [step.number for step in ring.open_steps(words_of(words))] == [lost]
    assert words[page.W_OVERFLOWS] == 5
    assert ring.steps_begun(words_of(words)) >= 5 * page.RING_SLOTS


def test_ending_twice_or_nothing_changes_nothing() -> None:
    steps, words = armed()
    handle = steps.begin(1, 1, "decode")
    steps.end(handle)
    before = words_of(words)
    nonsense: list[Any] = [handle, 0, -1, 99, 2**80, None, "x", 1.5, [], True]
    for value in nonsense:
        steps.end(value)
    assert words_of(words) == before


def test_handle_zero_is_harmless_when_slot_zero_is_in_use() -> None:
    steps, words = armed()
    for _ in range(page.RING_SLOTS - 1):
        steps.end(steps.begin(1, 1, "decode"))
    last = steps.begin(1, 1, "decode")
    assert last % page.RING_SLOTS == 0
    steps.end(0)
    assert len(ring.open_steps(words_of(words))) == 1
    steps.end(last)
    steps.end(0)
    assert ring.open_steps(words_of(words)) == []


class Hostile:
    def __index__(self) -> int:
        raise RuntimeError("no number")

    def __lt__(self, other: object) -> bool:
        raise RuntimeError("no order")


BAD_COUNTS: list[Any] = [-1, -(2**70), 2**63, 2**100, None, "4", 4.0, float("nan"), Hostile(), []]


@pytest.mark.parametrize("value", BAD_COUNTS, ids=lambda value: str(value)[:12])
def test_o_hang_4_nonsense_counts_are_recorded_as_unknown(value: Any) -> None:
    steps, words = armed()
    steps.begin(value, 7, "decode")
    steps.begin(7, value, "decode")
    first, second = ring.open_steps(words_of(words))
    assert (first.num_seqs, first.num_tokens) == (-1, 7)
    assert (second.num_seqs, second.num_tokens) == (7, -1)


@pytest.mark.parametrize("count", [0, 1, 4294967295, 2**63 - 1])
def test_every_count_that_fits_is_kept(count: int) -> None:
    steps, words = armed()
    steps.begin(count, count, "decode")
    (step,) = ring.open_steps(words_of(words))
    assert (step.num_seqs, step.num_tokens) == (count, count)
    assert as_count(count) == count


@pytest.mark.parametrize("phase", ["", "no such phase", None, 7, [], Hostile()])
def test_an_unlisted_phase_is_unknown(phase: Any) -> None:
    steps, words = armed()
    assert steps.begin(1, 1, phase) == 1
    (step,) = ring.open_steps(words_of(words))
    assert page.PHASES[step.phase] == "unknown"


def test_without_a_page_nothing_is_recorded() -> None:
    steps = Ring(lambda: None)
    assert steps.begin(1, 1, "decode") == 0
    steps.end(0)


def test_an_error_while_arming_stays_inside() -> None:
    def fail() -> None:
        raise OSError("no")

    steps = Ring(fail)
    assert steps.begin(1, 1, "decode") == 0


def test_a_new_page_counts_from_one() -> None:
    steps, _ = armed()
    old = steps.begin(1, 1, "decode")
    words = private_page("idle").words
    steps.attach(words)
    steps.end(old)
    assert steps.begin(5, 5, "decode") == 1
    assert len(ring.open_steps(words_of(words))) == 1
