"""Control groups: the one trace that no process loses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stepwarden.doctor.check import Check
from stepwarden.doctor.finding import Finding, ok, unknown, warning
from stepwarden.doctor.process import text_of
from stepwarden.doctor.subject import Subject
from stepwarden.edge.cgroup import at_control_group, is_ours
from stepwarden.edge.systemd_bus import SystemdBus

THEME = "processes"
OTHER_TRACES = (
    "without groups, processes are found by ancestry, session and marker, which a daemonizing"
    " one can lose"
)


@dataclass(frozen=True, slots=True)
class Groups:
    """`own`: the group of the daemon (or of this shell) in version 2; None: there is none.

    `mounted`: the kinds of hierarchies on this host. `ours`: whether groups may be made below it.
    """

    who: str
    runs: bool
    own: Path | None
    mounted: frozenset[str]
    ours: bool
    can_kill: bool
    systemd: bool


def gather(subject: Subject) -> Groups:
    """Facts of the daemon's group."""
    daemon = subject.daemon
    lines = (text_of(f"/proc/{daemon.process}/cgroup") or "").splitlines()
    name = next((line[len("0::") :] for line in lines if line.startswith("0::/")), "")
    group = at_control_group(name)
    mounts = (text_of("/proc/self/mountinfo") or "").splitlines()
    kinds = {line.partition(" - ")[2].split(" ")[0] for line in mounts}
    return Groups(
        who=daemon.who,
        runs=daemon.pid is not None,
        own=None if group is None else group.path,
        mounted=frozenset(kinds & {"cgroup", "cgroup2"}),
        ours=group is not None and is_ours(group.path),
        can_kill=group is not None and _can_kill(group.path),
        systemd=SystemdBus.booted(),
    )


def judge(facts: Groups) -> Iterator[Finding]:
    """Version 2, delegated to us, with cgroup.kill."""
    if facts.own is None:
        kinds = "version 1 alone" if facts.mounted == {"cgroup"} else "none that we can see"
        yield warning(
            f"control groups of version 2: none for {facts.who} (mounted: {kinds}); {OTHER_TRACES}",
            "boot with systemd.unified_cgroup_hierarchy=1; in a container, mount it and delegate",
        )
        return
    if not facts.ours and facts.systemd and not facts.runs:
        # The daemon's own unit has Delegate=yes; the group of this shell has not.
        yield unknown("the daemon does not run, so its control group cannot be looked at")
    elif not facts.ours:
        yield warning(
            f"the control group of {facts.who} is not delegated to it; {OTHER_TRACES}",
            "Delegate=yes in its unit (the shipped one has it); in a container, a writable"
            " /sys/fs/cgroup. Workers in units of their own need none of it",
        )
    else:
        yield ok(f"groups of version 2 can be made below {facts.own}")
    if facts.can_kill:
        yield ok("cgroup.kill is there: a tree is ended whole, also while it forks")
    else:
        found = "there is no cgroup.kill: a tree that forks while it is ended takes several rounds"
        yield warning(found, "a kernel of 5.14 or later")


def _can_kill(group: Path) -> bool:
    # The root of a hierarchy has no such file; the groups below have.
    if (group / "cgroup.kill").exists():
        return True
    return any((folder / "cgroup.kill").exists() for folder in group.iterdir() if folder.is_dir())


CHECKS = (Check(THEME, "control groups", gather, judge),)
