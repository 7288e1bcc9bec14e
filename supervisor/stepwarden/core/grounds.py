"""Grounds for a diagnosis: what the kernel, the page and the engine say beyond doubt.

Each rule takes a case and gives one sentence with its numbers, or None.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepwarden.core.case import Case
from stepwarden.core.clocks import Cause
from stepwarden.core.deadline import elapsed
from stepwarden.core.evidence import RankEvidence
from stepwarden.core.facts import STOPPED, UNINTERRUPTIBLE
from stepwarden.core.moves import ThreadMove
from stepwarden.core.sentences import rank_name, seconds

TICK_STANDS = 3.0
"""The agent's thread ticks each second; a tick that stands for longer than this does not move."""

MOVED_BYTES = 65536.0
"""Bytes in each second: more than this, read or written, is input and output that moves. Above
what an agent and a logger move."""

BEHIND_SECONDS = 1.0
"""Ranks that stepped later than this ago may only be seen at an odd moment."""


def stopped(case: Case) -> str | None:
    """SIGSTOP, a debugger's stop, or a shell's."""
    if case.state == STOPPED:
        return f"{case.process_words} is stopped (state T), by SIGSTOP or by a debugger"
    facts = case.facts
    stuck = [] if facts is None else [e for e in facts.processes[1:] if e.state == STOPPED]
    if stuck and case.at_rest:
        one = stuck[0]
        return (
            f"process {one.process.pid} ({one.name}) below {case.process_words} is stopped (state"
            f" T), and {case.who} is at rest"
        )
    return None


def zombie(case: Case) -> str | None:
    """It ended and nobody has collected it; the loop hears of that by itself soon."""
    if case.state in ("Z", "X"):
        return f"{case.process_words} has ended (state {case.state})"
    return None


def uninterruptible(case: Case) -> str | None:
    """It sleeps in the kernel where no signal reaches it, and nothing moves."""
    moves = case.moves
    if moves is not None and (moves.io_bytes or 0) > MOVED_BYTES * moves.seconds:
        return None  # a disk that is slow: bytes come
    if moves is not None and moves.stuck and case.at_rest:
        thread = moves.stuck[0]
        return (
            f"thread {thread_words(thread)} of {case.process_words} is in uninterruptible sleep"
            f" (state D{_in(thread.wchan)}) in both looks, {seconds(moves.seconds)} apart, with"
            f" CPU {moves.percent:.1f} % of a core: it waits for a device, a network file system"
            " or a driver, and no signal reaches it"
        )
    if moves is None and case.state == UNINTERRUPTIBLE and case.at_rest:
        main = case.main
        wchan = main.threads[0].wchan if main is not None and main.threads else None
        return (
            f"{case.process_words} is in uninterruptible sleep (state D{_in(wchan)}) and at rest:"
            " it waits for a device, a network file system or a driver"
        )
    return None


def supervisor_paused(case: Case) -> str | None:
    """Most of the time since the window began was lost to ourselves."""
    span = elapsed(case.since, case.now)
    if case.lost > 0.0 and 2.0 * case.lost > span:
        return (
            f"our own loop stood still for {seconds(case.lost)} of the last {seconds(span)};"
            " what was seen meanwhile says nothing"
        )
    return None


def lock_held(case: Case) -> str | None:
    """The tick stands while a step runs: the thread that ticks does not get the lock."""
    rank = case.rank
    if rank is None or not rank.page_readable or rank.oldest is None or rank.ticked_at is None:
        return None
    stands = elapsed(rank.ticked_at, case.now)
    open_for = elapsed(rank.oldest.begin, case.now)
    if min(stands, open_for) <= TICK_STANDS:
        return None
    return (
        f"the tick of {case.who} stands for {seconds(stands)} (it moves each second) while step"
        f" {rank.oldest.number} runs: its interpreter lock (GIL) is held{_holder(case)}"
    )


def rank_behind(case: Case) -> str | None:
    """One rank is one step behind all others, which so wait for it."""
    name = behind(case.peers, case.now)
    if name is None:
        return None
    rank = case.peers[name]
    others = [peer for other, peer in case.peers.items() if other != name and peer.steps_begun]
    ahead = others[0]
    text = (
        f"{rank_name(name)} has begun {rank.steps_begun} and ended {rank.steps_ended} steps, while"
        f" {_peers(len(others))} begun {ahead.steps_begun} and ended {ahead.steps_ended}"
    )
    if rank.stepped_at is not None:
        text += f"; it last stepped {seconds(elapsed(rank.stepped_at, case.now))} ago"
    facts = rank.facts
    if facts is not None and facts.main is not None:
        text += f"; its process {facts.main.process.pid} is in state {facts.main.state}"
    return text


