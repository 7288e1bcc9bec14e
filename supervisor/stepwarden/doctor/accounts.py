"""What the file itself is warned about, and the users and groups that it names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepwarden.config.engines import VLLM_READY_TIMEOUT, VLLM_STEP_TIMEOUT
from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, ok, problem, warning
from stepwarden.doctor.subject import Subject
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.listen import group_id
from stepwarden.edge.users import user_of
from stepwarden.errors import RefusedError
from stepwarden.naming import counted

THEME = "configuration"
ELSEWHERE = (VLLM_STEP_TIMEOUT, VLLM_READY_TIMEOUT)
"""What is warned of these, the check of time-outs says with more to go by."""


@dataclass(frozen=True, slots=True)
class File:
    """`path` None: there is no file. `warnings`: as `check` prints them."""

    path: Path | None
    workers: int = 0
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accounts:
    """`missing`: (worker, sentence); a worker of "" is the daemon's own settings."""

    named: int
    missing: tuple[tuple[str, str], ...]


def gather_file(subject: Subject) -> File:
    """What loading it said."""
    config = subject.config
    if config is None:
        return File(None)
    chosen = {worker.name for worker in subject.workers}
    others = [f"workers.{name}." for name in config.workers if name not in chosen]
    told = [w for w in config.warnings if not w.path.startswith(tuple(others))]
    told = [w for w in told if not any(name in w.message for name in ELSEWHERE)]
    return File(config.path, len(config.workers), tuple(map(str, told)))


def judge_file(facts: File) -> Iterator[Finding]:
    """A file that can be used may still be wrong."""
    if facts.path is None:
        yield warning(
            "no configuration file was named, and there is none at the usual place: only the host"
            " was looked at",
            "stepwarden doctor FILE",
        )
        return
    for text in facts.warnings:
        yield warning(text, "change it there; `stepwarden check` prints the same")
    if not facts.warnings:
        yield ok(f"{facts.path} can be used: {counted(facts.workers, 'worker')}, no warnings")


def gather_accounts(subject: Subject) -> Accounts:
    """Looks each of them up. May hang where the user database does."""
    named, missing = 0, []
    for worker in subject.workers:
        run_as, attach = worker.run_as, worker.attach
        expected = None if attach is None else attach.expect_user
        for user, group in ((run_as.user, run_as.group), (expected, None)):
            named += (user is not None) + (group is not None)
            try:
                user_of(user, group)
            except SpawnFailed as failure:
                missing.append((worker.name, str(failure)))
    if subject.settings.socket_group is not None:
        named += 1
        try:
            group_id(subject.settings.socket_group)
        except RefusedError as refusal:
            missing.append(("", f"supervisor.socket_group: {refusal}"))
    return Accounts(named, tuple(missing))


def judge_accounts(facts: Accounts) -> Iterator[Finding]:
    """All of them must be there."""
    for worker, sentence in facts.missing:
        yield problem(sentence, "make it (useradd, groupadd, systemd-sysusers)", worker)
    if not facts.missing:
        yield ok(f"every user and group that is named is there ({facts.named})")


CHECKS = (
    Check(THEME, "file", gather_file, judge_file),
    Check(THEME, "users and groups", gather_accounts, judge_accounts),
)
