"""Two looks at the stacks of one process: does it stand where it stood, or does it move?

    wedged    every thread stands at the same place in both
    moving    the main thread is at another place: it is slow, not dead
    partly    the main thread stands still and another one moves
    unknown   there are no two looks to compare

It is evidence beside CPU and steps, and proves neither alone: one long call into a library stands
at the same line as a hang does, and a thread that polls a lock moves without getting on.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

MAX_THREADS = 256
MAX_FRAMES = 128
MAX_TEXT = 300
"""Whatever a process is, its stacks are bounded: threads, frames of each, characters of a name."""

OWN_THREADS = "stepwarden-"
"""Threads of the agent itself begin so: they tell nothing of the engine."""

KERNEL = "[kernel]"
"""Stands for the file of a place that is known from /proc alone."""


class Place(StrEnum):
    """What two looks come to."""

    WEDGED = "wedged"
    MOVING = "moving"
    PARTLY = "partly"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Frame:
    """One call. `line` 0: unknown."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        if self.file == KERNEL:
            return self.function
        return f"{self.function} ({self.file.rsplit('/', 1)[-1]}:{self.line})"


@dataclass(frozen=True, slots=True)
class ThreadStack:
    """One thread, its innermost frame first. `active`: it ran or was ready to when looked at."""

    tid: int
    name: str
    main: bool
    active: bool
    frames: tuple[Frame, ...] = ()

    @property
    def top(self) -> Frame | None:
        """Where it is; None where that is unknown."""
        return self.frames[0] if self.frames else None


Stacks = tuple[ThreadStack, ...]


@dataclass(frozen=True, slots=True)
class ThreadDiff:
    """One thread in both looks. `same` None: one of them does not show where it was.

    `where`: its place, of one that moves the innermost call that it stayed in; "": none is known.
    """

    tid: int
    name: str
    main: bool
    same: bool | None
    active: bool
    where: str


@dataclass(frozen=True, slots=True)
class StackDiff:
    """What two looks at one process say. `seconds`: how far they lie apart."""

    place: Place
    sentence: str
    seconds: float = 0.0
    threads: tuple[ThreadDiff, ...] = ()


NOTHING_SEEN = StackDiff(Place.UNKNOWN, "there are no two looks at its stacks to compare")


def parse_dump(dump: Any, pid: int) -> Stacks:
    """The threads that a JSON dump of py-spy shows, bounded. ValueError where it is none."""
    if not isinstance(dump, list):
        raise ValueError("is no list of threads")
    return tuple(_thread(entry, pid) for entry in dump[:MAX_THREADS])


def _thread(entry: Any, pid: int) -> ThreadStack:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("frames"), list):
        raise ValueError("a thread in it has no frames")
    tid = _whole(entry.get("os_thread_id"))
    name = _text(entry.get("thread_name"))
    return ThreadStack(
        tid,
        name or f"thread {tid}",
        tid == pid or (tid == 0 and name == "MainThread"),
        entry.get("active") is True,
        tuple(_frame(frame) for frame in entry["frames"][:MAX_FRAMES]),
    )


def _frame(frame: Any) -> Frame:
    if not isinstance(frame, Mapping):
        raise ValueError("a frame in it is none")
    return Frame(_text(frame.get("name")), _text(frame.get("filename")), _whole(frame.get("line")))


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0


def _text(value: Any) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def compare(before: Stacks, after: Stacks, seconds: float) -> StackDiff:
    """What two looks at one process, so many seconds apart, come to."""
    earlier = {thread.tid: thread for thread in before}
    threads = tuple(
        _compared(earlier[thread.tid], thread)
        for thread in after
        if thread.tid in earlier and not thread.name.startswith(OWN_THREADS)
    )
    main = next((thread for thread in threads if thread.main), None)
    moved = [thread for thread in threads if thread.same is False and thread is not main]
    place = _place(main, threads, bool(moved))
    return StackDiff(place, _sentence(place, main, threads, moved, seconds), seconds, threads)


def _compared(before: ThreadStack, after: ThreadStack) -> ThreadDiff:
    active = before.active and after.active
    if not before.frames or not after.frames:
        return ThreadDiff(after.tid, after.name, after.main, None, active, "")
    same = before.frames == after.frames
    where = after.top if same else _common(before.frames, after.frames)
    text = "" if where is None else str(where)
    return ThreadDiff(after.tid, after.name, after.main, same, active, text)


def _common(before: tuple[Frame, ...], after: tuple[Frame, ...]) -> Frame | None:
    """The innermost call that is open in both; its line may be another one."""
    found = None
    for one, other in zip(reversed(before), reversed(after), strict=False):
        if (one.function, one.file) != (other.function, other.file):
            break
        found = other
        if one.line != other.line:
            break
    return found


def _place(main: ThreadDiff | None, threads: tuple[ThreadDiff, ...], others_move: bool) -> Place:
    if not threads or (main is not None and main.same is None and not others_move):
        return Place.UNKNOWN
    if main is None or main.same is None:
        return Place.MOVING if others_move else Place.WEDGED
    if not main.same:
        return Place.MOVING
    return Place.PARTLY if others_move else Place.WEDGED


def _sentence(
    place: Place,
    main: ThreadDiff | None,
    threads: tuple[ThreadDiff, ...],
    moved: list[ThreadDiff],
    seconds: float,
) -> str:
    if place is Place.UNKNOWN:
        return NOTHING_SEEN.sentence
    who = main if main is not None and main.same is not None else (moved or list(threads))[0]
    name = "its main thread" if who.main else f"thread {who.name}"
    over = f"in two looks {seconds:.3g} s apart"
    if place is Place.MOVING:
        within = f" within {who.where}" if who.where else ""
        return f"{name} moves{within} {over}"
    stands = f"{name} stands at {who.where} {over}"
    if who.active:
        stands += ", running both times (one long call, or a loop)"
    if place is Place.PARTLY:
        return f"{stands}, while thread {moved[0].name} moves"
    return f"{stands}, and no other thread moves" if len(threads) > 1 else stands


def together(found: Iterable[StackDiff]) -> StackDiff:
    """What the ranks of one worker come to: wedged only where none of them is known to move."""
    known = [diff for diff in found if diff.place is not Place.UNKNOWN]
    for place in (Place.MOVING, Place.PARTLY, Place.WEDGED):
        for diff in known:
            if diff.place is place:
                return diff
    return NOTHING_SEEN
