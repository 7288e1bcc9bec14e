"""Step sections: how one goes over another, and the pure rule that comes out."""

from __future__ import annotations

import itertools

from stepwarden.config.findings import Findings
from stepwarden.config.model import StepSection
from stepwarden.config.problems import Path
from stepwarden.config.sections import put_over
from stepwarden.config.values import seconds_text
from stepwarden.core import budget
from stepwarden.core.budget import Formula, Rows, StepRule

_FORMULA_KEYS = frozenset({"base", "per_seq"})
_ROWS_KEYS = frozenset({"rows", "beyond"})


def shipped_steps() -> dict[str, StepSection]:
    """The step sections of the shipped backends."""
    return {
        name: StepSection().model_copy(
            update={"base": rule.base, "per_seq": rule.per_seq, "max": rule.maximum}
        )
        for name, rule in budget.SHIPPED.items()
    }


def put_step_over(base: StepSection, said: StepSection) -> StepSection:
    """`said` over `base`, key by key; where it changes the form, the old form's keys go."""
    dropped: frozenset[str] = frozenset()
    if said.model_fields_set & _ROWS_KEYS and said.rows is not None:
        dropped = _FORMULA_KEYS
    elif said.model_fields_set & _FORMULA_KEYS:
        dropped = _ROWS_KEYS
    return put_over(base.model_copy(update=dict.fromkeys(dropped)), said)


def check_form(said: StepSection, path: Path, findings: Findings) -> None:
    """Refuse a section that writes both forms at once."""
    both = sorted(said.model_fields_set & _FORMULA_KEYS), sorted(said.model_fields_set & _ROWS_KEYS)
    if all(both):
        message = f"{both[0][0]} belongs to a formula and {both[1][0]} to rows"
        findings.error(path, message, "base and per_seq, or rows and beyond")


def build_step(section: StepSection, path: Path, findings: Findings) -> StepRule | None:
    """The rule of a merged section; None where `findings` says why not."""
    maximum = budget.DEFAULT_MAX_SECONDS if section.max is None else section.max
    per_token = section.per_token or 0.0
    if section.rows is not None:
        rows = tuple(sorted(section.rows.items()))
        good = _rows_rise(rows, section.beyond, path, findings)
        return Rows(rows, section.beyond, per_token, maximum) if good else None
    if section.beyond is not None:
        findings.consequence((*path, "beyond"), "goes with rows, and there are none")
        return None
    if section.base is None:
        findings.consequence(path, "says no budget", "base (and per_seq), or rows")
        return None
    return Formula(section.base, section.per_seq or 0.0, per_token, maximum)


def _rows_rise(
    rows: tuple[tuple[int, float], ...], beyond: float | None, path: Path, findings: Findings
) -> bool:
    if not rows:
        findings.consequence((*path, "rows"), "is empty; at least one row is needed")
        return False
    good = True
    for (low, less), (high, seconds) in itertools.pairwise(rows):
        if seconds < less:
            good = False
            message = f"a larger batch has a smaller budget than row {low}: {seconds_text(less)}"
            findings.error((*path, "rows", str(high)), message, "budgets that rise with the batch")
    if beyond is not None and beyond < rows[-1][1]:
        good = False
        message = f"is below the last row: {seconds_text(rows[-1][1])}"
        findings.error((*path, "beyond"), message, "not below the last row")
    return good
