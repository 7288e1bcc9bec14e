"""Grounds for a diagnosis from what moved: CPU, waiting for it, memory, input and output."""

from __future__ import annotations

from stepwarden.core.case import Case
from stepwarden.core.clocks import Cause
from stepwarden.core.facts import ASLEEP
from stepwarden.core.grounds import MOVED_BYTES, thread_words
from stepwarden.core.moves import Moves, ThreadMove
from stepwarden.core.sentences import seconds
from stepwarden.core.stacks import Place

STARVED_SHARE = 0.6
"""Starved: of the time it wanted a CPU it went without for at least this share..."""

STARVED_LEAST = 0.25
"""...and for at least this share of the time between the looks."""

WANTS_SHARE = 0.02
"""Who uses less of a core than this and is not ready to run does not want to run."""

STALLED_SHARE = 0.3
"""Short of memory: everything in its group, or on the host, waited for memory this share."""

FAULTS_PER_SECOND = 20.0
"""A thread that touches more new pages than this is computing with memory; a bare loop does not."""

SPINNING_SHARE = 0.5
"""A thread that wanted a CPU for this share of the time spins, where nothing else moves."""

SEVERAL = 3
"""So many busy threads share work; one or two may wait for somebody by spinning."""


def starved(case: Case) -> str | None:
    """It wants to run, and neither its quota nor the host lets it, or memory is short."""
    moves = case.moves
    if moves is None:
        return None
    return _throttled(case, moves) or _crowded(case, moves) or _short_of_memory(case, moves)


def _throttled(case: Case, moves: Moves) -> str | None:
    lost = moves.throttled
    if lost is None or not _much(lost.seconds, moves.cpu, moves.seconds):
        return None
    if case.state != "R" and moves.cpu < WANTS_SHARE * moves.seconds:
        return None  # somebody else in the group is held back
    periods = ""
    if lost.periods > 0:
        periods = f" ({lost.throttled} of {lost.periods} periods)"
    return (
        f"the CPU quota of its control group held {case.who} back for {seconds(lost.seconds)}"
        f"{periods} while it got {seconds(moves.cpu)} of CPU in {seconds(moves.seconds)}"
    )


def _crowded(case: Case, moves: Moves) -> str | None:
    """The thread that went without a CPU longest speaks: others may be spared while it is not."""
    waiting = [thread for thread in moves.threads if thread.waited is not None]
    worst = max(waiting, key=lambda thread: thread.waited or 0.0, default=None)
    if worst is None or worst.waited is None:
        return None
    if not _much(worst.waited, worst.cpu, moves.seconds):
        return None
    return (
        f"the host is short of CPU: thread {thread_words(worst)} of {case.who} was ready to run and"
        f" got no CPU for {seconds(worst.waited)} of {seconds(moves.seconds)}, and ran for"
        f" {seconds(worst.cpu)}"
    )


def _much(lost: float, got: float, span: float) -> bool:
    return lost >= STARVED_SHARE * (lost + got) and lost >= STARVED_LEAST * span


def _short_of_memory(case: Case, moves: Moves) -> str | None:
    for stall, where in ((moves.memory, "its control group"), (moves.host_memory, "the host")):
        if stall is None or stall.full is None or not moves.major_faults:
            continue
        if stall.full >= STALLED_SHARE * moves.seconds:
            return (
                f"{where} is short of memory: everything in it waited for memory for"
                f" {seconds(stall.full)} of {seconds(moves.seconds)}, and {case.who} read"
                f" {moves.major_faults} pages back from disk"
            )
    return None


def slow(case: Case) -> str | None:
    """It works on: something besides CPU moves."""
    clock, moves = case.clock, case.moves
    if clock.later_ended > 0:
        return f"{clock.later_ended} later steps of {case.who} have ended meanwhile: it steps on"
    if moves is None or (case.at_rest and not moves.io_bytes):
        return None
    span = seconds(moves.seconds)
    if (moves.io_bytes or 0) > MOVED_BYTES * moves.seconds:
        rate = (moves.io_bytes or 0) / moves.seconds / 1e6
        return f"{case.who} reads and writes {rate:.3g} MB/s (looked at for {span})"
    return None if case.at_rest else _computes(case, moves, span)


