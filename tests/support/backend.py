"""A daemon in memory for tests of the admin service and the command line."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from stepwarden.core.event import Event, Kind
from stepwarden.edge.reload_views import ConfigView, ReloadOutcome
from stepwarden.edge.views import (
    DoubtView,
    EventFilter,
    Explanation,
    RankView,
    RecordedEvent,
    WorkerView,
)
from stepwarden.errors import ActionFailedError

BUSY = RankView(
    name="0",
    pid=4243,
    phase="decode",
    step=17,
    num_seqs=64,
    num_tokens=64,
    step_age=12.3,
    budget=42.8,
    budget_left=30.5,
    beat_age=0.4,
    cpu_percent=99.0,
    steps_ended=16,
    rss_bytes=1 << 30,
    in_flight=2,
    requests_unfinished=5,
    loop_turns=1,
    loop_age=0.3,
    steps_unrecorded=3,
    beats_refused=1,
    stamps_clamped=4,
    agent_version="0.1.0",
    detail="engine core of\x1b 4 ranks",
)
GEMMA = WorkerView(
    name="gemma-cpu",
    state="HEALTHY",
    sentence="step 17 within its budget",
    incarnation="inc-1",
    pid=4242,
    state_age=61.0,
    uptime=61.0,
    restarts_used=1,
    restarts_limit=5,
    backend="cpu",
    ranks=(BUSY, RankView(name="1", phase="idle")),
    false_alarms=2,
)
LLAMA = WorkerView(
    name="llama-gpu",
    state="FAILED",
    cause="exit",
    sentence="5 deaths within 1800 s: given up; the last exit was signal SIGSEGV",
    restarts_used=5,
    restarts_limit=5,
    last_exit="signal SIGSEGV",
    backend="gpu",
    deaths=5,
)


class Backend:
    """Takes commands at once, or never while `stuck`; refuses them with `refusal`."""

    def __init__(self) -> None:
        self.views = {GEMMA.name: GEMMA, LLAMA.name: LLAMA}
        self.events: list[RecordedEvent] = []
        self.commands: list[tuple[str, str]] = []
        self.kept_so_far = 0
        self.explained: list[tuple[str, int | None, int | None, str]] = []
        self.publish: Callable[[RecordedEvent], None] = lambda _: None
        self.stuck = False
        self.doubted = DoubtView()
        self.reloads: list[bool] = []
        self.outcome = ReloadOutcome(True, sentence="configuration reloaded: no difference")
        self.slow: set[str] = set()
        self.refusal = ""
        self.kept_in: Path | None = None
        self._lock = threading.Lock()

    def record(self, sentence: str, worker: str, old: str = "", new: str = "") -> None:
        event = Event(
            Kind.TRANSITION, sentence, worker, "inc-1", old, new, "step", "0", {"budget": 42.8}
        )
        with self._lock:
            number = len(self.events) + 1
            time = f"2026-01-02T03:04:{number % 60:02}.000+00:00"
            recorded = RecordedEvent(number, time, float(number), event)
            self.events.append(recorded)
        self.publish(recorded)

    def workers(self) -> Sequence[WorkerView]:
        return list(self.views.values())

    def worker(self, name: str) -> WorkerView | None:
        return self.views.get(name)

    def command(self, action: str, name: str) -> None:
        self.commands.append((action, name))
        if self.refusal:
            raise ActionFailedError(self.refusal)
        self.record(f"the operator says {action}", name)
        states = {"stop": "STOPPED", "start": "STARTING", "restart": "STARTING"}
        if action != "start":
            self._set(name, "STOPPING")
        if not self.stuck:
            loop = asyncio.get_running_loop()
            loop.call_later(0.01, self._set, name, states[action])

    async def kept(self) -> None:
        self.kept_so_far = len(self.commands)

    def explain(
        self, name: str, num_seqs: int | None, num_tokens: int | None, phase: str
    ) -> Explanation:
        self.explained.append((name, num_seqs, num_tokens, phase))
        return Explanation(316.0, 1264.0, "300 s + 1 s * 16 seqs = 316 s")

    def recent(self, limit: int, wanted: EventFilter) -> Sequence[RecordedEvent]:
        with self._lock:
            found = [recorded for recorded in self.events if wanted.wants(recorded)]
        return found[-limit:]

    async def reload(self, dry_run: bool) -> ReloadOutcome:
        self.reloads.append(dry_run)
        return self.outcome

    def configuration(self) -> ConfigView:
        return ConfigView("/etc/stepwarden.yaml", "2026-01-02T03:04:05+00:00")

    def unsettled(self, outcome: ReloadOutcome) -> list[str]:
        return [change.worker for change in outcome.changes if change.worker in self.slow]

    def loop_age(self) -> float:
        return 0.25

    def trouble(self) -> str:
        return "the state database /var/lib/x is damaged; it was kept as\x1b /var/lib/y"

    def runner_note(self) -> str:
        return "runner auto means spawn here: polkit does not allow it"

    def stacks_note(self) -> str:
        return ""

    def incidents(self) -> Path | None:
        return self.kept_in

    def _set(self, name: str, state: str) -> None:
        before = self.views[name]
        number = len(self.commands) + 1
        incarnation = f"inc-{number}" if state == "STARTING" else before.incarnation
        self.views[name] = replace(before, state=state, incarnation=incarnation)
        self.record(f"{name} is {state}", name, before.state, state)

    def doubt(self) -> DoubtView:
        return self.doubted
