"""What was measured, beside what was to be met; printed and written to docs/benchmarks.md."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "benchmarks.md"


@dataclass(frozen=True)
class Result:
    """One figure. `target` is what was asked for, `met` None where nothing was."""

    topic: str
    what: str
    figure: str
    target: str = ""
    met: bool | None = None


def median(values: Sequence[float]) -> float:
    return statistics.median(values)


def percentile(values: Sequence[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def ratio(topic: str, what: str, value: float, target: float, unit: str = "x") -> Result:
    """A figure that has to stay at or below `target`."""
    text = f"{value:.3g} {unit}".replace(" x", "x")
    return Result(topic, what, text, f"<= {target:g} {unit}".replace(" x", "x"), value <= target)


def at_least(topic: str, what: str, value: float, target: float) -> Result:
    """A figure that has to reach `target`."""
    return Result(topic, what, f"{value:.3g}x", f">= {target:g}x", value >= target)


def unfinished(benchmark: str, fault: Exception) -> Result:
    """A benchmark that gave no figure, with its reason on one line."""
    reason = " ".join(f"{type(fault).__name__}: {fault}".split()).replace("|", "/")
    return Result(benchmark, "did not finish", reason[:200], "a figure", met=False)


def write(results: Sequence[Result]) -> None:
    """Print the table and put it into the docs."""
    rows = ["| topic | what | measured | asked for | |", "|---|---|---|---|---|"]
    for result in results:
        mark = "" if result.met is None else ("met" if result.met else "**missed**")
        rows.append(
            f"| {result.topic} | {result.what} | {result.figure} | {result.target} | {mark} |"
        )
    table = "\n".join(rows)
    print(table)
    DOCUMENT.write_text(_document(table), encoding="utf-8")


def _document(table: str) -> str:
    return f"""# Benchmarks

Written by `make bench`. Speeds are ratios against a reference in the same run wherever a ratio
says what is meant: the machine is shared, and its absolute times come and go.

Measured with Python {platform.python_version()} on {platform.machine()}, {os.cpu_count()} cores.

{table}

How each figure is taken is described at the top of its module in `benchmarks/`.
"""
