"""Groups and `needs`: names that are there, and an order in which everything can start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from stepwarden.config.findings import Findings
from stepwarden.config.model import File
from stepwarden.config.problems import Path
from stepwarden.config.sections import RestartTimes, put_over
from stepwarden.config.settings import GroupConfig
from stepwarden.core.groups import OnDead
from stepwarden.core.policy import RestartPolicy
from stepwarden.naming import first_names, nearest, shown


def build_groups(file: File, findings: Findings) -> dict[str, GroupConfig]:
    """All groups of a file, by name; the findings say what is wrong with them."""
    groups: dict[str, GroupConfig] = {}
    home: dict[str, str] = {}
    for name, section in file.groups.items():
        for place, member in enumerate(section.members):
            path: Path = ("groups", name, "members", place)
            if member in home:
                where = "here" if home[member] == name else f"in group {home[member]}"
                message = f"worker {shown(member)} is written {where} too"
                findings.error(path, message, "each worker in one group, once")
                continue
            home[member] = name
            _check_name(member, file, path, findings)
        restart = restart_times(put_over(_times(file), section.restart))
        groups[name] = GroupConfig(name, tuple(section.members), OnDead(section.on_dead), restart)
    _check_order(file, groups, findings)
    return groups


def group_of(groups: Mapping[str, GroupConfig]) -> dict[str, GroupConfig]:
    """The group of each worker that is in one."""
    return {member: group for group in groups.values() for member in group.members}


def restart_times(section: RestartTimes, on: str = "any_exit") -> RestartPolicy:
    """The policy that a section of restarts says."""
    return RestartPolicy(
        on=on,
        delay=section.delay,
        factor=section.factor,
        max_delay=section.max_delay,
        jitter=section.jitter,
        limit=section.limit,
        within=section.within,
        stable=section.stable,
    )


def _times(file: File) -> RestartTimes:
    """What `defaults` say of restarts, without what a group cannot say."""
    return put_over(RestartTimes(), file.defaults.restart)


def _check_name(name: str, file: File, path: Path, findings: Findings) -> None:
    if name in file.workers or findings.written(("workers", name)):
        return  # one that was refused is told of at its own place
    known, meant = first_names(file.workers), nearest(name, file.workers)
    findings.error(path, f"there is no worker {shown(name)}", known, meant)


def _check_order(file: File, groups: Mapping[str, GroupConfig], findings: Findings) -> None:
    """Everything has to be able to start: after what it needs, and in the order of its group."""
    homes = group_of(groups)
    after: dict[str, list[str]] = {}
    for name, section in file.workers.items():
        earlier, later = _around(name, homes.get(name))
        after[name] = list(earlier[-1:])
        for place, needed in enumerate(section.needs):
            path: Path = ("workers", name, "needs", place)
            _check_name(needed, file, path, findings)
            if needed == name:
                findings.error(path, f"worker {name} needs itself", "other workers")
            elif needed in later:
                message = f"{needed} comes after {name} in group {homes[name].name}"
                findings.error(path, message, "in a group, members that come before it")
            elif needed in section.needs[:place]:
                findings.error(path, f"{needed} is written twice", "each worker once")
            else:
                after[name].append(needed)
                _check_autostart(name, needed, file, path, findings)
    for cycle in _cycles(after):
        text = " -> ".join((*cycle, cycle[0]))
        path = ("workers", cycle[0], "needs")
        findings.error(path, f"none of these could ever start: {text}", "needs without a circle")


def _around(name: str, group: GroupConfig | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The members of its group that start before and after a worker."""
    if group is None:
        return (), ()
    place = group.members.index(name)
    return group.members[:place], group.members[place + 1 :]


def _check_autostart(name: str, needed: str, file: File, path: Path, findings: Findings) -> None:
    other = file.workers.get(needed)
    if other is not None and not other.autostart and file.workers[name].autostart:
        message = f"{needed} waits for an operator (autostart: false), and {name} with it"
        findings.warning(path, message)


def _cycles(after: Mapping[str, list[str]]) -> Iterator[tuple[str, ...]]:
    """Each circle once, in the order of the file; no recursion, since chains may be long."""
    done: set[str] = set()
    for start in after:
        trail: list[str] = []
        open_now: dict[str, int] = {}
        work = [(start, iter(after[start]))] if start not in done else []
        while work:
            name, rest = work[-1]
            if name not in open_now:
                open_now[name] = len(trail)
                trail.append(name)
            following = next((other for other in rest if other not in done), None)
            if following is None:
                work.pop()
                done.add(trail.pop())
                del open_now[name]
            elif following in open_now:
                yield tuple(trail[open_now[following] :])
            else:
                work.append((following, iter(after.get(following, ()))))
