"""Gather: from beats, pages and /proc to the evidence that the core judges."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepwarden.core.clocks import WORKER
from stepwarden.core.deadline import elapsed
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import CpuSample, ProcessId, RankEvidence, WorkerEvidence
from stepwarden.core.heartbeat import BeatFacts, RankBeats, accept
from stepwarden.core.sentences import rank_name
from stepwarden.daemon import attached
from stepwarden.daemon.leases import NotedLease, leases_of, note, note_name
from stepwarden.daemon.life import NO_FACTS, Life, RankMemory
from stepwarden.edge.page_reader import PageView
from stepwarden.edge.process_probe import alive, cpu_sample, identify
from stepwarden.edge.process_table import ProcessTable

Watch = Callable[[ProcessId], bool]
"""Begins to watch a process for its end; False where it has ended already. May raise OSError."""

NOTHING = WorkerEvidence()
"""What is known of a worker without a life."""

UNSEEN_SECONDS = 3.0
"""A rank whose page stands still for so long after its life was adopted, and whose process is
gone, ended while no daemon was there. Its tick would have moved three times."""

MAX_RANKS = 256
"""More ranks than this are not taken from one worker: no engine has them, a fault might."""


def take_beat(life: Life, facts: BeatFacts, now: float) -> bool:
    """Note one beat; True where the loop should look at once. A refused beat changes nothing."""
    if facts.rank not in life.ranks and len(life.ranks) >= MAX_RANKS:
        return False
    if not attached.takes(life, facts, now):
        return False
    memory = life.ranks.setdefault(facts.rank, RankMemory(attached_at=now))
    before = memory.beats
    memory.beats, refusal = accept(before, facts, now, life.spawned_at)
    if refusal:
        return False
    _note_cpu(memory, before)
    _note_steps(memory, before, now)
    if before is not None and before.process != memory.beats.process:
        _new_session(memory, now)
    _note_told_lease(memory, now)
    return before is None or before.phase != facts.phase or facts.bye or facts.lease is not None


def arrivals(life: Life) -> list[Event]:
    """Ranks that have come or said bye since the last call, each told once."""
    events = attached.refusals(life)
    for name, memory in life.ranks.items():
        pid = memory.process.pid if memory.process is not None else None
        bye = _said_bye(memory)
        if memory.parted and not bye:  # the same process has an agent again
            memory.announced = memory.parted = False
        if not memory.announced:
            memory.announced = True
            text = f"the agent of {rank_name(name)} is there"
            events.append(_told(life, Kind.ATTACHED, text, name, pid))
        if not memory.parted and bye:
            memory.parted = True
            events.append(_told(life, Kind.DETACHED, f"{rank_name(name)} said bye", name, pid))
    return events


def _said_bye(memory: RankMemory) -> bool:
    """The page is newer than any beat; without either nothing was said."""
    if memory.page is not None:
        return memory.page.closed
    return memory.beats is not None and memory.beats.bye


def _told(life: Life, kind: Kind, sentence: str, rank: str, pid: int | None) -> Event:
    number = str(life.incarnation)
    return Event(kind, sentence, life.worker, number, rank=rank, data={"pid": pid})


def _new_session(memory: RankMemory, now: float) -> None:
    memory.attached_at = now
    memory.process = None
    memory.facts = NO_FACTS
    memory.leases = ()
    memory.lost = False
    memory.announced = False
    memory.parted = False


def _note_steps(memory: RankMemory, before: RankBeats | None, now: float) -> None:
    """Without a readable page the beats are all that tells when a step last began or ended."""
    beats = memory.beats
    if memory.page is not None or beats is None:
        return
    told = (beats.steps_begun, beats.steps_ended)
    if told != ((0, 0) if before is None else (before.steps_begun, before.steps_ended)):
        memory.stepped_at = now


def _note_cpu(memory: RankMemory, before: RankBeats | None) -> None:
    beats = memory.beats
    if before is None or beats is None or before.process != beats.process:
        memory.cpu_percent = None
        return
    span = elapsed(before.beat_at, beats.beat_at)
    if beats.cpu_seconds is None or before.cpu_seconds is None or span <= 0.0:
        return
    memory.cpu_percent = 100.0 * elapsed(before.cpu_seconds, beats.cpu_seconds) / span


def read_pages(life: Life, watch: Watch, now: float) -> None:
    """Read every page of this life and note what moved."""
    if not attached.may_read(life):
        return
    views = attached.admitted(life, life.pages.read(now))
    for name, view in views.items():
        memory = life.ranks.setdefault(name, RankMemory(attached_at=now))
        _note_page(memory, view, now)
    for name, memory in life.ranks.items():
        if name not in views and memory.page is not None:
            memory.page = None
            _note_told_lease(memory, now)
        _note_process(life, memory, watch)
        memory.left = memory.process is None and _is_left(life, memory)
        if memory.left and elapsed(memory.attached_at, now) >= UNSEEN_SECONDS:
            memory.lost = True


def _note_page(memory: RankMemory, view: PageView, now: float) -> None:
    if memory.page is not None and _writer(memory.page) != _writer(view):
        _new_session(memory, now)
        memory.page_marks = ()
        if memory.beats and memory.beats.process != ProcessId(view.pid, view.start_ticks):
            # A forked child gave the rank back: next to its beats its parent's would be too old.
            memory.beats = None
    ended = view.last_ended[-1].number if view.last_ended else 0
    marks = (view.tick, view.steps_begun, ended)
    if view.in_motion or marks[1:] != memory.page_marks[1:]:
        memory.moved_at = now
    elif marks != memory.page_marks:
        # Only the tick moved, and it carries its own time: reading it later makes it no younger.
        memory.moved_at = max(view.tick_at, memory.moved_at or view.tick_at)
    if view.steps_begun and (view.in_motion or marks[1:] != memory.page_marks[1:]):
        memory.stepped_at = now
    shown = None if view.lease is None else NotedLease(view.lease_stamp, view.lease)
    memory.leases = note(memory.leases, shown, now)
    memory.page_marks = marks
    memory.page = view


def _writer(view: PageView) -> tuple[str, int]:
    """In a container the same pid comes again with each start."""
    return view.name, view.start_ticks


def _note_told_lease(memory: RankMemory, now: float) -> None:
    """The page is newer than any beat and says which lease is held; the beat knows its name."""
    beats = memory.beats
    if beats is None:
        return
    held, facts = beats.lease, beats.last.lease
    told = None
    if held is not None and held.end is None and facts is not None:
        told = NotedLease(facts.begin, held)
    if memory.page is None:
        memory.leases = note(memory.leases, told, now)
    elif told is not None:
        memory.leases = note_name(memory.leases, told, now)


def _note_process(life: Life, memory: RankMemory, watch: Watch) -> None:
    if memory.process is not None or memory.lost:
        return
    process = _whose(life, memory)
    if process is None:
        return
    try:
        memory.lost = not watch(process)
    except OSError:
        return  # cannot be watched now; tried again with the next turn
    memory.process = process
    life.watched.add(process)
    if life.family is not None:
        life.family.adopt(process)


def _is_left(life: Life, memory: RankMemory) -> bool:
    """Whether this rank of an adopted life seems to have ended before this daemon watched it.

    There is its page, without a bye; nobody holds its lock, and its writer is not there. All that
    may be so of a rank that lives in another pid namespace and lost its lock: it moves or beats.
    """
    page = memory.page
    if not life.adopted or page is None or page.closed or page.holder is not None:
        return False
    moved = memory.moved_at is not None and memory.moved_at > memory.attached_at
    if moved or memory.beats is not None:
        return False
    return not alive(ProcessId(page.pid, page.start_ticks))


def _whose(life: Life, memory: RankMemory) -> ProcessId | None:
    """The rank's process in our own pid namespace, where that is proven.

    The kernel names the holder of the page's lock. A pid in a message is believed only where the
    very process (pid and start time) is a known member of this life's family.
    """
    if memory.page is not None and memory.page.holder is not None:
        return identify(memory.page.holder)
    if memory.beats is not None and life.family is not None:
        claimed = memory.beats.process
        if claimed in life.family.known and identify(claimed.pid) == claimed:
            return claimed
    return None


def sample(life: Life, subjects: Iterable[str], table: ProcessTable | None, now: float) -> None:
    """Measure the CPU of those whose deadline has passed; unknown without a process snapshot."""
    for subject in subjects:
        if subject == WORKER:
            if life.main is not None:
                life.tree_cpu = _cpu(life.main, table, now)
            continue
        memory = life.ranks.get(subject)
        if memory is None:
            continue
        if memory.process is not None:
            memory.cpu = _cpu(memory.process, table, now)
        elif memory.beats is not None:
            memory.cpu = memory.beats.cpu_sample()


def _cpu(process: ProcessId, table: ProcessTable | None, now: float) -> CpuSample | None:
    return None if table is None else cpu_sample(process, now, table)


def evidence_of(life: Life) -> WorkerEvidence:
    """Everything known of this life, as the core wants it."""
    return WorkerEvidence(
        ranks={name: _rank(memory) for name, memory in life.ranks.items()},
        main=life.main,
        exit=life.exit,
        spawn_error=life.spawn_error,
        tree=life.tree_cpu,
        held=life.held,
        shut=life.shut,
        spawned_at=life.began_at,
        probe_ok=life.probe_ok,
        progress=life.progress,
        facts_before=life.tree_facts[0],
        facts=life.tree_facts[1],
        starved=life.starving.starved,
        stacks=life.stacks,
    )


def has_ended(evidence: WorkerEvidence) -> bool:
    """Whether its main process, or a rank that said no bye, is gone."""
    lost = any(rank.lost and not rank.bye for rank in evidence.ranks.values())
    return lost or evidence.exit is not None


def ended_steps(page: PageView) -> int:
    """How many steps have ended at least: one that is being written may be open."""
    return max(0, page.steps_begun - page.overflows - len(page.steps) - page.in_motion)


def _rank(memory: RankMemory) -> RankEvidence:
    if memory.page is not None:
        return _by_page(memory, memory.page)
    if memory.beats is not None:
        return _by_beats(memory, memory.beats)
    return RankEvidence(
        attached_at=memory.attached_at,
        process=memory.process,
        moved_at=memory.moved_at,
        stepped_at=memory.stepped_at,
        cpu=memory.cpu,
        lost=memory.lost,
        facts_before=memory.facts[0],
        facts=memory.facts[1],
        leases=leases_of(memory.leases),
    )


def _by_page(memory: RankMemory, page: PageView) -> RankEvidence:
    # Written out, like the others: to copy and change one costs a tenth of a turn of many ranks.
    return RankEvidence(
        attached_at=memory.attached_at,
        process=memory.process,
        beat_at=memory.beats.beat_at if memory.beats else None,
        moved_at=memory.moved_at,
        stepped_at=memory.stepped_at,
        cpu=memory.cpu,
        lost=memory.lost,
        facts_before=memory.facts[0],
        facts=memory.facts[1],
        leases=leases_of(memory.leases),
        phase=page.phase,
        phase_since=page.phase_since,
        page_readable=True,
        ticked_at=page.tick_at if page.tick else None,
        steps=() if memory.left else page.steps,
        steps_begun=page.steps_begun,
        # A page that is nonsense may show more open steps than it ever began.
        steps_ended=ended_steps(page),
        last_ended=page.last_ended,
        work=page.work,
        bye=page.closed,
        usual=memory.usual,
    )


def _by_beats(memory: RankMemory, beats: RankBeats) -> RankEvidence:
    return RankEvidence(
        attached_at=memory.attached_at,
        process=memory.process,
        beat_at=beats.beat_at,
        moved_at=memory.moved_at,
        stepped_at=memory.stepped_at,
        cpu=memory.cpu,
        lost=memory.lost,
        facts_before=memory.facts[0],
        facts=memory.facts[1],
        leases=leases_of(memory.leases),
        phase=beats.phase,
        phase_since=beats.phase_since,
        steps=beats.steps,
        steps_begun=beats.steps_begun,
        steps_ended=beats.steps_ended,
        work=beats.work,
        bye=beats.bye,
    )