def behind(peers: Mapping[str, RankEvidence], now: float) -> str | None:
    """The one rank that is exactly one step behind all its peers; None where there is none."""
    stepping = {name: rank for name, rank in peers.items() if rank.steps_begun > 0}
    if len(stepping) < 2:
        return None
    last = min(stepping, key=lambda name: _done(stepping[name]))
    rank = stepping[last]
    for name, peer in stepping.items():
        begun = peer.steps_begun - rank.steps_begun
        ended = peer.steps_ended - rank.steps_ended
        one_ahead = {begun, ended} <= {0, 1} and begun + ended > 0
        if name != last and not (one_ahead and _rests(peer, now)):
            return None
    return last if _rests(rank, now) else None


def scheduler_stuck(case: Case) -> str | None:
    """Requests wait in the engine core and no step begins."""
    rank = case.rank
    if case.cause is not Cause.SCHEDULER or rank is None or rank.work is None:
        return None
    text = (
        f"{rank.work.unfinished} requests wait in {case.who} and no step has begun on any rank for"
        f" {seconds(elapsed(case.clock.began, case.now))}"
    )
    if rank.work.loop_turns > 0:
        age = elapsed(rank.work.loop_at, case.now)
        moves = "still turns" if age <= TICK_STANDS else "stands"
        text += f"; its loop {moves}, its last turn (number {rank.work.loop_turns})"
        text += f" was {seconds(age)} ago"
    return text


def agent_silent(case: Case) -> str | None:
    """No beat and no tick, nothing in flight, and its process is there."""
    if case.cause is not Cause.HEARTBEAT or case.at_work:
        return None
    silent = seconds(elapsed(case.clock.began, case.now))
    if case.rank is None:
        return f"no agent of the worker is left, and none has been heard for {silent}"
    page = "its page stands" if case.rank.page_readable else "its page cannot be read"
    state = "" if case.state is None else f" (state {case.state})"
    percent = "" if case.percent is None else f", CPU {case.percent:.1f} % of a core"
    return (
        f"no beat of {case.who} for {silent} and {page}, with nothing in flight, while"
        f" {case.process_words} is there{state}{percent}"
    )


def silent_channel(name: str, rank: RankEvidence, now: float) -> str:
    """Beats do not arrive, and the page says that its agent lives."""
    heard = rank.attached_at if rank.beat_at is None else rank.beat_at
    text = f"no beat of {rank_name(name)} for {seconds(elapsed(heard, now))}, but its page moves"
    if rank.ticked_at is not None:
        text += f" (its tick is {seconds(elapsed(rank.ticked_at, now))} old)"
    return text + ": its channel is at fault"


def idle(ranks: Mapping[str, RankEvidence], now: float) -> str | None:
    """Nothing in flight on any rank, no requests, no start, no declared operation."""
    if not ranks or any(rank.working or rank.draining for rank in ranks.values()):
        return None
    stepped = [rank.stepped_at for rank in ranks.values() if rank.stepped_at is not None]
    if not stepped:
        return "nothing is in flight, and no step has been seen yet"
    return f"nothing is in flight; the last step ended {seconds(elapsed(max(stepped), now))} ago"


def thread_words(thread: ThreadMove) -> str:
    """`4711 (python)`."""
    return f"{thread.tid} ({thread.name})"


def _in(wchan: str | None) -> str:
    return "" if wchan is None else f" in {wchan}"


def _peers(count: int) -> str:
    return "its peer has" if count == 1 else f"its {count} peers have"


def _done(rank: RankEvidence) -> int:
    return rank.steps_begun + rank.steps_ended


def _rests(rank: RankEvidence, now: float) -> bool:
    return rank.stepped_at is None or elapsed(rank.stepped_at, now) >= BEHIND_SECONDS


def _holder(case: Case) -> str:
    """Who may hold it: the thread that works most, or the one that has the step."""
    moves, main = case.moves, case.main
    if moves is not None and moves.busiest is not None and not case.at_rest:
        share = 100.0 * moves.busiest.cpu / moves.seconds
        return f", most likely by thread {thread_words(moves.busiest)} at {share:.0f} % of a core"
    if main is not None and main.threads:
        first = main.threads[0]
        return (
            f" by a call that is at rest (its first thread: state {first.state}{_in(first.wchan)})"
        )
    return ""
