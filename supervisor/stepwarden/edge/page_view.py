"""What a page says, in the supervisor's own terms and on its own clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from stepwarden_proto import page as layout
from stepwarden_proto import ring
from stepwarden_proto.phases import effective_phase, phase_name

from stepwarden.core.deadline import ago
from stepwarden.core.evidence import EndedStep, Lease, Step, Work
from stepwarden.edge.host import Host
from stepwarden.edge.page_file import OpenPage

NANOSECONDS = 1e9
NEWEST_ENDED = 4

Slots = Sequence[tuple[int, int]]
"""Number and place of steps, the oldest first."""

AHEAD_SECONDS = 1.0
"""A page is read a moment after `now` was; a stamp that lies further ahead than this is wrong."""


@dataclass(slots=True)  # not frozen, which would make it three times as dear
class PageView:
    """One page as two reads agree on it. Instants are seconds on the supervisor's clock, <= now.

    Nobody changes one; each read makes another.

    `own_clock`: boot id and time namespace are ours, so that instants are exact; otherwise they
    are placed by their age. `holder`: pid of the process that holds the write lock, 0 where it
    lives outside our pid namespace, None where nobody holds it (the writer is gone).
    `in_motion`: a slot changed between all reads, so that a step may be missing here.
    """

    name: str
    rank: str
    pid: int
    start_ticks: int
    own_clock: bool
    holder: int | None
    uid: int
    tick: int
    tick_at: float
    phase: str
    phase_since: float
    lease: Lease | None
    work: Work | None
    steps: tuple[Step, ...]  # open ones, the oldest first
    steps_begun: int
    last_ended: tuple[EndedStep, ...]  # the newest few and the last long ones, the oldest first
    overflows: int  # begins that were not recorded
    clamped: int  # stamps of this page so far that lay ahead of now or before the life began
    closed: bool
    in_motion: bool
    lease_stamp: float = 0.0  # begin of `lease` in seconds on the writer's own clock
    # All of it as it was read, and where the open steps and the ended ones lie in it, by number.
    words: Sequence[int] = field(default=(), repr=False, compare=False)
    slots: tuple[Slots, Slots] = field(default=((), ()), repr=False, compare=False)


@dataclass(slots=True)
class Stamps:
    """What was seen on one page before.

    `newest_ns`, `seen_at`: the newest stamp of a foreign clock, and when we first saw it.
    `clamped` counts the stamps that could not be true; `wrong` are those that stand there now.
    `not_before`: no stamp can lie before it. `first_seen`: when each stamp that lies ahead was
    seen first; were it placed at `now` with each read, what it times would never be late.
    """

    newest_ns: int = 0
    seen_at: float = 0.0
    begun: int = 0
    not_before: float = -math.inf
    first_seen: dict[int, float] = field(default_factory=dict)
    clamped: int = 0
    wrong: set[int] = field(default_factory=set)


class _Placement:
    """Places stamps of the writer's clock on ours."""

    def __init__(self, own: bool, stamps: Stamps, now: float, newest_ns: int) -> None:
        self._now = now
        self._own = own
        if newest_ns > stamps.newest_ns or not stamps.seen_at:
            stamps.newest_ns, stamps.seen_at = newest_ns, now
        self._stamps = stamps
        self._seen_before = stamps.first_seen
        stamps.first_seen = {}
        self._wrong_before = stamps.wrong
        stamps.wrong = set()

    def at(self, stamp_ns: int) -> float:
        """The instant of `stamp_ns`, never after now nor before the life began."""
        instant = stamp_ns / NANOSECONDS
        possible = self._stamps.not_before <= instant <= self._now
        if self._own and possible and not self._seen_before:
            return instant  # as a rule
        instant = self._instant(stamp_ns)
        ahead = stamp_ns in self._stamps.first_seen
        if ahead or (stamp_ns and instant < self._stamps.not_before):
            self._note_wrong(stamp_ns)
        return min(self._now, max(self._stamps.not_before, instant))

    def _note_wrong(self, stamp_ns: int) -> None:
        stamps = self._stamps
        if stamp_ns not in self._wrong_before and stamp_ns not in stamps.wrong:
            stamps.clamped += 1
        stamps.wrong.add(stamp_ns)

    def _instant(self, stamp_ns: int) -> float:
        if not self._own:
            age = max(0, self._stamps.newest_ns - stamp_ns) / NANOSECONDS
            return ago(age, self._stamps.seen_at)
        instant = stamp_ns / NANOSECONDS
        if stamp_ns not in self._seen_before and instant <= self._now + AHEAD_SECONDS:
            return instant
        seen = self._seen_before.get(stamp_ns, self._now)
        self._stamps.first_seen[stamp_ns] = seen
        return seen


