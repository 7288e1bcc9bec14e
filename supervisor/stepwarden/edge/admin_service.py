"""stepwarden.v1.SupervisorService on the admin socket, with reflection and health beside it.

It runs on the main loop and asks an `AdminBackend`, the daemon, for what it shows and does.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, Protocol, TypeVar

import grpc
import grpc.aio
from stepwarden_proto.channel import SERVER_OPTIONS, STATE_METADATA_KEY
from stepwarden_proto.v1 import supervisor_pb2 as pb
from stepwarden_proto.v1 import supervisor_pb2_grpc as rpc

from stepwarden import __version__
from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, earliest
from stepwarden.core.event import Kind
from stepwarden.edge.admin_health import health_handlers
from stepwarden.edge.admin_reflection import enable_reflection
from stepwarden.edge.aside import Aside
from stepwarden.edge.bound_servers import BoundServers
from stepwarden.edge.bundle import BundleError
from stepwarden.edge.event_hub import EventHub, Subscription
from stepwarden.edge.health_table import HealthTable
from stepwarden.edge.incident_views import incident_bytes, list_incidents
from stepwarden.edge.learned_views import learned_message
from stepwarden.edge.listen import LISTEN_OPTIONS, UnixTarget, at_most
from stepwarden.edge.operator_commands import (
    RESTART,
    START,
    STOP,
    CommandWait,
    LastCommands,
    failed,
    outcome,
)
from stepwarden.edge.output_tail import last_lines
from stepwarden.edge.reload_views import (
    ConfigView,
    ReloadOutcome,
    config_message,
    reload_message,
)
from stepwarden.edge.views import (
    DoubtView,
    EventFilter,
    Explanation,
    RecordedEvent,
    WorkerView,
    event_message,
    worker_message,
)
from stepwarden.edge.worker_pages import ListChangedError, page_of
from stepwarden.errors import ExitCode, StepwardenError
from stepwarden.naming import unknown
from stepwarden.waiting import wait

DEFAULT_PAST_EVENTS = 1000
MAX_PAST_EVENTS = 100_000
MAX_CONNECTIONS = 1024
"""At a time; one more is closed at once."""

OUTPUT_SECONDS = 1.0
"""A worker is shown without its output where its files cannot be read within this."""

INCIDENT_SECONDS = 20.0
"""Bundles are looked for no longer than this."""

CHUNK_BYTES = 256 << 10

LOOK_SECONDS = 0.5
"""Whoever waits for a reload looks this often too: events may come faster than they are read."""

MAX_WAIT_SECONDS = 86_400.0
"""A longer wait for a command is cut to this."""

_CODES = {
    ExitCode.ACTION_FAILED: grpc.StatusCode.FAILED_PRECONDITION,
    ExitCode.UNKNOWN_WORKER: grpc.StatusCode.NOT_FOUND,
    ExitCode.USAGE: grpc.StatusCode.INVALID_ARGUMENT,
    ExitCode.REFUSED: grpc.StatusCode.PERMISSION_DENIED,
}

T = TypeVar("T")
Context = grpc.aio.ServicerContext[Any, Any]


class AdminBackend(Protocol):
    """What the daemon gives the admin service. All but `recent` runs on the main loop."""

    def workers(self) -> Sequence[WorkerView]:
        """Every configured worker, in the order of the file."""

    def worker(self, name: str) -> WorkerView | None:
        """One worker; None where there is none of this name."""

    def command(self, action: str, name: str) -> None:
        """Begin to start, stop or restart a worker.

        Returns at once. ActionFailedError where it cannot be done now.
        """

    async def kept(self) -> None:
        """Wait, within a limit, until the commands so far outlive a kill of the daemon."""

    def explain(
        self, name: str, num_seqs: int | None, num_tokens: int | None, phase: str
    ) -> Explanation:
        """What one step of this worker may take."""

    def recent(self, limit: int, wanted: EventFilter) -> Sequence[RecordedEvent]:
        """The newest events that are `wanted`, oldest first. Runs in a thread."""

    async def reload(self, dry_run: bool) -> ReloadOutcome:
        """Load the daemon's own file again, or say what that would do. Never raises for it."""

    def configuration(self) -> ConfigView:
        """The file in force."""

    def unsettled(self, outcome: ReloadOutcome) -> list[str]:
        """Workers that a reload starts, restarts or removes, and that are not so far yet."""

    def loop_age(self) -> float:
        """Seconds since the verdict loop last turned."""

    def trouble(self) -> str:
        """What is wrong with the daemon itself, or its state on disk; "" for nothing."""

    def runner_note(self) -> str:
        """Why `runner: auto` is not what it would rather be; "" where it is."""

    def doubt(self) -> DoubtView:
        """How much the daemon doubts itself, and what its governor holds up."""

    def stacks_note(self) -> str:
        """Why stacks of hung workers cannot be captured; "" where they can."""

    def incidents(self) -> Path | None:
        """Where bundles are kept; None: nowhere."""


