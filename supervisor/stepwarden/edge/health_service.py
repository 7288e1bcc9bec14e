"""grpc.health.v1 on a server and threads of its own: Check, Watch, List.

It shares nothing with the verdict loop but the snapshot that the loop publishes. So it still
answers when the loop is blocked or dead, and then says NOT_SERVING. The stock servicer of
grpcio-health-checking does neither: it repeats the last status it was told, for ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
from stepwarden_proto.channel import SERVER_OPTIONS

from stepwarden.clock import Clock
from stepwarden.edge.health_handlers import health_rpc_handlers
from stepwarden.edge.health_messages import HealthCheckResponse, HealthListResponse
from stepwarden.edge.health_table import HealthSnapshot, HealthTable
from stepwarden.edge.health_watch import MAX_WATCHERS, WatcherHub
from stepwarden.edge.listen import LISTEN_OPTIONS, Listening, Target, at_most, listen

__all__ = ["HealthServer", "HealthSnapshot", "not_found_text"]

MAX_REQUEST_BYTES = 4096
MAX_CONNECTIONS = 1024
"""Of each address; one more is closed at once."""

_WORKERS = 4
_GRACE_SECONDS = 0.3
_STOP_SECONDS = 2.0


class HealthServer:
    """Answers health checks on `targets`; usable from the loop's thread, never blocks it."""

    def __init__(self, targets: Sequence[Target], clock: Clock) -> None:
        self._targets = tuple(targets)
        self.table = HealthTable(clock)
        self._hub = WatcherHub(self.table, clock)
        self._server: grpc.Server | None = None
        self._pool: ThreadPoolExecutor | None = None
        self.listening: list[Listening] = []

    def start(self) -> None:
        """Listen and serve. Raises what `listen` raises, and then holds nothing."""
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="health")
        limit = ("grpc.max_receive_message_length", MAX_REQUEST_BYTES)
        others = [option for option in SERVER_OPTIONS if option[0] != limit[0]]
        options = [*others, limit, *LISTEN_OPTIONS, *at_most(MAX_CONNECTIONS)]
        server = grpc.server(self._pool, options=options)
        handlers = health_rpc_handlers(self._check, _NonBlocking(self._watch), self._list)
        server.add_generic_rpc_handlers((handlers,))
        self._server = server
        try:
            for target in self._targets:
                self.listening.append(listen(server, target))
            server.start()
        except BaseException:
            self._stop_server()
            raise
        self._hub.start()

    def publish(self, snapshot: HealthSnapshot) -> None:
        """What is true now; call it with each turn of the loop, at least once a second."""
        if self.table.publish(snapshot):
            self._hub.wake()

    def drain(self) -> None:
        """Everything is NOT_SERVING from now on: before the first worker is told to stop.

        Waits for nobody; `all_told` says when every watcher has heard of it.
        """
        self.table.drain()
        if self._server is not None:
            self._hub.tell()

    @property
    def all_told(self) -> bool:
        """True where every watcher has been handed the newest status."""
        return self._hub.up_to_date

    def shutdown(self) -> None:
        """Drain, end all streams, stop serving. Bounded to about 2 s; waits for no client."""
        self.drain()
        if self._server is None:
            return
        self._hub.stop()
        self._stop_server()
        self._hub.close()

    def _stop_server(self) -> None:
        if self._server is not None:
            self._server.stop(_GRACE_SECONDS).wait(_STOP_SECONDS)
            self._server = None
        if self._pool is not None:
            self._pool.shutdown(wait=False)
            self._pool = None
        for listening in self.listening:
            listening.close()
        self.listening.clear()

    def _check(self, request: Any, context: grpc.ServicerContext) -> Any:
        status = self.table.status(request.service)
        if status is None:
            # Set, not aborted: an abort is an exception that gRPC would log.
            context.set_code(grpc.StatusCode.NOT_FOUND)
            context.set_details(not_found_text(request.service))
            return HealthCheckResponse()
        return HealthCheckResponse(status=status)

    def _list(self, _request: Any, _context: grpc.ServicerContext) -> Any:
        return list_response(self.table)

    def _watch(self, request: Any, context: grpc.ServicerContext, send: Any) -> None:
        peer = context.peer()
        # The name of a TCP connection holds its port; that of a unix socket is the same for all.
        connection = peer if peer.startswith(("ipv4:", "ipv6:")) else ""
        forget = self._hub.add(request.service, send, context.cancel, connection)
        if forget is None:
            context.set_code(grpc.StatusCode.RESOURCE_EXHAUSTED)
            context.set_details(f"at most {MAX_WATCHERS} Watch streams are served")
            send(None)
        elif not context.add_callback(forget):
            forget()


class _NonBlocking:
    """Marks a stream handler as one that returns at once and sends through a callback later."""

    experimental_non_blocking = True

    def __init__(self, behaviour: Any) -> None:
        self._behaviour = behaviour

    def __call__(self, request: Any, context: grpc.ServicerContext, send: Any) -> None:
        self._behaviour(request, context, send)


def not_found_text(name: str) -> str:
    """The detail of NOT_FOUND: printable and short, whatever was asked for."""
    return f"no service {name[:80]!a} here; known are '', 'ready' and 'worker/NAME'"


def list_response(table: HealthTable) -> Any:
    """The answer to List."""
    answer = HealthListResponse()
    for name, status in table.statuses().items():
        answer.statuses[name].status = status
    return answer
