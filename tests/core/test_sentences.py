"""What an operator reads: the numbers, and what happens next."""

from __future__ import annotations

import pytest
from stepwarden.core import sentences
from stepwarden.core.clocks import WORKER, Cause, RunningClock
from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import CpuSample, Exit, ProcessId, Step
from stepwarden.core.verdict import Activity, Measurement, judge, open_suspicion

PROCESS = ProcessId(5, 5)


def clock(cause: Cause, subject: str = "0", step: Step | None = None) -> RunningClock:
    return RunningClock(
        subject, cause, 100.0, 42.8, Deadline(142.8), 171.2, 271.2, "30 s + 0.2 s * 64 seqs", step
    )


STEP = Step(17, 100.0, 64, 900, "decode")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0 s"),
        (0.25, "0.25 s"),
        (9.5, "9.5 s"),
        (42.8, "42.8 s"),
        (119.9, "119.9 s"),
        (120.0, "2 min"),
        (316.0, "5 min 16 s"),
        (1800.0, "30 min"),
        (7265.4, "121 min 5 s"),
    ],
)
def test_lengths_of_time(value: float, text: str) -> None:
    assert sentences.seconds(value) == text


@pytest.mark.parametrize(
    ("exit_", "text"),
    [
        (Exit(code=0), "exit code 0"),
        (Exit(code=137), "exit code 137"),
        (Exit(signal=11), "signal SIGSEGV"),
        (Exit(signal=9), "signal SIGKILL"),
        (Exit(signal=63), "signal 63"),
        (Exit(), "unknown exit status"),
    ],
)
def test_exits(exit_: Exit, text: str) -> None:
    assert sentences.describe_exit(exit_) == text


@pytest.mark.parametrize(
    ("exit_", "text"),
    [
        (Exit(code=3), "ended by itself with exit code 3"),
        (Exit(signal=11), "was ended by signal SIGSEGV"),
        (
            Exit(signal=9),
            "was ended by signal SIGKILL (not sent by stepwarden;"
            " the kernel's out-of-memory killer uses it too)",
        ),
        (Exit(), "has ended, and nobody could see how"),
        (Exit(code=1, oom=True), "ended by itself with exit code 1, out of memory"),
    ],
)
def test_ends_say_by_whom(exit_: Exit, text: str) -> None:
    assert sentences.ended(exit_) == text


@pytest.mark.parametrize(
    ("names", "text"),
    [
        (["0"], "rank 0 is attached and past loading"),
        (["10", "9", "0"], "ranks 0, 9, 10 are attached and past loading"),
        (["core"], "core is attached and past loading"),
        (["core", "0"], "rank 0, core are attached and past loading"),
    ],
)
def test_who_is_ready_is_named_and_not_counted(names: list[str], text: str) -> None:
    assert sentences.attached(names) == text


def test_a_late_step_is_told_with_its_numbers_and_what_comes_next() -> None:
    text = sentences.suspected(clock(Cause.STEP, step=STEP), 30.0, 143.0)
    assert text == (
        "step 17 (decode, 64 seqs, 900 tokens) of rank 0 has run for 43.0 s;"
        " budget 30 s + 0.2 s * 64 seqs; watching its CPU for 30.0 s before judging"
    )


def test_what_is_unknown_is_not_told_as_a_number() -> None:
    text = sentences.late(clock(Cause.STEP, step=Step(1, 100.0)), 143.0)
    assert "step 1 (unknown batch) of rank 0" in text


@pytest.mark.parametrize(
    ("cause", "subject", "words"),
    [
        (Cause.STARTUP, WORKER, "the worker is not ready 43.0 s after its start"),
        (Cause.HEARTBEAT, "1", "no sign of life from rank 1 for 43.0 s"),
        (Cause.LEASE, "1", "a declared operation of rank 1 has run for 43.0 s"),
        (Cause.SCHEDULER, "core", "core has not begun a step for 43.0 s"),
    ],
)
def test_every_cause_with_a_clock_has_its_sentence(cause: Cause, subject: str, words: str) -> None:
    assert sentences.late(clock(cause, subject), 143.0).startswith(words)


@pytest.mark.parametrize(
    ("measurement", "text"),
    [
        (None, "CPU unknown"),
        (Measurement(Activity.UNKNOWN, None, 0.0), "CPU unknown, which counts as working"),
        (Measurement(Activity.UNKNOWN, 3.0, 30.0), "CPU unknown, which counts as working"),
        (Measurement(Activity.NOT_WORKING, None, 0.0, "T"), "its process is stopped (state T)"),
        (Measurement(Activity.NOT_WORKING, 2.0, 30.0, "Z"), "its process is a zombie"),
        (
            Measurement(Activity.NOT_WORKING, 1.234, 30.0, "S"),
            "CPU 1.23 % of a core over 30.0 s (limit 5 %): not working",
        ),
        (
            Measurement(Activity.WORKING, 6400.0, 30.0, "R"),
            "CPU 6400 % of a core over 30.0 s (limit 5 %): working",
        ),
    ],
)
def test_measurements(measurement: Measurement | None, text: str) -> None:
    assert sentences.measured(measurement, 5.0) == text


def ruled(gained: float, now: float) -> str:
    late = clock(Cause.STEP, step=STEP)
    suspicion = open_suspicion(late, 30.0, CpuSample(143.0, {PROCESS: 0.0}), 143.0)
    sample = CpuSample(now, {PROCESS: gained}, "R")
    return sentences.ruled(judge(suspicion, sample, now, window=30.0, busy_cpu=5.0), 5.0, now)


def test_a_granted_window_tells_which_and_where_it_ends() -> None:
    text = ruled(15.0, 173.0)
    assert text.endswith("working; retry window 2, hard cap at 2 min 51 s")
    assert "CPU 50 % of a core over 30.0 s" in text


def test_a_death_tells_why() -> None:
    assert ruled(0.0, 173.0).endswith("(limit 5 %): not working")
    assert ruled(99.0, 280.0).endswith("hard cap 2 min 51 s reached")


def test_a_false_alarm_tells_the_length_of_the_step() -> None:
    text = sentences.false_alarm(clock(Cause.STEP, step=STEP), 45.3, 146.0)
    assert text == (
        "false alarm: step 17 (decode, 64 seqs, 900 tokens) of rank 0 ended after 45.3 s,"
        " 2.5 s over its budget of 42.8 s"
    )
    assert sentences.false_alarm(clock(Cause.HEARTBEAT), None, 150.0) == (
        "false alarm: heartbeat of rank 0 is over after 50.0 s"
    )
