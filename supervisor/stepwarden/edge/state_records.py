"""What the state store keeps besides events, as plain records, and their JSON form."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any


@dataclass(frozen=True, slots=True)
class LifeRecord:
    """What is needed to find a life and its processes again.

    `incarnation` is the name of the life, unique for ever. `runner`: "spawn", "systemd", "unit" or
    "attach". `token` is the secret of its agents. `spawned_at` is on the monotonic clock of the
    boot `boot_id`. `pid` 0: not known yet; `cgroup`, `unit` "": it has none. `marks`: what it was
    started with, as `config.difference` notes it; "" where that is not known. `launcher_pid`,
    `launcher_ticks`: the process that is about to become its main one; 0 where it has, or there is
    none yet.
    """

    worker: str
    incarnation: str
    boot_id: str
    runner: str
    page_dir: str
    token: str = field(repr=False)
    spawned_at: float
    pid: int = 0
    start_ticks: int = 0
    cgroup: str = ""
    unit: str = ""
    marks: str = ""
    launcher_pid: int = 0
    launcher_ticks: int = 0


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """What must not be forgotten of a worker: JSON of whoever notes it, opaque to the store."""

    worker: str
    boot_id: str
    body: str


@dataclass(frozen=True, slots=True)
class LearnedRecord:
    """What is usual for one subject, opaque to the store. `used`: the higher, the later."""

    worker: str
    used: int
    body: str


@dataclass(frozen=True, slots=True)
class Noted:
    """What came of a note. `durable`: it outlives a kill of the daemon.

    `reason`: why it is not in the database, "" where it is; with `durable` it was kept elsewhere.
    """

    durable: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.durable


@dataclass(frozen=True, slots=True)
class StampedLife:
    """A life record and when it was noted, on the monotonic clock of its boot: the newest wins."""

    noted_at: float
    record: LifeRecord


@dataclass(frozen=True, slots=True)
class StampedWorker:
    """A worker record, and when it was noted: `noted_at` on the monotonic clock of `noted_boot`."""

    noted_boot: str
    noted_at: float
    record: WorkerRecord


def later(one: StampedWorker, other: StampedWorker, boot: str) -> bool:
    """Whether `one` was noted after `other`; `boot` is the present one.

    Between two former boots nothing tells: no.
    """
    if one.noted_boot == other.noted_boot:
        return one.noted_at > other.noted_at
    return one.noted_boot == boot


def workers_json(workers: Iterable[StampedWorker]) -> str:
    """One JSON list with every field of each."""
    return json.dumps([asdict(worker) for worker in workers], ensure_ascii=True)


def workers_from_json(text: str) -> list[StampedWorker]:
    """Read them back. ValueError, in one line, where it is not such a list."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, list):
        raise ValueError("is not a JSON list")
    return [_worker(item) for item in found]


def _worker(item: Any) -> StampedWorker:
    record = item.get("record") if isinstance(item, dict) else None
    if not isinstance(record, dict):
        raise ValueError("holds what is no record of a worker")
    texts = [_value(record, key, str, None) for key in ("worker", "boot_id", "body")]
    boot = _value(item, "noted_boot", str, None)
    return StampedWorker(boot, _value(item, "noted_at", float, None), WorkerRecord(*texts))


def life_json(life: StampedLife) -> str:
    """One JSON object with every field and `noted_at`."""
    body = {"noted_at": life.noted_at, **asdict(life.record)}
    return json.dumps(body, ensure_ascii=True)


def life_from_json(text: str) -> StampedLife:
    """Read one back. ValueError, in one line, where it is not one; unknown keys are ignored."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    if not isinstance(found, dict):
        raise ValueError("is not a JSON object")
    noted_at = _value(found, "noted_at", float, None)
    values = {}
    for known in fields(LifeRecord):
        kind = _KINDS[str(known.type)]
        default = known.default if isinstance(known.default, kind) else None
        values[known.name] = _value(found, known.name, kind, default)
    record = LifeRecord(**values)
    if not record.incarnation or not record.worker:
        raise ValueError("names no worker or no incarnation")
    return StampedLife(noted_at, record)


_KINDS: Mapping[str, type] = {"str": str, "int": int, "float": float}


def _value(found: Mapping[str, Any], key: str, kind: type, default: Any) -> Any:
    value = found.get(key, default)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        value = float(value)
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ValueError(f"its {key} is not a {kind.__name__}")
    if isinstance(value, float) and not math.isfinite(value):
        raise ValueError(f"its {key} is not finite")
    return value
