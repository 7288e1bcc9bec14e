"""Whom an attached life takes in, and how the end of what cannot be seen from here is noticed.

The pages of an attached worker lie in one directory for all of its lives, because its processes
come and go when their platform wants. So each page is asked whose it is: its lock says that its
writer lives, and with whose pid where that is one of ours. A process of another pid namespace has
none; it is judged by its page and beats alone, never signalled, and has ended when its page is no
longer locked.
"""

from __future__ import annotations

from collections.abc import Mapping

from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.daemon.life import Life, RankMemory
from stepwarden.daemon.runners import ATTACH
from stepwarden.edge.page_file import OUTSIDE
from stepwarden.edge.page_reader import PageView
from stepwarden.edge.process_probe import alive

OUT_OF_REACH = "its processes are of another pid namespace and cannot be signalled from here"


def may_read(life: Life) -> bool:
    """Not before its invitation is left: only then is it known whose its pages have to be."""
    return life.runner != ATTACH or life.family is not None


def admitted(life: Life, views: Mapping[str, PageView]) -> Mapping[str, PageView]:
    """The pages of those that belong to this life; all of them where we started it ourselves."""
    if life.runner != ATTACH:
        return views
    _note_ends(life)
    over = is_over(life)
    return {name: view for name, view in views.items() if _belongs(life, name, view, over)}


def takes(life: Life, facts: BeatFacts, now: float) -> bool:
    """Whether this beat is one of the life's own, though its token is right."""
    if life.runner != ATTACH:
        return True
    if facts.rank not in life.ranks and may_read(life):
        life.pages.read(now)  # whose its page is has to be known first
    speaker = ProcessId(facts.pid, facts.start_ticks)
    if facts.rank in life.pages.strangers or speaker in life.dismissed:
        return False
    memory = life.ranks.get(facts.rank)
    known = memory is not None and _identity(memory) == speaker
    return known or not is_over(life)


def is_over(life: Life) -> bool:
    """Whether its main process has ended: who comes now belongs to the next life."""
    return life.exit is not None or (life.main is not None and not alive(life.main))


def out_of_reach(life: Life) -> frozenset[ProcessId]:
    """Those that run on, for all we know, and that we cannot signal: by their own pids."""
    if life.runner != ATTACH or life.exit is not None:
        return frozenset()
    unseen = [m for m in life.ranks.values() if m.process is None and not m.lost]
    return frozenset(identity for m in unseen if (identity := _identity(m)) is not None)


def refusals(life: Life) -> list[Event]:
    """Pages that are not believed for their owner, each rank told once."""
    fresh = {rank: uid for rank, uid in life.pages.strangers.items() if rank not in life.refused}
    life.refused |= fresh.keys()
    number = str(life.incarnation)
    text = "a page was not believed: it belongs to user {}, not to that of the worker"
    return [
        Event(Kind.REFUSED, text.format(uid), life.worker, number, rank=rank)
        for rank, uid in fresh.items()
    ]


def _belongs(life: Life, rank: str, view: PageView, over: bool) -> bool:
    memory = life.ranks.get(rank)
    writer = ProcessId(view.pid, view.start_ticks)
    if memory is not None and memory.page is not None and _identity(memory) == writer:
        return True
    return view.holder is not None and not over and writer not in life.dismissed


def _note_ends(life: Life) -> None:
    ended = [m for m in life.ranks.values() if _ended_outside(life, m)]
    for memory in ended:
        memory.lost = True
    if ended and life.main is None and all(m.lost for m in life.ranks.values()):
        life.exit = Exit()


def _ended_outside(life: Life, memory: RankMemory) -> bool:
    page = memory.page
    if page is None or memory.lost or memory.process is not None or page.holder != OUTSIDE:
        return False
    return ProcessId(page.pid, page.start_ticks) not in life.pages.writers


def _identity(memory: RankMemory) -> ProcessId | None:
    """Who it is, in its own pid namespace."""
    if memory.page is not None:
        return ProcessId(memory.page.pid, memory.page.start_ticks)
    return None if memory.beats is None else memory.beats.process
