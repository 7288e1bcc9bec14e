"""Server reflection on the admin socket, over the descriptor pools that our messages live in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from google.protobuf import descriptor_pool
from grpc_reflection.v1alpha import reflection
from stepwarden_proto.v1 import agent_pb2, supervisor_pb2

from stepwarden.edge import health_messages

# Both files have to be in the default pool, whoever asks first.
_FILES = (agent_pb2.DESCRIPTOR, supervisor_pb2.DESCRIPTOR)


class _Pools:
    """Looks a descriptor up in one pool after the other, as one pool would."""

    def __init__(self, pools: Sequence[Any]) -> None:
        self._pools = tuple(pools)

    def FindFileByName(self, name: str) -> Any:
        return self._first("FindFileByName", name)

    def FindFileContainingSymbol(self, symbol: str) -> Any:
        return self._first("FindFileContainingSymbol", symbol)

    def FindMessageTypeByName(self, name: str) -> Any:
        return self._first("FindMessageTypeByName", name)

    def FindExtensionByNumber(self, message: Any, number: int) -> Any:
        return self._pools[0].FindExtensionByNumber(message, number)

    def FindAllExtensions(self, message: Any) -> Any:
        return self._pools[0].FindAllExtensions(message)

    def _first(self, method: str, name: str) -> Any:
        for pool in self._pools:
            try:
                return getattr(pool, method)(name)
            except KeyError:
                continue
        raise KeyError(name)


def enable_reflection(server: Any, with_health: bool) -> None:
    """List and describe the services of the admin socket."""
    names = ["stepwarden.v1.SupervisorService", reflection.SERVICE_NAME]
    if with_health:
        names.append(health_messages.SERVICE)
    pools: Any = _Pools((descriptor_pool.Default(), health_messages.POOL))
    reflection.enable_server_reflection(names, server, pool=pools)