class AdminServer:
    """Serves `backend` on a unix socket. The daemon hands each new event to `publish`."""

    def __init__(
        self,
        target: UnixTarget,
        backend: AdminBackend,
        clock: Clock,
        health: HealthTable | None = None,
    ) -> None:
        self._service = _Service(backend, clock)
        self._health = health
        self.sockets = BoundServers([target], self._make_server, clock)

    async def bind(self) -> None:
        """Listen; who connects waits until `start`.

        Raises what `listen` raises, and then holds nothing.
        """
        await self.sockets.bind()

    def _make_server(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            options=[*SERVER_OPTIONS, *LISTEN_OPTIONS, *at_most(MAX_CONNECTIONS)]
        )
        register: Any = rpc.add_SupervisorServiceServicer_to_server
        register(self._service, server)
        if self._health is not None:
            server.add_generic_rpc_handlers((health_handlers(self._health),))
        enable_reflection(server, with_health=self._health is not None)
        return server

    async def start(self) -> None:
        """Serve, after `bind` where that has not been called. Raises what `listen` raises."""
        await self.sockets.start()

    def publish(self, recorded: RecordedEvent) -> None:
        """Hand a new event to all who follow; never waits."""
        self._service.hub.publish(recorded)

    async def stop(self) -> None:
        """End followers, give answers under way a moment, stop."""
        self._service.hub.close()
        await self.sockets.stop(0.3)


class _Service(rpc.SupervisorServiceServicer):
    def __init__(self, backend: AdminBackend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._last = LastCommands()
        self._files = Aside(clock)
        self._bundles = Aside(clock)
        self.hub = EventHub()

    async def ListWorkers(self, request: Any, context: Context) -> Any:
        try:
            answer = page_of(self._backend.workers(), request, _in_list)
        except ListChangedError:
            text = "the list of workers has changed meanwhile; begin again without page_token"
            await context.abort(grpc.StatusCode.ABORTED, text)
        answer.version = __version__
        answer.loop_age_seconds = self._backend.loop_age()
        answer.trouble = self._backend.trouble()
        answer.runner_note = self._backend.runner_note()
        doubt = self._backend.doubt()
        answer.doubt_score, answer.doubt_reason = doubt.score, doubt.reason
        answer.governor = doubt.governor
        answer.stacks_note = self._backend.stacks_note()
        answer.configuration.CopyFrom(config_message(self._backend.configuration()))
        return answer

    async def GetWorker(self, request: Any, context: Context) -> Any:
        view = await self._find(request.name, context)
        output = await self._last_lines(view)
        answer = pb.GetWorkerResponse(worker=worker_message(view, output=output))
        answer.learned.extend(learned_message(one) for one in view.learned)
        return answer

    async def _last_lines(self, view: WorkerView) -> Sequence[str]:
        """What the worker printed last; nothing where its files cannot be read in time."""
        directory = view.output_directory
        if directory is None:
            return ()
        limit = Deadline.after(self._clock.monotonic(), OUTPUT_SECONDS)
        try:
            return await self._files.call(partial(last_lines, directory), limit)
        except OSError:  # a file system that hangs (TimeoutError is one too)
            return ()

    async def WatchEvents(self, request: Any, context: Context) -> AsyncIterator[Any]:
        if request.worker and not await self._has_past(request.worker):
            await self._find(request.worker, context)
        if request.follow and self.hub.full:
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "too many followers")
        wanted = await _wanted(request, context)
        # Subscribed before the past is read: an event between the two is seen twice, not never.
        with self.hub.subscribe(request.worker, wanted.kinds) as subscription:
            limit = min(request.limit or DEFAULT_PAST_EVENTS, MAX_PAST_EVENTS)
            past = await asyncio.to_thread(self._backend.recent, limit, wanted)
            for recorded in past:
                yield event_message(recorded)
            if request.follow:
                last = past[-1].id if past else 0
                async for message in _followed(subscription, last, context):
                    yield message

    async def StartWorker(self, request: Any, context: Context) -> Any:
        return await self._command(START, request, context)

    async def StopWorker(self, request: Any, context: Context) -> Any:
        return await self._command(STOP, request, context)

    async def RestartWorker(self, request: Any, context: Context) -> Any:
        return await self._command(RESTART, request, context)

    async def Explain(self, request: Any, context: Context) -> Any:
        await self._find(request.worker, context)
        seqs, tokens = (n if n >= 1 else None for n in (request.num_seqs, request.num_tokens))
        try:
            told = self._backend.explain(request.worker, seqs, tokens, request.phase)
        except StepwardenError as error:
            await _abort(context, error)
        return pb.ExplainResponse(
            budget_seconds=told.budget,
            hard_cap_seconds=told.hard_cap,
            arithmetic=told.arithmetic,
        )

    async def Reload(self, request: Any, _context: Context) -> Any:
        with self.hub.subscribe("") as subscription:
            outcome = await self._backend.reload(request.dry_run)
            if outcome.applied and request.HasField("wait_seconds"):
                await self._settle(outcome, subscription, request.wait_seconds)
        waited = outcome.applied and request.HasField("wait_seconds")
        return reload_message(outcome, self._backend.unsettled(outcome) if waited else [])

    async def ListIncidents(self, request: Any, context: Context) -> Any:
        directory = self._backend.incidents()
        wanted = partial(list_incidents, directory, request)
        return await self._of_incidents(wanted, context)

    async def ExportIncident(self, request: Any, context: Context) -> AsyncIterator[Any]:
        found = partial(incident_bytes, self._backend.incidents(), request.id)
        data = await self._of_incidents(found, context)
        for begin in range(0, len(data), CHUNK_BYTES):
            yield pb.ExportIncidentResponse(chunk=data[begin : begin + CHUNK_BYTES])

    async def _of_incidents(self, work: Callable[[], T], context: Context) -> T:
        limit = Deadline.after(self._clock.monotonic(), INCIDENT_SECONDS)
        try:
            return await self._bundles.call(work, limit)
        except BundleError as error:
            await context.abort(grpc.StatusCode.NOT_FOUND, str(error))
        except OSError as error:  # TimeoutError is one too
            text = f"the incidents cannot be read: {error.strerror or error}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        raise AssertionError("abort returned")

    async def _settle(
        self, outcome: ReloadOutcome, subscription: Subscription, seconds: float
    ) -> None:
        limit = min(max(0.0, seconds), MAX_WAIT_SECONDS)
        deadline = Deadline.after(self._clock.monotonic(), limit)
        while self._backend.unsettled(outcome):
            now = self._clock.monotonic()
            if deadline.passed(now):
                return
            look = earliest(deadline, Deadline.after(now, LOOK_SECONDS))
            with suppress(TimeoutError):
                if await wait(subscription.next(), look, self._clock) is None:
                    return

    async def _has_past(self, name: str) -> bool:
        """Whether it is none of the workers now and the history still knows it."""
        if self._backend.worker(name) is not None:
            return False
        return bool(await asyncio.to_thread(self._backend.recent, 1, EventFilter(name)))

    async def _find(self, name: str, context: Context) -> WorkerView:
        view = self._backend.worker(name)
        if view is None:
            names = [view.name for view in self._backend.workers()]
            await context.abort(grpc.StatusCode.NOT_FOUND, unknown("worker", name, names))
        return view

    async def _command(self, action: str, request: Any, context: Context) -> Any:
        before = await self._find(request.name, context)
        waits = request.HasField("wait_seconds")
        limit = min(max(0.0, request.wait_seconds), MAX_WAIT_SECONDS)
        reached = True
        with self.hub.subscribe(request.name) as subscription:
            try:
                self._backend.command(action, request.name)
                self._last.took(request.name, action)
                await self._backend.kept()
                if waits:
                    reached = await self._reached(action, before, subscription, limit)
            except StepwardenError as error:
                await _abort(context, error)
            view = self._backend.worker(request.name) or before
        if not reached:
            text = f"after {limit:g} s {view.name} is {view.state}; the {action} goes on"
            # The metadata tells our own answer from a deadline of the transport.
            state = ((STATE_METADATA_KEY, view.state),)
            await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, text, state)
        if waits and failed(action, before, view):
            text = f"{view.name} is FAILED: {view.sentence}"
            await context.abort(grpc.StatusCode.FAILED_PRECONDITION, text)
        return pb.WorkerCommandResponse(state=view.state, sentence=outcome(action, before, view))

    async def _reached(
        self, action: str, before: WorkerView, subscription: Subscription, limit: float
    ) -> bool:
        """Wait until the worker has left its former state for good; False at the deadline.

        ActionFailedError: a later command leads elsewhere.
        """
        deadline = Deadline.after(self._clock.monotonic(), limit)
        waiting = CommandWait(action, before, self._last)
        while not waiting.done(self._backend.worker(before.name), subscription):
            try:
                if await waiting.next(subscription, deadline, self._clock):
                    return True
            except TimeoutError:
                return False
        return True


