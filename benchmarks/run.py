"""Runs every benchmark, writes docs/benchmarks.md; exit code 1 where a target is missed."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import agent_cost
import crash_to_exec
import daemon_cost
import lateness
import results
import startup
import step_cost

BENCHMARKS = (step_cost, agent_cost, startup, crash_to_exec, lateness, daemon_cost)


def main() -> int:
    """All of them, or those named on the command line."""
    wanted = set(sys.argv[1:])
    found: list[results.Result] = []
    for benchmark in BENCHMARKS:
        if wanted and benchmark.__name__ not in wanted:
            continue
        print(f"... {benchmark.__name__}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix="sw-") as scratch:
            found += benchmark.measure(Path(scratch))
    if wanted:
        for result in found:
            print(result)
    else:
        results.write(found)
    return 1 if any(result.met is False for result in found) else 0


if __name__ == "__main__":
    sys.exit(main())
