"""Does a daemon answer, is it this version, and what does it say of itself?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from stepwarden import __version__
from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, names, ok, problem, unknown, warning
from stepwarden.doctor.subject import Subject

THEME = "daemon"
STALE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class State:
    """`version` "": it gave no answer, and `silence` says why. `pid` None: nobody listens.
    `refused`: it is there, and not for this user. `killed`: it is gone, and its socket is not.

    `reload_failure`: why the last reload failed, "" for none. `unknown_workers`: of the file, and
    not known to it.
    """

    version: str
    silence: str
    pid: int | None
    uid: int
    our_uid: int
    loop_age: float = 0.0
    trouble: str = ""
    runner_note: str = ""
    reload_failure: str = ""
    refused: bool = False
    killed: bool = False
    unknown_workers: tuple[str, ...] = ()


def gather(subject: Subject) -> State:
    """Facts of its answer."""
    daemon, answer = subject.daemon, subject.daemon.answer
    common = (daemon.silence, daemon.pid, daemon.uid, os.geteuid())
    if answer is None:
        return State("", *common, refused=daemon.refused, killed=daemon.killed)
    known = {worker.name for worker in answer.workers}
    # A daemon of before `reload` has no such field.
    configuration = getattr(answer, "configuration", None)
    return State(
        answer.version,
        *common,
        loop_age=answer.loop_age_seconds,
        trouble=answer.trouble,
        runner_note=answer.runner_note,
        reload_failure=str(getattr(configuration, "failure", "")),
        unknown_workers=tuple(w.name for w in subject.workers if w.name not in known),
    )


def judge(facts: State) -> Iterator[Finding]:
    """No daemon is no problem before the first start; one that does not answer is."""
    if not facts.version:
        if facts.refused:
            yield unknown(facts.silence, "ask as root, or as a member of supervisor.socket_group")
        elif facts.killed:
            found = f"{facts.silence}: the daemon has ended without taking its socket away"
            advice = "journalctl -u stepwarden says how; systemctl start stepwarden, or stepwarden"
            yield problem(found, f"{advice} run FILE: workers that live are adopted")
        elif facts.pid is None:
            yield unknown(facts.silence, "systemctl start stepwarden, or stepwarden run FILE")
        else:
            advice = f"cat /proc/{facts.pid}/wchan; journalctl -u stepwarden; see docs/runbook.md"
            yield problem(f"pid {facts.pid} listens and does not answer: {facts.silence}", advice)
        return
    yield (
        ok(f"pid {facts.pid or 'unknown'} answers")
        if facts.loop_age <= STALE_SECONDS
        else (
            problem(
                f"it answers, and its verdict loop has stood still for {facts.loop_age:.0f} s",
                "systemctl restart stepwarden; workers live on. Please report it, with the journal",
            )
        )
    )
    yield from _judge_version(facts)
    yield from _judge_words(facts)


def _judge_version(facts: State) -> Iterator[Finding]:
    if facts.version != __version__:
        yield warning(
            f"the daemon is version {facts.version}, this command {__version__}",
            "systemctl restart stepwarden, so that the daemon is the installed version too",
        )
    else:
        yield ok(f"daemon and command are version {facts.version}")
    if facts.uid != facts.our_uid:
        yield warning(
            f"the daemon runs as uid {facts.uid}, this command as uid {facts.our_uid}: what is"
            " said of permissions holds for the latter",
            f"sudo -u '#{facts.uid}' stepwarden doctor",
        )


def _judge_words(facts: State) -> Iterator[Finding]:
    if facts.reload_failure:
        found = f"the last reload failed, the configuration before it holds: {facts.reload_failure}"
        yield problem(found, "stepwarden check FILE, mend it, stepwarden reload")
    if facts.trouble:
        yield problem(facts.trouble, "see docs/runbook.md, StepwardenTrouble")
    if facts.runner_note:
        advice = "see docs/runbook.md, Start, stop, reload; or write runner: spawn"
        yield warning(facts.runner_note, advice)
    if facts.unknown_workers:
        yield warning(
            f"the daemon does not know {names(facts.unknown_workers)}: it runs another file, or"
            " this one was changed since it was loaded",
            "stepwarden reload, or name the file that the daemon runs",
        )


CHECKS = (Check(THEME, "daemon", gather, judge),)