def _in_list(view: WorkerView) -> pb.Worker:
    """A worker for the list; what cannot be encoded of one must not take the others with it."""
    try:
        return worker_message(view, trimmed=True)
    except (ValueError, TypeError) as error:
        text = f"what is known of it cannot be shown: {error}"
        return pb.Worker(name=view.name, state=view.state, cause=view.cause, sentence=text)


async def _wanted(request: Any, context: Context) -> EventFilter:
    """The filter that a request describes; a kind that is not one of ours is refused."""
    kinds = [str(kind) for kind in Kind]
    for kind in request.kinds:
        if kind not in kinds:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, unknown("kind", kind, kinds))
    since = request.since_unix_seconds
    return EventFilter(request.worker, frozenset(request.kinds), since if since > 0 else 0.0)


async def _followed(subscription: Subscription, last: int, context: Context) -> AsyncIterator[Any]:
    while (recorded := await subscription.next()) is not None:
        if recorded.id > last:
            yield event_message(recorded)
        if subscription.overrun:
            text = "events came faster than they were read; ask again"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)


async def _abort(context: Context, error: StepwardenError) -> NoReturn:
    code = _CODES.get(error.exit_code, grpc.StatusCode.INTERNAL)
    await context.abort(code, str(error))
    raise AssertionError("abort returned")
