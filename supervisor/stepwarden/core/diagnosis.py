"""Why is it late? Everything that is known of one rank, fused into one word of a closed list.

The rules are tried in the order of the table; the first one that finds grounds wins. What stops a
process for certain comes first (a stop, the kernel), then what keeps it from running, then what
its engine says, then what its CPU says, and at last `unknown`. A diagnosis explains; whether a
worker is dead is still decided by the window and the hard cap alone (`core/verdict.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from stepwarden.core import grounds, grounds_cpu
from stepwarden.core.case import Case
from stepwarden.core.evidence import RankEvidence
from stepwarden.core.finding import Diagnosis, Finding

Rule = Callable[[Case], str | None]
"""The grounds for this diagnosis, with numbers; None where there are none."""

D = Diagnosis

RULES: tuple[tuple[Diagnosis, Rule], ...] = (
    (D.STOPPED, grounds.stopped),
    (D.EXITED, grounds.zombie),
    (D.UNINTERRUPTIBLE, grounds.uninterruptible),
    (D.SUPERVISOR_PAUSED, grounds.supervisor_paused),
    (D.STARVED, grounds_cpu.starved),
    (D.LOCK_HELD, grounds.lock_held),
    (D.RANK_BEHIND, grounds.rank_behind),
    (D.SCHEDULER_STUCK, grounds.scheduler_stuck),
    (D.AGENT_SILENT, grounds.agent_silent),
    (D.SLOW, grounds_cpu.slow),
    (D.SPINNING, grounds_cpu.spinning),
    (D.WAITING, grounds_cpu.waiting),
)

_RANKING = {diagnosis: place for place, (diagnosis, _) in enumerate(RULES)}


def diagnose(case: Case) -> Finding:
    """The first rule that finds grounds; `unknown`, and what is missing, where none does."""
    for diagnosis, rule in RULES:
        sentence = rule(case)
        if sentence is not None:
            return Finding(diagnosis, sentence, _named(case, diagnosis))
    return Finding(D.UNKNOWN, grounds_cpu.unknown(case), case.clock.subject)


def _named(case: Case, diagnosis: Diagnosis) -> str:
    """Whom it names: the rank that is behind is as a rule not the one that is late."""
    if diagnosis is D.RANK_BEHIND:
        return grounds.behind(case.peers, case.now) or case.clock.subject
    return case.clock.subject


def most_telling(findings: Iterable[Finding | None]) -> Finding | None:
    """Of several late things: the finding whose rule comes first; None where there is none."""
    known = [finding for finding in findings if finding is not None]
    return min(known, key=lambda f: _RANKING.get(f.diagnosis, len(RULES)), default=None)


def standing(ranks: dict[str, RankEvidence], silent: frozenset[str], now: float) -> Finding | None:
    """What can be said of a worker that nothing is late of: silent, idle, or nothing at all."""
    for name in sorted(silent & ranks.keys()):
        return Finding(D.AGENT_SILENT, grounds.silent_channel(name, ranks[name], now), name)
    sentence = grounds.idle(ranks, now)
    return None if sentence is None else Finding(D.IDLE, sentence)
