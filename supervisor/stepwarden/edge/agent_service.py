"""The gRPC server that agents beat to: one bidirectional stream per rank, on the main loop.

It believes nothing but the token: the token names the worker and the incarnation, and a message
that says otherwise is refused. A token is asked about anew with each beat, so that the streams of
an incarnation end with it. Whatever one agent sends, the streams of the others go on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc
import grpc.aio
from google.protobuf.message import DecodeError
from stepwarden_proto.channel import SERVER_OPTIONS
from stepwarden_proto.page import TOKEN_METADATA_KEY
from stepwarden_proto.ranks import RANK_NAME
from stepwarden_proto.v1 import agent_pb2 as pb

from stepwarden.clock import Clock
from stepwarden.core.deadline import elapsed
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.edge.beat_decoder import BeatDecoder
from stepwarden.edge.bound_servers import BoundServers
from stepwarden.edge.listen import LISTEN_OPTIONS, Listening, Target, at_most

SERVICE = "stepwarden.v1.AgentService"
REPORT_EVERY_SECONDS = 10.0
"""One kind of refusal of one worker is reported at most this often; the rest is counted."""

MAX_CONNECTIONS = 4096
"""Of each address, one for each rank; one more is closed at once."""

_MAX_KINDS = 1024
_STOP_SECONDS = 1.0
_EOF: object = getattr(grpc.aio, "EOF")  # noqa: B009 - the type stubs do not know it

Stream = grpc.aio.ServicerContext[bytes, pb.Ack]


@dataclass(frozen=True, slots=True)
class Admission:
    """Whom a token belongs to."""

    worker: str
    incarnation: str


@dataclass(frozen=True, slots=True)
class Refusal:
    """A message that was not believed. `worker` is "" where the token names none.

    `count`: how many of this kind since the last report, this one included.
    """

    worker: str
    rank: str
    reason: str
    count: int


Admit = Callable[[str], Admission | None]
OnBeat = Callable[[str, str, BeatFacts, float], None]
OnRefused = Callable[[Refusal], None]


class _Refused(Exception):
    """Why a call ends: its status, its text, and whose it seems to be."""

    def __init__(
        self, code: grpc.StatusCode, reason: str, worker: str = "", rank: str = ""
    ) -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.worker = worker
        self.rank = rank


class AgentServer:
    """Takes beats on `targets` and hands them to `on_beat` in the order of their arrival.

    `admit` says whom a token belongs to now, None for nobody. `on_beat(worker, incarnation,
    facts, now)` runs on the loop and should be short; what it raises is reported and costs nobody
    their stream. `on_refused` hears of messages that were not believed, seldom enough for a
    journal.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        admit: Admit,
        on_beat: OnBeat,
        clock: Clock,
        *,
        on_refused: OnRefused = lambda _: None,
        decoder: BeatDecoder | None = None,
    ) -> None:
        self._admit = admit
        self._on_beat = on_beat
        self._clock = clock
        self._decoder = decoder or BeatDecoder()
        self._reporter = _Reporter(on_refused, clock)
        self.sockets = BoundServers(targets, self._make_server, clock, self._on_ended)
        self._streams: set[asyncio.Task[None]] = set()
        self._stopping = False

    @property
    def listening(self) -> list[Listening]:
        """What is bound now, in the order of the targets."""
        return self.sockets.listening

    async def bind(self) -> None:
        """Listen; who connects waits until `start`.

        Raises what `listen` raises, and then holds nothing.
        """
        await self.sockets.bind()

    def _make_server(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            options=[*SERVER_OPTIONS, *LISTEN_OPTIONS, *at_most(MAX_CONNECTIONS)]
        )
        handler = grpc.stream_stream_rpc_method_handler(
            self._attach,
            request_deserializer=None,  # parsed by us: a malformed message must not raise in gRPC
            response_serializer=pb.Ack.SerializeToString,
        )
        server.add_generic_rpc_handlers(
            (grpc.method_handlers_generic_handler(SERVICE, {"Attach": handler}),)
        )
        return server

    def _on_ended(self, reason: str) -> None:
        self._reporter.report("ended", "", "", reason)

    async def start(self) -> None:
        """Serve, after `bind` where that has not been called. Raises what `listen` raises."""
        await self.sockets.start()

    async def stop(self) -> None:
        """End all streams at once and take the sockets away; agents try again by themselves."""
        self._stopping = True
        for stream in self._streams:
            stream.cancel()
        # Ended by ourselves, the streams leave no line of gRPC's in the engine's log.
        await self.sockets.stop(_STOP_SECONDS)

    @property
    def refused(self) -> int:
        """Messages and calls not believed since the start."""
        return self._reporter.total

    async def _attach(self, _requests: object, context: Stream) -> None:
        stream = asyncio.current_task()
        assert stream is not None
        self._streams.add(stream)
        try:
            token = _token(context)
            while (message := await context.read()) is not _EOF:
                await context.write(pb.Ack(seq=self._take(token, message)))
        except asyncio.CancelledError:
            if not self._stopping:
                raise
            await context.abort(grpc.StatusCode.UNAVAILABLE, "the supervisor stops")
        except _Refused as refused:
            self._reporter.report(refused.code.name, refused.worker, refused.rank, refused.reason)
            await context.abort(refused.code, refused.reason)
        finally:
            self._streams.discard(stream)

    def _take(self, token: str, message: bytes) -> int:
        """Hand one beat on; returns the number to acknowledge."""
        now = self._clock.monotonic()
        admission = self._admit(token)
        if admission is None:
            raise _Refused(grpc.StatusCode.PERMISSION_DENIED, "this token is not valid (any more)")
        beat = _parse(admission, message)
        _check_identity(admission, beat)
        try:
            facts = self._decoder.decode(beat)
            self._on_beat(admission.worker, admission.incarnation, facts, now)
        except Exception as error:  # one worker's data must not end the service for the others
            reason = f"a beat could not be handled: {type(error).__name__}: {error}"
            self._reporter.report("fault", admission.worker, beat.rank, reason)
        return beat.seq


