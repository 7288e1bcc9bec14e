"""`stepwarden doctor`: what an experienced operator would look at, and what to do about it."""

from __future__ import annotations

import argparse
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwarden.cli.arguments import path
from stepwarden.cli.one_worker import wrapped
from stepwarden.cli.texts import as_json, plain
from stepwarden.errors import ExitCode, UnknownWorkerError, UsageError
from stepwarden.naming import counted, unknown

if TYPE_CHECKING:
    from stepwarden.doctor.engine_dead import Path as EngineDeadPath
    from stepwarden.doctor.finding import Finding
    from stepwarden.doctor.running import Result
    from stepwarden.doctor.subject import Subject

USUAL = Path("/etc/stepwarden/stepwarden.yaml")
_MARKS = {"ok": "ok", "warning": "WARNING", "problem": "PROBLEM", "unknown": "unknown"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `doctor`."""
    parser.add_argument(
        "file",
        nargs="?",
        type=path,
        metavar="FILE",
        help=f"the configuration file (default: {USUAL}; where there is none, the host alone)",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument("--worker", metavar="NAME", help="of the workers, look at this one alone")
    parser.add_argument("--quiet", action="store_true", help="only warnings and problems")
    parser.add_argument(
        "--engine-dead",
        metavar="NAME",
        help='the way from "EngineDeadError: RPC call to execute_model timed out" of this worker'
        " to what has to be changed",
    )


def run(options: argparse.Namespace) -> ExitCode:
    """OK; NOT_WELL where there is a problem. Warnings and what cannot be known are none."""
    from stepwarden.cli.doctor_subject import find_subject

    file = _file(options.file)
    if options.engine_dead is not None and file is None:
        raise UsageError("--engine-dead needs FILE, which says what the worker is")
    subject = find_subject(file)
    wanted = options.engine_dead or options.worker
    if wanted is not None:
        subject = _only(subject, wanted)
    if options.engine_dead is not None:
        return _tell_engine_dead(subject, options.json)
    return _tell_checks(subject, options)


def _file(named: Path | None) -> Path | None:
    if named is not None:
        return named
    try:
        return USUAL if USUAL.exists() else None
    except OSError:  # it is there, and loading it will say why it cannot be read
        return USUAL


def _only(subject: Subject, name: str) -> Subject:
    workers = {worker.name: worker for worker in subject.workers}
    if name not in workers:
        raise UnknownWorkerError(unknown("worker", name, list(workers)))
    return replace(subject, workers=(workers[name],))


def _tell_engine_dead(subject: Subject, json: bool) -> ExitCode:
    from stepwarden.doctor.engine_dead import engine_dead

    (worker,) = subject.workers
    found = engine_dead(subject, worker)
    print(as_json(found.as_json()) if json else "\n".join(engine_dead_lines(found)))
    return ExitCode.OK


def _tell_checks(subject: Subject, options: argparse.Namespace) -> ExitCode:
    from stepwarden.clock import SystemClock
    from stepwarden.doctor.finding import Level
    from stepwarden.doctor.registry import CHECKS
    from stepwarden.doctor.running import run_checks, worst

    results = run_checks(CHECKS, subject, SystemClock())
    level = worst(results)
    if options.json:
        print(as_json(as_dict(results, level)))
    else:
        print("\n".join(lines(results, options.quiet)))
    return ExitCode.NOT_WELL if level is Level.PROBLEM else ExitCode.OK


def as_dict(results: list[Result], level: str) -> dict[str, Any]:
    """The JSON document."""
    found = [
        {
            "theme": result.theme,
            "check": result.name,
            "worker": finding.worker or None,
            "level": str(finding.level),
            "found": finding.found,
            "advice": finding.advice or None,
        }
        for result in results
        for finding in result.findings
    ]
    return {"level": str(level), "counts": dict(_counts(results)), "findings": found}


def lines(results: list[Result], quiet: bool = False) -> list[str]:
    """The list for people: by theme, each with what to do, and a last line that counts."""
    told: list[str] = []
    theme = ""
    for result in results:
        shown = [f for f in result.findings if not quiet or f.level in ("warning", "problem")]
        if shown and result.theme != theme:
            theme = result.theme
            told.append(theme.upper())
        for finding in shown:
            told += _finding_lines(result.name, finding)
    counts = _counts(results)
    last = [counted(counts[level], level) for level in ("problem", "warning")]
    last += [f"{counts[level]} {level}" for level in ("unknown", "ok")]
    return [*told, ", ".join(last)]


def _finding_lines(name: str, finding: Finding) -> list[str]:
    who = f"{finding.worker}: " if finding.worker else ""
    mark = _MARKS[finding.level]
    told = wrapped(f"  {mark:<8} {name}: {who}{plain(finding.found)}", indent=11)
    if finding.advice:
        told += wrapped(f"           -> {plain(finding.advice)}", indent=14)
    return told


def _counts(results: list[Result]) -> Counter[str]:
    levels = [str(finding.level) for result in results for finding in result.findings]
    return Counter({level: levels.count(level) for level in _MARKS})


def engine_dead_lines(found: EngineDeadPath) -> list[str]:
    """The path for people."""
    told = [f'{found.worker}: "EngineDeadError: RPC call to execute_model timed out"', ""]
    for number, step in enumerate(found.steps, 1):
        told.append(f"{number}. {step.question}")
        told += wrapped(f"   {plain(step.answer)}", indent=3)
    told += ["", "What to change, the best first:"]
    for text in found.change:
        told += wrapped(f"  - {plain(text)}", indent=4)
    return told
