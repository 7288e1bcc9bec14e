"""Has the kernel's facts of late ranks read aside, and puts them where the next turn finds them.

One reading runs at a time for each life, in a thread that nobody waits for. One that hangs leaves
the facts as they are, and facts that grow old speak for nobody (`core/diagnosing.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping

from stepwarden.clock import Clock
from stepwarden.core.clocks import WORKER
from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import ProcessId
from stepwarden.core.fact_needs import facts_due, soon
from stepwarden.core.facts import RankFacts
from stepwarden.daemon.fact_pace import FactPace
from stepwarden.daemon.life import Life
from stepwarden.daemon.unit import Unit
from stepwarden.edge.aside import Aside
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.rank_facts import read_facts

READING_SECONDS = 2.0
"""A reading that takes longer is not waited for, and what it brings is not used."""

StartTask = Callable[[Coroutine[None, None, None]], object]


class FactFinder:
    """Reads facts for every worker. `poke`: told of a worker when its facts have come."""

    def __init__(self, start: StartTask, poke: Callable[[Unit], None], clock: Clock) -> None:
        self._start = start
        self._poke = poke
        self._clock = clock
        self._pace = FactPace()

    def look(self, unit: Unit, table: ProcessTable | None, now: float) -> None:
        """Begin a reading where one is due. `table`: a snapshot of this turn, if there is one."""
        life = unit.life
        if life is None or life.reading.under_way:
            return
        suspicions, window = unit.state.suspicions, unit.policy.window
        if not facts_due(unit.clocks, suspicions, window, life.reading.asked, now):
            return
        processes = _processes(unit, life, now)
        if processes and self._pace.may_begin(life.worker, now):
            life.reading.asked = now
            life.reading.under_way = True
            self._start(self._read(unit, life, processes, table))

    async def _read(
        self,
        unit: Unit,
        life: Life,
        processes: Mapping[str, ProcessId],
        table: ProcessTable | None,
    ) -> None:
        reading = life.reading
        aside = reading.aside = reading.aside or Aside(self._clock)
        began = self._clock.monotonic()
        deadline = Deadline.after(began, READING_SECONDS)
        try:
            found = await aside.call(lambda: read_facts(processes, table, self._clock), deadline)
        except OSError:  # TimeoutError included: nothing is known then, and that is said
            return
        finally:
            reading.under_way = False
            self._pace.ended(began, self._clock.monotonic())
        note_facts(life, found)
        if unit.life is life:
            self._poke(unit)


def note_facts(life: Life, found: Mapping[str, RankFacts]) -> None:
    """Keep these readings; the one before stays beside each."""
    for name, facts in found.items():
        if name == WORKER:
            life.tree_facts = (life.tree_facts[1], facts)
        elif (memory := life.ranks.get(name)) is not None:
            memory.facts = (memory.facts[1], facts)


def _processes(unit: Unit, life: Life, now: float) -> dict[str, ProcessId]:
    """Every rank whose process is known, for peers explain each other; main where it is late."""
    found = {
        name: memory.process
        for name, memory in life.ranks.items()
        if memory.process is not None and not memory.lost
    }
    as_a_whole = any(clock.subject == WORKER and soon(clock, now) for clock in unit.clocks)
    if as_a_whole and life.main is not None:
        found[WORKER] = life.main
    return found