def _computes(case: Case, moves: Moves, span: str) -> str | None:
    if case.stacks is Place.MOVING:
        return f"{case.who} uses {moves.percent:.0f} % of a core and its stacks move"
    if case.stacks is Place.WEDGED:
        return None
    return _shares_work(case, moves, span) or _touches_memory(case, moves, span)


def _shares_work(case: Case, moves: Moves, span: str) -> str | None:
    if moves.busy >= SEVERAL:
        return f"{moves.busy} threads of {case.who} work, {moves.percent:.0f} % of a core in {span}"
    if not _spins(moves):
        return f"{case.who} works now and then, {moves.percent:.0f} % of a core in {span}"
    return None


def _touches_memory(case: Case, moves: Moves, span: str) -> str | None:
    busiest = moves.busiest
    if busiest is not None and busiest.minor_faults >= FAULTS_PER_SECOND * moves.seconds:
        return (
            f"thread {thread_words(busiest)} of {case.who} computes: {_share(busiest, moves):.0f} %"
            f" of a core and {busiest.minor_faults} new pages of memory in {span}"
        )
    if moves.major_faults:
        return (
            f"{case.who} works at {moves.percent:.0f} % of a core and had {moves.major_faults}"
            f" pages read from disk in {span}"
        )
    return None


def spinning(case: Case) -> str | None:
    """One or two threads burn CPU, and nothing else moves."""
    moves = case.moves
    if moves is None or moves.busiest is None or case.at_rest or not _spins(moves):
        return None
    return (
        f"thread {thread_words(moves.busiest)} of {case.who} used"
        f" {_share(moves.busiest, moves):.0f} % of a core for {seconds(moves.seconds)} and nothing"
        " else moves (no step, no input or output, no new memory): it spins, or it is one long"
        " computation"
    )


def _spins(moves: Moves) -> bool:
    busiest = moves.busiest
    if busiest is None:
        return False
    return busiest.cpu + (busiest.waited or 0.0) >= SPINNING_SHARE * moves.seconds


def _share(thread: ThreadMove, moves: Moves) -> float:
    return 100.0 * thread.cpu / moves.seconds


def waiting(case: Case) -> str | None:
    """Asleep, although something is in flight."""
    if not case.at_rest or not case.at_work:
        return None
    percent = "" if case.percent is None else f" with CPU {case.percent:.1f} % of a core"
    return f"{_in_flight(case)}, and {case.who} sleeps{percent}{_where(case)}"


def _in_flight(case: Case) -> str:
    rank = case.rank
    if rank is not None and rank.oldest is not None:
        return f"step {rank.oldest.number} is in flight"
    if rank is not None and rank.work is not None and rank.work.unfinished > 0:
        return f"{rank.work.unfinished} requests are in flight"
    if rank is not None and rank.lease is not None:
        return f"the declared operation {rank.lease.name!r} is under way"
    return {
        Cause.STARTUP: "its start is under way",
        Cause.DRAIN: "it is draining",
        Cause.PROGRESS: "its gauge says that work is there",
    }.get(case.cause, "work is in flight")


def _where(case: Case) -> str:
    main = case.main
    if main is None:
        return ""
    asleep = sum(thread.state in ASLEEP for thread in main.threads)
    wchan = main.threads[0].wchan if main.threads else None
    place = "" if wchan is None else f" in {wchan}"
    return (
        f" ({asleep} of {len(main.threads)} threads of {case.process_words} asleep, the first one:"
        f" state {main.threads[0].state if main.threads else main.state}{place})"
    )


def unknown(case: Case) -> str:
    """What is missing."""
    if case.facts is None:
        beats = "" if case.percent is None else f"; its CPU is {case.percent:.0f} % of a core"
        return f"the process of {case.who} could not be looked at{beats}"
    if case.moves is None:
        state = "" if case.state is None else f" (state {case.state})"
        return f"{case.process_words} was looked at once only{state}; the next look will tell more"
    percent = "" if case.percent is None else f", CPU {case.percent:.0f} % of a core"
    return f"what is seen of {case.who} fits no diagnosis{percent}"
