"""Can the daemon see and signal what it supervises, and can a person look at its stacks?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, names, ok, problem, unknown, warning
from stepwarden.doctor.process import capabilities_of
from stepwarden.doctor.subject import Subject
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.tracing import INSTALL, SCOPES, find_py_spy, find_tracing
from stepwarden.edge.users import user_of

THEME = "processes"


@dataclass(frozen=True, slots=True)
class Seeing:
    """`scope` None: no yama. `others`: workers of another user than the daemon's.

    `capabilities` None: they cannot be read. `py_spy`: where it is, None: nowhere. `wanted`: the
    configuration lets the daemon capture stacks.
    """

    who: str
    scope: int | None
    capabilities: frozenset[str] | None
    others: tuple[str, ...]
    py_spy: str | None
    wanted: bool = True


def gather(subject: Subject) -> Seeing:
    """Facts of the daemon, or of this shell in its place."""
    daemon = subject.daemon
    return Seeing(
        who=daemon.who,
        scope=find_tracing().scope,
        capabilities=capabilities_of(daemon.process),
        others=_of_other_users(subject, daemon.uid),
        py_spy=find_py_spy(),
        wanted=subject.settings.incidents.stacks,
    )


def judge_reach(facts: Seeing) -> Iterator[Finding]:
    """Workers of other users need capabilities."""
    if not facts.others:
        yield ok("every worker runs as the daemon's user, which may see and signal it")
        return
    if facts.capabilities is None:
        yield unknown(f"the capabilities of {facts.who} cannot be read", "ask as root")
        return
    who = names(facts.others)
    lacking = [
        n for n in ("CAP_KILL", "CAP_SYS_PTRACE", "CAP_SETUID") if n not in facts.capabilities
    ]
    if not lacking:
        yield ok(f"{facts.who} may see and signal processes of other users ({who})")
        return
    yield problem(
        f"{facts.who} has no {', '.join(lacking)}, and {who} run as other users: they cannot be"
        " started as these, seen whole or ended",
        "run the daemon as root (stepwarden install --mode root), have the workers in units of"
        " their own (--mode units), or let them run as the daemon's user",
    )


def judge_stacks(facts: Seeing) -> Iterator[Finding]:
    """Whether the daemon, or a person, can look at the stack of a hung worker."""
    may = facts.capabilities is not None and "CAP_SYS_PTRACE" in facts.capabilities
    says = SCOPES.get(facts.scope or 0)
    if facts.scope == 3:
        advice = "boot without kernel.yama.ptrace_scope=3; no py-spy or gdb works until then"
        yield warning("kernel.yama.ptrace_scope is 3: nobody may trace anybody", advice)
    elif says is not None and not may:
        yield warning(
            f"kernel.yama.ptrace_scope is {facts.scope}: {facts.who} may read stacks {says}",
            "give the daemon CAP_SYS_PTRACE or set it to 0, else no stacks are captured; a person"
            " can look as root (sudo py-spy dump --pid PID)",
        )
    else:
        scope = "no yama" if facts.scope is None else f"ptrace_scope {facts.scope}"
        yield ok(f"stacks of workers can be read ({scope})")
    if not facts.wanted:
        yield ok("no stacks are captured: incidents.stacks is off")
    elif facts.py_spy is None:
        text = "py-spy is not installed: nobody will see where a hung Python worker stood"
        yield warning(text, f"{INSTALL}; or write incidents: {{stacks: off}}")
    else:
        yield ok(f"py-spy is there: {facts.py_spy}")


def _of_other_users(subject: Subject, uid: int) -> tuple[str, ...]:
    found = []
    for worker in subject.started:
        try:
            owner = user_of(worker.run_as.user).uid if worker.run_as.user else uid
        except SpawnFailed:
            continue  # the check of accounts tells of it
        if owner != uid:
            found.append(worker.name)
    return tuple(found)


CHECKS = (
    Check(THEME, "reach", gather, judge_reach),
    Check(THEME, "stacks", gather, judge_stacks),
)
