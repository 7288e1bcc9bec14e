"""What is different between two configurations, by what they mean.

Both are compared as they hold after defaults, key by key (`effective`), so that order, comments,
quotes and the way a number is written make no difference, and a default that many inherit is a
difference of each. Texts are compared as they are written: a variable or an env file that holds
something else is taken at the next start, as it is without a reload.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Any

from stepwarden.config.effective import effective_group, effective_supervisor
from stepwarden.config.effective_worker import effective_worker
from stepwarden.config.settings import Config, WorkerConfig
from stepwarden.core.policy import WorkerPolicy

PROCESS_KEYS = frozenset(
    {
        "command",
        "shell",
        "unit",
        "attach",
        "runner",
        "cwd",
        "env",
        "env_file",
        "user",
        "group",
        "umask",
        "nice",
        "limits",
    }
)
"""What a process got at its start: another one needs another life.

So do mode and path of its output."""

NEXT_START_KEYS = frozenset({"autostart", "engine", "needs", "pre_start", "release", "output"})
"""What is asked at a start and at no other time. So is the interval of beats."""

LIVE_SETTINGS = (
    "governor",
    "health.ready",
    "log.format",
    "log.level",
    "on_exit",
    "stop_limit",
    "reload",
    "incidents",
)
"""What of `supervisor` holds from the reload on. All else needs a restart of the daemon."""

_OPEN_TEXTS = frozenset(
    {
        "backend",
        "engine",
        "agent",
        "runner",
        "user",
        "group",
        "on",
        "on_dead",
        "mode",
        "signal",
        "learn",
    }
)
"""Words that can be no secret. Any other text is only said to be another one."""


class When(StrEnum):
    """When a changed key holds."""

    NOW = "now"
    NEXT_START = "next start"
    RESTART = "restart"


@dataclass(frozen=True, slots=True)
class KeyChange:
    """One key that differs, below its worker, group or section.

    `before` and `after` as they may be shown, "" where they may not or there is none.
    """

    key: str
    effect: When
    before: str = ""
    after: str = ""

    def __str__(self) -> str:
        if self.before and self.after:
            return f"{self.key} {self.before} -> {self.after}"
        return f"{self.key} = {self.after}" if self.after else self.key


Changes = tuple[KeyChange, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    """All that differs. `changed`: workers that both name; `added` and `removed` in file order.

    `groups` by name. `settings` of the daemon hold at once; `refused` are settings that only a
    restart of the daemon could apply.
    """

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    changed: Mapping[str, Changes] = field(default_factory=dict)
    groups: Mapping[str, Changes] = field(default_factory=dict)
    settings: Changes = ()
    refused: Changes = ()

    @property
    def nothing(self) -> bool:
        """True where both mean the same."""
        parts = (self.added, self.removed, self.changed, self.groups, self.settings, self.refused)
        return not any(parts)


def difference(old: Config, new: Config) -> Difference:
    """Compare two configurations that can be used."""
    settings = _changes(
        effective_supervisor(old.supervisor), effective_supervisor(new.supervisor), _setting
    )
    return Difference(
        added=tuple(name for name in new.workers if name not in old.workers),
        removed=tuple(name for name in old.workers if name not in new.workers),
        changed=_changed_workers(old, new),
        groups=_changed_groups(old, new),
        settings=tuple(change for change in settings if _is_live(change.key)),
        refused=tuple(change for change in settings if not _is_live(change.key)),
    )


def worker_changes(old: WorkerConfig, new: WorkerConfig, grouped: bool = False) -> Changes:
    """What differs of one worker. `grouped`: its group says how often it is started again."""
    return _changes(effective_worker(old, grouped), effective_worker(new, grouped), effect_of)


def process_marks(worker: WorkerConfig) -> str:
    """What a process is started with, key by key, as digests: to be noted with its life.

    Only what is not as shipped, so that a key of a later version makes no difference.
    """
    return " ".join(f"{key}={mark}" for key, mark in _marks(worker).items())


def differing_marks(noted: str, wanted: str) -> tuple[str, ...]:
    """The keys that a process started with `noted` does not have as `wanted`; () for none."""
    if noted == wanted:
        return ()
    had, wants = (dict(m.split("=", 1) for m in t.split() if "=" in m) for t in (noted, wanted))
    return tuple(key for key in sorted(had.keys() | wants.keys()) if had.get(key) != wants.get(key))


def _marks(worker: WorkerConfig) -> dict[str, str]:
    shipped = dict(_flat(effective_worker(_PLAIN, False)))
    sections: dict[str, dict[str, Any]] = {}
    for key, value in _flat(effective_worker(worker, False)):
        if effect_of(key) is When.RESTART and (key not in shipped or shipped[key] != value):
            sections.setdefault(_section(key), {})[key] = value
    return {
        section: sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]
        for section, values in sorted(sections.items())
    }


_PLAIN = WorkerConfig("", WorkerPolicy(""), shell="")


def effect_of(key: str) -> When:
    """When a key of a worker holds that has been changed."""
    section = key.split(".", 1)[0]
    if section in PROCESS_KEYS or key in ("output.mode", "output.path"):
        return When.RESTART
    if section in NEXT_START_KEYS or key == "heartbeat.interval":
        return When.NEXT_START
    return When.NOW


def _setting(_key: str) -> When:
    return When.NOW


def _is_live(key: str) -> bool:
    return any(key == live or key.startswith(live + ".") for live in LIVE_SETTINGS)


def _section(key: str) -> str:
    return "output" if key.startswith("output.") else key.split(".", 1)[0]


def _changed_workers(old: Config, new: Config) -> dict[str, Changes]:
    grouped = _members(old) & _members(new)
    found = {}
    for name, worker in new.workers.items():
        former = old.workers.get(name)
        if former is not None and (changes := worker_changes(former, worker, name in grouped)):
            found[name] = changes
    return found


def _members(config: Config) -> frozenset[str]:
    return frozenset(member for group in config.groups.values() for member in group.members)


def _changed_groups(old: Config, new: Config) -> dict[str, Changes]:
    found = {}
    for name in dict.fromkeys((*old.groups, *new.groups)):
        before, after = old.groups.get(name), new.groups.get(name)
        changes = _changes(
            {} if before is None else effective_group(before),
            {} if after is None else effective_group(after),
            _setting,
        )
        if changes:
            found[name] = changes
    return found


def _changes(
    old: Mapping[str, Any], new: Mapping[str, Any], effect: Callable[[str], When]
) -> Changes:
    before, after = dict(_flat(old)), dict(_flat(new))
    keys = dict.fromkeys((*after, *before))
    return tuple(
        KeyChange(key, effect(key), _shown(key, before.get(key)), _shown(key, after.get(key)))
        for key in keys
        if before.get(key) != after.get(key)
    )


def _flat(section: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(key: str, value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"{value:g}"
    last = key.rsplit(".", 1)[-1]
    if isinstance(value, str) and last in _OPEN_TEXTS and not key.startswith("env."):
        return value
    if last in ("members", "needs") and isinstance(value, Iterable):
        return f"[{', '.join(map(str, value))}]"
    return ""
