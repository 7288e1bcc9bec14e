"""Runs every benchmark and writes docs/benchmarks.md.

    run.py [--strict] [--restarts N] [NAME...]

With names, runs only those and writes nothing. A missed target is shown; with --strict it also
gives exit code 1, which is for a quiet machine: a shared one misses targets for its own reasons.
A benchmark that could not finish is a missed row with its reason, and the others still run.
"""

from __future__ import annotations

import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import agent_cost
import crash_to_exec
import daemon_cost
import health_load
import judge
import lateness
import leaks
import reload
import results
import scrape
import startup
import step_cost
import thousand_ranks

BENCHMARKS = (
    step_cost,
    agent_cost,
    startup,
    crash_to_exec,
    lateness,
    daemon_cost,
    health_load,
    reload,
    leaks,
    scrape,
    thousand_ranks,
)
BY_NAME = (judge,)
"""Only run where they are asked for."""


def main() -> int:
    """All of them, or those named on the command line."""
    wanted = _names(sys.argv[1:])
    found: list[results.Result] = []
    for benchmark in BENCHMARKS + BY_NAME if wanted else BENCHMARKS:
        if wanted and benchmark.__name__ not in wanted:
            continue
        print(f"... {benchmark.__name__}", file=sys.stderr, flush=True)
        found += _measured(benchmark)
    if wanted:
        for result in found:
            print(result)
    else:
        results.write(found)
    missed = any(result.met is False for result in found)
    return 1 if missed and "--strict" in sys.argv else 0


def _measured(benchmark: ModuleType) -> Sequence[results.Result]:
    """Its rows; one that says why where it did not finish."""
    try:
        with tempfile.TemporaryDirectory(prefix="sw-") as scratch:
            rows: Sequence[results.Result] = benchmark.measure(Path(scratch))
            return rows
    except Exception as fault:
        traceback.print_exc()
        return [results.unfinished(benchmark.__name__, fault)]


def _names(words: list[str]) -> set[str]:
    """The benchmarks named; what else stands there is for them."""
    known = {benchmark.__name__ for benchmark in BENCHMARKS + BY_NAME}
    options = {"--strict", "--restarts"}
    wrong = [w for w in words if w not in known | options and not w.isdecimal()]
    if wrong:
        sys.exit(f"run.py: there is no benchmark {', '.join(wrong)}; there are {sorted(known)}")
    return known & set(words)


if __name__ == "__main__":
    sys.exit(main())
