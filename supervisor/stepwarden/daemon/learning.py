"""Learns what is usual for each rank from its ended steps, and keeps it for later lives.

Each rank has a table of its own: the ranks of one engine run the same steps, and learned together
one odd step would count as many times as there are ranks. `learn: off` learns nothing, and what was
kept stays for the day on which it is switched on again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Protocol

from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.core.event import Event, Kind
from stepwarden.core.lifecycle import LIVE
from stepwarden.core.policy import LEARN_OFF
from stepwarden.core.sentences import rank_name
from stepwarden.core.subject import Subject
from stepwarden.core.trial import Trial
from stepwarden.core.turn import HEARTBEAT_SECONDS
from stepwarden.core.usual import Usual
from stepwarden.core.worker import Outcome
from stepwarden.daemon.lesson import Lesson
from stepwarden.daemon.life import Life, RankMemory
from stepwarden.daemon.subjects import subject_of
from stepwarden.daemon.unit import Unit
from stepwarden.edge.learned_text import from_text, key_of, to_text

READER = "learn"
KEEP_SECONDS = 10.0
"""What is new is written down this long after it was learned; a kill costs no more than that."""

NOTHING = Usual()


class Tables(Protocol):
    """What learning needs of the state store."""

    def learned(self, key: str) -> str | None:
        """What was kept under this key; None: nothing. It counts as used now."""

    def note_learned(self, key: str, worker: str, body: str) -> None:
        """Keep this; the newest wins."""

    def forget_learned(self, key: str) -> None:
        """Keep it no more."""


class Learning:
    """Looks at each worker once a second. Runs in the loop's thread and waits for nothing."""

    def __init__(self, tables: Tables, note: Callable[[Event], None]) -> None:
        self._tables = tables
        self._note = note

    def look(self, unit: Unit, life: Life, now: float) -> None:
        """Take in the steps of this life that have ended since the last look."""
        if unit.policy.learn == LEARN_OFF or life.unteachable:
            self._stop(life)
            return
        try:
            self._look(unit, life, now)
        except Exception as error:
            # Whatever is wrong here must not keep a worker from being judged.
            life.unteachable = True
            text = f"a fault of ours in learning: {type(error).__name__}: {error}; the YAML holds"
            self._note(Event(Kind.DAEMON, text, life.worker, str(life.incarnation)))

    def follow(self, unit: Unit, _outcome: Outcome, _now: float) -> None:
        """A life that is over: what it taught is kept at once."""
        if unit.life is not None and unit.state.lifecycle not in LIVE:
            self._keep_all(unit.life)

    def close(self, units: Iterable[Unit]) -> None:
        """The daemon ends: keep what is new."""
        for unit in units:
            if unit.life is not None:
                self._keep_all(unit.life)

    def _look(self, unit: Unit, life: Life, now: float) -> None:
        if life.taught_at is not None and elapsed(life.taught_at, now) < HEARTBEAT_SECONDS / 2:
            return
        life.taught_at = now
        for name, memory in life.ranks.items():
            if memory.page is not None and not memory.left:
                self._look_at(unit, life, name, memory, now)

    def _stop(self, life: Life) -> None:
        """Know nothing of this life from now on; what it taught is kept."""
        self._keep_all(life)
        for memory in life.ranks.values():
            memory.usual = memory.lesson = None

    def _look_at(self, unit: Unit, life: Life, name: str, memory: RankMemory, now: float) -> None:
        page = memory.page
        if page is None or not page.steps_begun:
            return
        samples = memory.reader.news(READER, page, life.adopted)
        lesson = self._lesson(unit, life, name, memory)
        if lesson is None:
            return
        if lesson.keep_at.passed(now):
            self._keep(lesson)
        if not (samples[0] or samples[1]):
            return
        misfit = lesson.take(samples, unit.policy)
        if misfit is not None:
            self._tell_dropped(life, name, lesson, misfit)
        memory.usual = lesson.usual
        if lesson.keep_at.at is None:
            lesson.keep_at = Deadline.after(now, KEEP_SECONDS)

    def _lesson(self, unit: Unit, life: Life, name: str, memory: RankMemory) -> Lesson | None:
        """That of the rank's present process; None while nobody has said what it runs."""
        beats = memory.beats
        if beats is None:
            return memory.lesson
        lesson = memory.lesson
        if lesson is None or lesson.process != beats.process:
            if lesson is not None:
                self._keep(lesson)
            subject = subject_of(unit.running_config, name, beats.last, memory.process)
            known = self._known(subject, going_on=life.adopted and lesson is None)
            trial = None if known is None else Trial()
            usual = NOTHING if known is None else known
            lesson = Lesson(beats.process, subject, usual, trial, Deadline.never())
            memory.lesson, memory.usual = lesson, usual
        return lesson

    def _known(self, subject: Subject, *, going_on: bool) -> Usual | None:
        """What earlier lives taught; with `going_on` this one did, to an earlier daemon."""
        body = self._tables.learned(key_of(subject))
        usual = None if body is None else from_text(body)
        return usual if usual is None or going_on else usual.new_life()

    def _keep_all(self, life: Life) -> None:
        for memory in life.ranks.values():
            if memory.lesson is not None:
                self._keep(memory.lesson)

    def _keep(self, lesson: Lesson) -> None:
        if lesson.keep_at.at is None:
            return
        lesson.keep_at = Deadline.never()
        subject = lesson.subject
        if any(lesson.usual.rows):
            self._tables.note_learned(key_of(subject), subject.worker, to_text(lesson.usual))

    def _tell_dropped(self, life: Life, name: str, lesson: Lesson, misfit: float) -> None:
        self._tables.forget_learned(key_of(lesson.subject))
        how = f"{misfit:.3g} times slower" if misfit > 1.0 else f"{1.0 / misfit:.3g} times faster"
        text = f"the first steps of {rank_name(name)} are {how} than was usual: that is dropped"
        number = str(life.incarnation)
        data: dict[str, float | int | str | None] = {
            "ratio": misfit,
            "of": lesson.subject.sentence(),
        }
        self._note(Event(Kind.LEARNED, text, life.worker, number, rank=name, data=data))
