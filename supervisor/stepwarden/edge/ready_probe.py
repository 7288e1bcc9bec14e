"""Asks whether a worker without an agent is ready: tcp, http, grpc, a command, or a delay.

Ready is a trigger: once a probe has said yes nobody asks any more, and a later no is no death. An
engine that hangs goes on answering its health page, and one that answers slowly is not dead; what
a worker does after its start is judged by its exit, its steps or its progress counter.
"""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import grpc
import grpc.aio

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.core.sentences import seconds as length
from stepwarden.edge import health_messages as health
from stepwarden.edge.dial import Dialer, fault
from stepwarden.edge.http_get import HttpFault, HttpGetter, HttpUrl
from stepwarden.edge.launcher import LaunchSpec
from stepwarden.edge.periodic import Periodic
from stepwarden.edge.short_command import RunShort, ShortSpec
from stepwarden.waiting import timeout_for, wait

_CHECK = f"/{health.SERVICE}/Check"
_SHOWN_CHARACTERS = 200
_CHANNEL_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    # Otherwise a fresh channel would sit out the back-off of the one before it.
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.max_receive_message_length", 64 * 1024),
)


@dataclass(frozen=True, slots=True)
class TcpTarget:
    """Ready when it takes a connection."""

    host: str
    port: int


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """Ready when a GET gives this status. Redirects are not followed."""

    url: HttpUrl
    status: int = 200


@dataclass(frozen=True, slots=True)
class GrpcTarget:
    """Ready when grpc.health.v1 Check says SERVING. `address`: HOST:PORT or unix:PATH, no TLS."""

    address: str
    service: str = ""


@dataclass(frozen=True, slots=True)
class CommandTarget:
    """Ready when it exits with 0."""

    launch: LaunchSpec


@dataclass(frozen=True, slots=True)
class DelayTarget:
    """Ready so many seconds after the worker's start."""

    seconds: float


Target = TcpTarget | HttpTarget | GrpcTarget | CommandTarget | DelayTarget


@dataclass(frozen=True, slots=True)
class ProbeAnswer:
    """`text` says in a few words what came back, good or bad."""

    ok: bool
    text: str


