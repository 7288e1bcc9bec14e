"""What goes into a bundle: gathered on the loop as references, written out in a thread.

No secret gets into it: variables of the environment are named and not told, what the redaction
hides elsewhere is hidden here, and the values that it hides are taken out of every other text too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from stepwarden.config import SupervisorSettings, WorkerConfig
from stepwarden.config.effective import effective_supervisor
from stepwarden.config.effective_worker import effective_worker
from stepwarden.core.clocks import RunningClock
from stepwarden.core.deadline import elapsed
from stepwarden.core.event import Event
from stepwarden.core.stacks import StackDiff
from stepwarden.daemon.timeline import COLUMNS, Timeline
from stepwarden.edge.host_facts import versions
from stepwarden.edge.output_tail import tail
from stepwarden.edge.stack_capture import Capture, Look
from stepwarden.edge.views import RecordedEvent
from stepwarden.redaction import HIDDEN, is_secret, redacted, redacted_line, secrets_of, without

LONG_SECRET = 16
"""What an env file says is hidden where its name says so, or where it is as long as this."""

OUTPUT_CHARACTERS = 2000
"""Of one line of output."""


@dataclass(frozen=True, slots=True)
class Proof:
    """All that is known of one incident. Instants in monotonic seconds, but for `wall`.

    `kind`: unhealthy or dead. `captures`: by their names, the oldest first. `token`: of the life.
    """

    kind: str
    event: Event
    wall: datetime
    now: float
    config: WorkerConfig = field(repr=False)
    settings: SupervisorSettings
    state: Mapping[str, Any]
    ranks: Mapping[str, Mapping[str, Any]]
    clocks: Sequence[RunningClock]
    timeline: Timeline | None
    events: Sequence[RecordedEvent]
    captures: Mapping[str, Capture]
    diffs: Mapping[str, StackDiff]
    host: Mapping[str, Mapping[str, str]]
    follows: str = ""
    refusal: str = ""
    token: str = field(default="", repr=False)

    @property
    def head(self) -> dict[str, Any]:
        """What a list shows of it."""
        event = self.event
        newest = next(iter(reversed(list(self.captures.values()))), None)
        return {
            "kind": self.kind,
            "worker": event.worker,
            "incarnation": event.incarnation,
            "time": self.wall.isoformat(timespec="milliseconds"),
            "unix": self.wall.timestamp(),
            "cause": str(event.cause),
            "rank": event.rank,
            "sentence": event.sentence,
            "stacks": {name: diff.place.value for name, diff in self.diffs.items()},
            "stacks_seen": 0 if newest is None else newest.seen,
            "follows": self.follows,
        }


def members_of(proof: Proof) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Head and members of the bundle, the most telling first. Reads files: call it in a thread."""
    secrets = secrets_in(proof)
    plain: dict[str, Any] = {
        "incident.json": {
            **proof.head,
            "state": dict(proof.state),
            "ranks": {name: dict(facts) for name, facts in proof.ranks.items()},
            "stacks_refused": proof.refusal,
        },
        "diff.json": {name: _diff(diff) for name, diff in proof.diffs.items()},
        "budgets.json": [_clock(clock, proof.now) for clock in proof.clocks],
        "events.json": [_recorded(event) for event in proof.events],
        "output.txt": _output(proof),
        "config.json": _config(proof),
        "host.json": {name: dict(facts) for name, facts in proof.host.items()},
        "versions.json": versions(str(facts.get("agent", "")) for facts in proof.ranks.values()),
    }
    for name, capture in proof.captures.items():
        plain[f"stacks-{name}.json"] = _stacks(capture, proof.now)
        plain[f"proc-{name}.json"] = _threads(capture)
    members = {name: _written(_clean(node, secrets)) for name, node in plain.items()}
    if proof.timeline is not None:  # numbers alone
        rows = {"columns": COLUMNS, "ranks": proof.timeline.rows(proof.now)}
        members["timeline.json"] = (json.dumps(rows) + "\n").encode()
    return _clean(proof.head, secrets), members


