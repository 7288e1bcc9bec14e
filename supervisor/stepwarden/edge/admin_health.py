"""grpc.health.v1 on the admin socket, from the same table as the health server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio

from stepwarden.edge.health_handlers import health_rpc_handlers
from stepwarden.edge.health_messages import SERVICE_UNKNOWN, HealthCheckResponse
from stepwarden.edge.health_service import list_response, not_found_text
from stepwarden.edge.health_table import HealthTable

MAX_WATCHERS = 64
RECHECK_SECONDS = 0.5


def health_handlers(table: HealthTable) -> Any:
    """Check, Watch and List as handlers of a grpc.aio server."""
    service = _Health(table)
    return health_rpc_handlers(service.check, service.watch, service.list)


class _Health:
    def __init__(self, table: HealthTable) -> None:
        self._table = table
        self._watchers = 0

    async def check(self, request: Any, context: Any) -> Any:
        status = self._table.status(request.service)
        if status is None:
            await context.abort(grpc.StatusCode.NOT_FOUND, not_found_text(request.service))
        return HealthCheckResponse(status=status)

    async def list(self, _request: Any, _context: Any) -> Any:
        return list_response(self._table)

    async def watch(self, request: Any, context: Any) -> AsyncIterator[Any]:
        if self._watchers >= MAX_WATCHERS:
            text = f"at most {MAX_WATCHERS} Watch streams are served here"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self._watchers += 1
        try:
            told = None
            while True:
                status = self._table.status(request.service)
                status = SERVICE_UNKNOWN if status is None else status
                if status != told:
                    told = status
                    yield HealthCheckResponse(status=status)
                await asyncio.sleep(RECHECK_SECONDS)
        finally:
            self._watchers -= 1