class ReadyProbe:
    """One probe of one life.

    `timeout`: seconds for one try. `run`: runs commands. `started_at`: when the life began, for a
    delay (monotonic seconds).
    """

    def __init__(
        self, target: Target, timeout: float, clock: Clock, run: RunShort, started_at: float
    ) -> None:
        self._target = target
        self._timeout = timeout
        self._clock = clock
        self._run = run
        self._started_at = started_at
        self._dialer = Dialer(clock)
        self._http = HttpGetter(clock)

    async def ask(self) -> ProbeAnswer:
        """One try; never raises for a fault of the worker. A delay answers when it is over."""
        deadline = Deadline.after(self._clock.monotonic(), self._timeout)
        match self._target:
            case TcpTarget() as target:
                return await self._tcp(target, deadline)
            case HttpTarget() as target:
                return await self._ask_http(target, deadline)
            case GrpcTarget() as target:
                return await self._ask_grpc(target, deadline)
            case CommandTarget() as target:
                ended = await self._run(ShortSpec(target.launch, self._timeout))
                return ProbeAnswer(ended.ok, f"ready command {ended.sentence}")
            case DelayTarget() as target:
                return await self._delay(target)

    async def _tcp(self, target: TcpTarget, deadline: Deadline) -> ProbeAnswer:
        name = f"tcp {_host_port(target.host, target.port)}"
        try:
            connection = await self._dialer.connect(target.host, target.port, deadline)
        except OSError as error:
            return ProbeAnswer(False, f"{name}: {fault(error)}")
        connection.close()
        return ProbeAnswer(True, f"{name} takes connections")

    async def _ask_http(self, target: HttpTarget, deadline: Deadline) -> ProbeAnswer:
        name = f"http {target.url.authority}{target.url.target}"
        try:
            answer = await self._http.get(target.url, deadline)
        except HttpFault as error:
            return ProbeAnswer(False, f"{name} {error}")
        except OSError as error:
            return ProbeAnswer(False, f"{name}: {fault(error)}")
        ok = answer.status == target.status
        wanted = "" if ok else f", not {target.status}"
        return ProbeAnswer(ok, f"{name} answers {answer.status}{wanted}")

    async def _ask_grpc(self, target: GrpcTarget, deadline: Deadline) -> ProbeAnswer:
        name = f"grpc {target.address}" + (f" {target.service!r}" if target.service else "")
        try:
            status = await wait(self._check(target, deadline), deadline, self._clock)
        except grpc.aio.AioRpcError as error:
            details = " ".join((error.details() or "").split())[:_SHOWN_CHARACTERS]
            return ProbeAnswer(False, f"{name}: {error.code().name} {details}".rstrip())
        except TimeoutError:
            return ProbeAnswer(False, f"{name}: no answer in time")
        return ProbeAnswer(status == health.SERVING, f"{name} is {_status_name(status)}")

    async def _check(self, target: GrpcTarget, deadline: Deadline) -> int:
        async with grpc.aio.insecure_channel(
            _grpc_target(target.address), options=self._channel_options()
        ) as channel:
            check = channel.unary_unary(
                _CHECK,
                request_serializer=health.HealthCheckRequest.SerializeToString,
                response_deserializer=health.HealthCheckResponse.FromString,
            )
            request = health.HealthCheckRequest(service=target.service)
            answer = await check(request, timeout=timeout_for(deadline, self._clock))
            return int(answer.status)

    def _channel_options(self) -> tuple[tuple[str, int], ...]:
        # Despite its name this limits one try to connect, which goes on after the channel is
        # closed: 20 s, in which a port that is silent would collect a connection for each try.
        limit = round(1000 * min(max(self._timeout, 0.1), 20.0))
        return (*_CHANNEL_OPTIONS, ("grpc.min_reconnect_backoff_ms", limit))

    async def _delay(self, target: DelayTarget) -> ProbeAnswer:
        end = Deadline.after(self._started_at, target.seconds)
        while not end.passed(self._clock.monotonic()):
            await asyncio.sleep(timeout_for(end, self._clock) or 0.0)
        waited = length(elapsed(self._started_at, self._clock.monotonic()))
        return ProbeAnswer(True, f"{waited} have passed since the start")


class ProbeRunner:
    """Asks one probe until it first says yes. `on_ok` is called then, on the loop.

    `ok_at`: when it did (monotonic seconds), None before. `last_text`: the newest answer in words.
    """

    def __init__(
        self,
        probe: ReadyProbe,
        interval: float,
        clock: Clock,
        on_ok: Callable[[], None] | None = None,
    ) -> None:
        self.ok_at: float | None = None
        self.last_text = "not answered yet"
        self._probe = probe
        self._clock = clock
        self._on_ok = on_ok
        self._tries = Periodic(self._ask, interval, clock)

    def start(self) -> None:
        """Begin, on the running loop."""
        self._tries.start()

    async def close(self) -> None:
        """Ask no more; a command that is under way is killed."""
        await self._tries.close()

    async def _ask(self) -> bool:
        answer = await self._probe.ask()
        self.last_text = answer.text
        if not answer.ok:
            return True
        self.ok_at = self._clock.monotonic()
        if self._on_ok is not None:
            self._on_ok()
        return False


def _status_name(status: int) -> str:
    names = health.HealthCheckResponse.DESCRIPTOR.enum_types_by_name["ServingStatus"]
    known = names.values_by_number.get(status)
    return str(status) if known is None else str(known.name)


def _host_port(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _grpc_target(address: str) -> str:
    """With its scheme where it is a literal address: no name has to be asked for."""
    host, _, _ = address.rpartition(":")
    with suppress(ValueError):
        version = ipaddress.ip_address(host.strip("[]")).version
        return f"ipv{version}:{address}"
    return address if address.startswith("unix:") else f"dns:///{address}"
