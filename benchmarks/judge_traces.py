"""Step traces of a real engine, at their own pace or as if the machine were slower.

`data/*.csv`: each row one forward pass of vLLM on one CPU core with a small model: its scheduled
tokens, its sequences, and how long it took.
"""

from __future__ import annotations

import csv
import statistics
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path

DATA = Path(__file__).resolve().parent / "data"
BATCHES = "mid82M_fp32_1core"
HELD_OUT = "mid82M_fp32_1core_poisson"
INTERRUPTED = 50.0
"""A step that took so many times the median of its size did not compute for that long: the process
was stopped meanwhile. A slower machine would not stop it for longer."""


@dataclass(frozen=True)
class Step:
    """One forward pass. `working`: it computed all the time."""

    num_seqs: int
    num_tokens: int
    seconds: float
    working: bool = True


def load(name: str, scale: float = 1.0) -> list[Step]:
    """The steps of a trace, computing `scale` times as long."""
    with (DATA / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    steps = [Step(int(r["batch"]), int(r["tokens"]), float(r["seconds"])) for r in rows]
    return [_slowed(step, scale) for step in _marked(steps)]


def _marked(steps: list[Step]) -> list[Step]:
    by_size: dict[int, list[float]] = defaultdict(list)
    for step in steps:
        by_size[step.num_tokens].append(step.seconds)
    median = {size: statistics.median(seconds) for size, seconds in by_size.items()}
    return [
        replace(step, working=step.seconds <= INTERRUPTED * median[step.num_tokens])
        for step in steps
    ]


def _slowed(step: Step, scale: float) -> Step:
    return replace(step, seconds=step.seconds * scale) if step.working else step