def build_view(
    page: OpenPage,
    words: Sequence[int],
    in_motion: bool,
    stamps: Stamps,
    host: Host,
    now: float,
) -> PageView:
    """The view of `page`, whose settled words are given. Remembers in `stamps`."""
    boot_id = (words[layout.W_BOOT_ID_HIGH], words[layout.W_BOOT_ID_LOW])
    own = boot_id == host.boot_id != (0, 0) and words[layout.W_TIME_NAMESPACE] == (
        host.time_namespace
    )
    open_slots, ended_slots = ring.whole_slots(words)
    place = _Placement(own, stamps, now, 0 if own else _newest(words))
    # A slot in motion is missing here; the count never goes back for that.
    for slots in (open_slots, ended_slots):
        if slots:
            stamps.begun = max(stamps.begun, slots[-1][0])
    declared = phase_name(words[layout.W_PHASE])
    steps = tuple(_step(words, start, place) for _, start in open_slots)
    return PageView(
        name=page.name,
        rank=page.rank,
        pid=page.pid,
        start_ticks=words[layout.W_START_TICKS],
        own_clock=own,
        holder=page.holder(),
        uid=page.uid,
        tick=words[layout.W_TICK],
        tick_at=place.at(words[layout.W_TICK_NS]),
        phase=effective_phase(declared, steps[0].phase if steps else None),
        phase_since=place.at(words[layout.W_PHASE_NS]),
        lease=_lease(words, place),
        work=_work(words, place),
        steps=steps,
        steps_begun=stamps.begun,
        last_ended=_last_ended(words, ended_slots),
        overflows=max(0, words[layout.W_OVERFLOWS]),
        closed=words[layout.W_CLOSED] == 1,
        in_motion=in_motion,
        lease_stamp=words[layout.W_LEASE_BEGIN_NS] / NANOSECONDS,
        clamped=stamps.clamped,  # known only here, when all are placed
        words=words,
        slots=(open_slots, ended_slots),
    )


def _newest(words: Sequence[int]) -> int:
    header = (layout.W_TICK_NS, layout.W_PHASE_NS, layout.W_LOOP_NS, layout.W_LEASE_BEGIN_NS)
    stamps = [words[index] for index in (*header, layout.W_UNFINISHED_NS)]
    for offset in (layout.S_BEGIN_NS, layout.S_END_NS):
        stamps += words[layout.HEADER_WORDS + offset : ring.PAGE_WORDS : layout.SLOT_WORDS]
    return max(stamps)


def _step(words: Sequence[int], start: int, place: _Placement) -> Step:
    num_seqs, num_tokens = words[start + layout.S_NUM_SEQS], words[start + layout.S_NUM_TOKENS]
    return Step(
        number=words[start],
        begin=place.at(words[start + layout.S_BEGIN_NS]),
        num_seqs=None if num_seqs < 0 else num_seqs,
        num_tokens=None if num_tokens < 0 else num_tokens,
        phase=phase_name(words[start + layout.S_PHASE]),
    )


def _last_ended(
    words: Sequence[int], ended_slots: Sequence[tuple[int, int]]
) -> tuple[EndedStep, ...]:
    """The newest few, and the last long ones with their lengths; the oldest first."""
    newest = [(number, _length(words, start)) for number, start in ended_slots[-NEWEST_ENDED:]]
    long = ring.long_steps(words)
    if long:
        # Two stamps of one clock, which need not be ours: a length, not an instant.
        lengths = {number: (end_ns - begin_ns) / NANOSECONDS for number, begin_ns, end_ns in long}
        newest = sorted({**dict(newest), **lengths}.items())
    return tuple([EndedStep(number, seconds) for number, seconds in newest])


def _length(words: Sequence[int], start: int) -> float | None:
    end_ns = ring.end_ns(words, start)
    return (end_ns - words[start + layout.S_BEGIN_NS]) / NANOSECONDS if end_ns else None


def _lease(words: Sequence[int], place: _Placement) -> Lease | None:
    begin_ns = words[layout.W_LEASE_BEGIN_NS]
    if begin_ns <= 0:
        return None
    seconds = max(0, words[layout.W_LEASE_NS]) / NANOSECONDS
    return Lease(name="", begin=place.at(begin_ns), seconds=seconds)


def _work(words: Sequence[int], place: _Placement) -> Work | None:
    unfinished = words[layout.W_UNFINISHED]
    if unfinished < 0:
        return None
    return Work(
        unfinished=unfinished,
        since=place.at(words[layout.W_UNFINISHED_NS]),
        loop_turns=words[layout.W_LOOP_TURNS],
        loop_at=place.at(words[layout.W_LOOP_NS]),
    )
