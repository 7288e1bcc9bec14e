"""The sentences an operator reads: always the numbers, always what happens next."""

from __future__ import annotations

import signal
from collections.abc import Collection

from stepwarden.core.clocks import WORKER, Cause, RunningClock
from stepwarden.core.deadline import elapsed
from stepwarden.core.evidence import Exit
from stepwarden.core.finding import Finding
from stepwarden.core.verdict import Activity, Judgement, Measurement, Ruling


def seconds(value: float) -> str:
    """A length of time as people read it: 0.25 s, 42.8 s, 5 min 16 s."""
    if value < 120.0:
        return f"{value:.3g} s" if value < 10.0 else f"{value:.1f} s"
    minutes, rest = divmod(round(value), 60)
    return f"{minutes} min {rest} s" if rest else f"{minutes} min"


def describe_exit(exit_: Exit) -> str:
    """`exit code 0`, `signal SIGSEGV`, or that nobody can know; out of memory where it is known."""
    return _status(exit_) + (", out of memory" if exit_.oom else "")


def _status(exit_: Exit) -> str:
    if exit_.signal is not None:
        try:
            return f"signal {signal.Signals(exit_.signal).name}"
        except ValueError:
            return f"signal {exit_.signal}"
    return "unknown exit status" if exit_.code is None else f"exit code {exit_.code}"


def ended(exit_: Exit) -> str:
    """How a process ended that we have sent no signal: by itself, or by a signal of somebody."""
    how = describe_exit(exit_)
    if exit_.code is None and exit_.signal is None:
        return "has ended, and nobody could see how"
    if exit_.signal is None:
        return f"ended by itself with {how}"
    if how == "signal SIGKILL":
        how += " (not sent by stepwarden; the kernel's out-of-memory killer uses it too)"
    if how == "signal SIGPIPE":
        how += " (it wrote where nobody reads any more, as when its log process is killed)"
    return f"was ended by {how}"


def attached(names: Collection[str]) -> str:
    """`rank 0 is attached and past loading`, for one rank or several."""
    if all(name.isdigit() for name in names):
        noun = "rank" if len(names) == 1 else "ranks"
        who = f"{noun} {', '.join(sorted(names, key=int))}"
    else:
        who = ", ".join(rank_name(name) for name in sorted(names))
    return f"{who} {'is' if len(names) == 1 else 'are'} attached and past loading"


def rank_name(name: str) -> str:
    """A rank as a sentence names it: a bare number says what it counts."""
    return f"rank {name}" if name.isdigit() else name


def subject(clock: RunningClock) -> str:
    """Who is late."""
    return "the worker" if clock.subject == WORKER else rank_name(clock.subject)


def late(clock: RunningClock, now: float) -> str:
    """What is late, since when, and by which budget."""
    age = seconds(elapsed(clock.began, now))
    who = subject(clock)
    if clock.step is not None:
        ran = f"{_step(clock)} of {who} has run for {age}{_overtaken(clock)}"
        return f"{ran}; budget {clock.arithmetic}{_starved(clock)}"
    what = {
        Cause.STARTUP: f"{who} is not ready {age} after its start",
        Cause.HEARTBEAT: f"no sign of life from {who} for {age}",
        Cause.LEASE: f"a declared operation of {who} has run for {age}",
        Cause.SCHEDULER: f"{who} has not begun a step for {age}",
        Cause.DRAIN: f"{who} has been draining for {age}",
        Cause.PROGRESS: f"the counter of {who} has stood still for {age} with work present, which"
        " may be one long step or a hang",
    }[clock.cause]
    return f"{what}; {clock.arithmetic}{_starved(clock)}"


def _starved(clock: RunningClock) -> str:
    if clock.starved < 0.05:
        return ""
    return f", and {seconds(clock.starved)} more that it could not use (quota or host)"


def _step(clock: RunningClock) -> str:
    step = clock.step
    if step is None:
        return ""
    seqs = "unknown batch" if step.num_seqs is None else f"{step.num_seqs} seqs"
    tokens = "" if step.num_tokens is None else f", {step.num_tokens} tokens"
    phase = "" if step.phase == "unknown" else f"{step.phase}, "
    return f"step {step.number} ({phase}{seqs}{tokens})"


def _overtaken(clock: RunningClock) -> str:
    if not clock.later_ended:
        return ""
    noun = "step" if clock.later_ended == 1 else "steps"
    return f" while {clock.later_ended} later {noun} ended (was its own end never reported?)"


def left_open(clock: RunningClock, left: float, now: float) -> str:
    """A step is open, later ones have ended, and its deadline is `left` seconds away."""
    age = seconds(elapsed(clock.began, now))
    return (
        f"{_step(clock)} of {subject(clock)} has been open for {age}{_overtaken(clock)};"
        f" the worker is judged by it in {seconds(left)}"
    )


def suspected(
    clock: RunningClock, window: float, now: float, finding: Finding | None = None
) -> str:
    """A deadline has just passed, and why, as far as it is known by now."""
    text = f"{late(clock, now)}; watching its CPU for {seconds(window)} before judging"
    return text + _why(finding)


def _why(finding: Finding | None) -> str:
    return "" if finding is None else f"; {finding.text}"


def measured(measurement: Measurement | None, busy_cpu: float) -> str:
    """What the window showed."""
    if measurement is None:
        return "CPU unknown"
    if measurement.state == "T":
        return "its process is stopped (state T)"
    if measurement.state == "Z":
        return "its process is a zombie"
    if measurement.percent is None or measurement.activity is Activity.UNKNOWN:
        return "CPU unknown, which counts as working"
    span = seconds(measurement.seconds)
    digits = ".3g" if measurement.percent < 100.0 else ".0f"
    percent = f"CPU {measurement.percent:{digits}} % of a core over {span}"
    word = "working" if measurement.activity is Activity.WORKING else "not working"
    return f"{percent} (limit {busy_cpu:g} %): {word}"


def ruled(judgement: Judgement, busy_cpu: float, now: float) -> str:
    """The verdict at the end of a window; of a death the reason alone, not what is done then."""
    clock = judgement.suspicion.clock
    text = f"{late(clock, now)}; {measured(judgement.measurement, busy_cpu)}"
    why = _why(judgement.suspicion.finding)
    if judgement.ruling is Ruling.DEAD:
        if judgement.capped:
            text += f"; hard cap {seconds(clock.hard_cap)} reached"
        return text + why
    # The sentence stays while time goes on: lengths from its beginning, and no countdown.
    cap = seconds(elapsed(clock.began, clock.cap_at))
    return f"{text}; retry window {judgement.suspicion.windows}, hard cap at {cap}{why}"


def more_time(clock: RunningClock) -> str:
    """A suspicion went away because what is late has more time now; the step is still open."""
    return f"false alarm: {_step(clock)} of {subject(clock)} goes on and has more time now"


def false_alarm(clock: RunningClock, length: float | None, now: float) -> str:
    """A suspicion went away by itself; `length`: how long a step took, where known."""
    who = subject(clock)
    took = elapsed(clock.began, now) if length is None else length
    over = seconds(elapsed(clock.budget, took))
    if clock.step is None:
        return f"false alarm: {clock.cause.value} of {who} is over after {seconds(took)}"
    # Without a stamp of its end, all that is known is when it was seen to have ended.
    most = "at most " if length is None else ""
    return (
        f"false alarm: {_step(clock)} of {who} ended after {most}{seconds(took)},"
        f" {most}{over} over its budget of {seconds(clock.budget)}"
    )