def secrets_in(proof: Proof) -> list[str]:
    """Every value that must not be told, the longest first."""
    config = proof.config
    texts = config.templates
    argvs: list[Sequence[str]] = [
        config.argv,
        texts.command or (),
        texts.pre_start,
        texts.stop_command,
        texts.ready,
        texts.release,
    ]
    commands = (config.pre_start, config.stop_command)
    argvs += [command.argv for command in commands if command is not None]
    argvs += [config.ready.argv] if config.ready is not None else []
    argvs += [config.release.command] if config.release is not None else []
    env = config.environment(os.environ)
    found = set().union(*(secrets_of(argv, env) for argv in argvs))
    found |= {v for n, v in config.file_env.items() if is_secret(n) or len(v) >= LONG_SECRET}
    found |= {proof.token} if proof.token else set()
    return sorted((value for value in found if value), key=len, reverse=True)


def _clean(node: Any, secrets: Sequence[str]) -> Any:
    if isinstance(node, str):
        return without(node, secrets)
    if isinstance(node, Mapping):
        return {without(str(name), secrets): _clean(value, secrets) for name, value in node.items()}
    if isinstance(node, list | tuple):
        return [_clean(item, secrets) for item in node]
    return node


def _written(node: Any) -> bytes:
    if isinstance(node, str):
        return node.encode("utf-8", "backslashreplace")
    return (json.dumps(node, indent=1, allow_nan=False, default=str) + "\n").encode()


def _config(proof: Proof) -> dict[str, Any]:
    worker = redacted(effective_worker(proof.config, False))
    if "env" in worker:
        worker["env"] = dict.fromkeys(worker["env"], HIDDEN)
    return {
        "supervisor": redacted(effective_supervisor(proof.settings)),
        "workers": {proof.config.name: worker},
        "engine_timeouts": dict(proof.config.engine_timeouts),
    }


def _output(proof: Proof) -> str:
    output = proof.config.output
    if output.mode != "capture" or output.path is None:
        return "its output is not captured (output.mode)\n"
    lines = tail(Path(output.path), proof.settings.incidents.output_lines)
    return "".join(f"{redacted_line(line)[:OUTPUT_CHARACTERS]}\n" for line in lines)


def _recorded(recorded: RecordedEvent) -> dict[str, Any]:
    told = asdict(recorded.event) | {"data": dict(recorded.event.data)}
    told["sentence"] = redacted_line(recorded.event.sentence)
    shown = {name: value for name, value in told.items() if value not in ("", {})}
    return {"id": recorded.id, "time": recorded.time, "monotonic": recorded.monotonic, **shown}


def _clock(clock: RunningClock, now: float) -> dict[str, Any]:
    step = clock.step
    return {
        "rank": clock.subject,
        "cause": str(clock.cause),
        "age": elapsed(clock.began, now),
        "budget": clock.budget,
        "hard_cap": clock.hard_cap,
        "arithmetic": clock.arithmetic,
        "left": clock.deadline.remaining(now),
        "step": None if step is None else asdict(step),
    }


def _diff(diff: StackDiff) -> dict[str, Any]:
    return {**asdict(diff), "place": diff.place.value}


def _stacks(capture: Capture, now: float) -> dict[str, Any]:
    return {
        "age": elapsed(capture.at, now),
        "took": capture.took,
        "ranks": {name: _look(look) for name, look in capture.looks.items()},
    }


def _look(look: Look) -> dict[str, Any]:
    return {
        "pid": None if look.process is None else look.process.pid,
        "python": look.python,
        "error": look.error,
        "threads": [
            {
                "tid": thread.tid,
                "name": thread.name,
                "main": thread.main,
                "active": thread.active,
                "frames": [f"{f.function} ({f.file}:{f.line})" for f in thread.frames],
            }
            for thread in look.stacks
        ],
    }


def _threads(capture: Capture) -> dict[str, Any]:
    return {name: [asdict(one) for one in look.threads] for name, look in capture.looks.items()}
