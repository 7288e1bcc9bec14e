"""Checks that hang, fail or refuse cost a line each, and nothing else."""

from __future__ import annotations

import threading
from pathlib import Path

from stepwarden.clock import SystemClock
from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Level, ok, problem
from stepwarden.doctor.running import run_checks, worst
from stepwarden.doctor.subject import Subject
from stepwarden.errors import StepwardenError
from support.doctor_subject import subject


def test_no_check_holds_up_or_breaks_another(tmp_path: Path) -> None:
    release = threading.Event()

    def hang(_: Subject) -> None:
        release.wait(60)

    def fail(error: Exception) -> Check[None]:
        def gather(_: Subject) -> None:
            raise error

        return Check("t", "fails", gather, lambda _: [])

    checks = [
        Check("t", "hangs", hang, lambda _: [ok("late")]),
        fail(OSError(5, "Input/output error")),
        fail(StepwardenError("cannot read the shipped file")),
        fail(ZeroDivisionError("a fault")),
        Check("t", "fine", lambda _: None, lambda _: [ok("fine")]),
    ]
    results = run_checks(checks, subject(tmp_path), SystemClock(), limit=1.0)
    release.set()
    found = [result.findings[0] for result in results]
    assert [f.level for f in found] == [Level.UNKNOWN] * 4 + [Level.OK]
    for finding, text in zip(
        found,
        ("no answer within 1 s", "Input/output", "shipped", "please report", "fine"),
        strict=True,
    ):
        assert text in finding.found
    assert worst(results) is Level.OK
    bad = run_checks(
        [Check("t", "bad", lambda _: None, lambda _: [problem("x", "y")])],
        subject(tmp_path),
        SystemClock(),
    )
    assert worst(bad) is Level.PROBLEM