def _token(context: Stream) -> str:
    for key, value in context.invocation_metadata() or ():
        if key == TOKEN_METADATA_KEY and isinstance(value, str):
            return value
    raise _Refused(
        grpc.StatusCode.UNAUTHENTICATED, f"the call metadata holds no {TOKEN_METADATA_KEY}"
    )


def _parse(admission: Admission, message: bytes) -> pb.Beat:
    try:
        return pb.Beat.FromString(message)
    except DecodeError as error:
        raise _Refused(
            grpc.StatusCode.INVALID_ARGUMENT, "the message is no Beat", admission.worker
        ) from error


def _check_identity(admission: Admission, beat: pb.Beat) -> None:
    if beat.worker != admission.worker or beat.incarnation != admission.incarnation:
        raise _Refused(
            grpc.StatusCode.PERMISSION_DENIED,
            "the token belongs to another worker or incarnation than the message names",
            admission.worker,
        )
    if not RANK_NAME.fullmatch(beat.rank):
        raise _Refused(
            grpc.StatusCode.INVALID_ARGUMENT,
            "a rank is named by 1 to 64 letters, digits, '.', '_' or '-', the first a letter or"
            f" digit; got {beat.rank[:80]!r}",
            admission.worker,
        )


class _Reporter:
    """Counts refusals and passes on few enough of them."""

    def __init__(self, on_refused: OnRefused, clock: Clock) -> None:
        self._on_refused = on_refused
        self._clock = clock
        self._kinds: dict[tuple[str, str], tuple[float, int]] = {}
        self.total = 0

    def report(self, kind_name: str, worker: str, rank: str, reason: str) -> None:
        """Count one; report it where its kind was not reported lately."""
        self.total += 1
        now = self._clock.monotonic()
        kind = (kind_name, worker)
        known = self._kinds.get(kind)
        if known is not None and elapsed(known[0], now) < REPORT_EVERY_SECONDS:
            self._kinds[kind] = (known[0], known[1] + 1)
            return
        if len(self._kinds) >= _MAX_KINDS:
            self._kinds.clear()
        self._kinds[kind] = (now, 0)
        self._on_refused(Refusal(worker, rank, reason, 1 + (known[1] if known else 0)))
