"""A TCP connection under a deadline; a name server that hangs costs one thread and no more."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import socket
import ssl
from contextlib import suppress
from dataclasses import dataclass

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline, earliest
from stepwarden.edge.aside import Aside
from stepwarden.waiting import wait

LINE_BYTES = 64 * 1024
"""No line that is read from a connection may be longer."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Two halves of a connection; `close` never waits."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def close(self) -> None:
        """Let go of it at once, whatever is still on the way."""
        self.writer.transport.abort()


class Dialer:
    """Connects for one user; proxies are never asked."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._aside = Aside(clock)

    async def connect(
        self, host: str, port: int, deadline: Deadline, tls: ssl.SSLContext | None = None
    ) -> Connection:
        """The first address of `host` that answers. OSError, or TimeoutError at the deadline."""
        addresses = [host] if _is_literal(host) else await self._look_up(host, port, deadline)
        for left in range(len(addresses), 1, -1):
            address = addresses[len(addresses) - left]
            try:
                # An address that swallows everything must leave time for the next one.
                return await self._open(address, host, port, self._share(deadline, left), tls)
            except OSError:
                continue
        return await self._open(addresses[-1], host, port, deadline, tls)

    def _share(self, deadline: Deadline, parts: int) -> Deadline:
        now = self._clock.monotonic()
        left = deadline.remaining(now)
        share = Deadline.never() if left is None else Deadline.after(now, left / parts)
        return earliest(deadline, share)

    async def _open(
        self, address: str, host: str, port: int, deadline: Deadline, tls: ssl.SSLContext | None
    ) -> Connection:
        name = None if tls is None else host
        opening = asyncio.open_connection(
            address, port, limit=LINE_BYTES, ssl=tls, server_hostname=name
        )
        try:
            made = Connection(*await wait(opening, deadline, self._clock, unclaimed=_drop))
        except TimeoutError:
            raise TimeoutError("no connection in time") from None
        _leave_port_free(made)
        return made

    async def _look_up(self, host: str, port: int, deadline: Deadline) -> list[str]:
        def ask() -> list[str]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            return list(dict.fromkeys(str(entry[4][0]) for entry in found))

        try:
            return await self._aside.call(ask, deadline)
        except TimeoutError:
            raise TimeoutError(f"the name {host!r} was not resolved in time") from None
        except UnicodeError:  # a label that is too long or empty
            raise OSError(f"{host!r} is no name of a host") from None


def _leave_port_free(made: Connection) -> None:
    """Our port of it stays taken for a minute after the end, and may be one that we listen on.

    Ten probes a second leave hundreds of such ports: without this a daemon, or a worker, that
    starts again is now and then told that its address is in use.
    """
    ours = made.writer.get_extra_info("socket")
    if ours is not None:
        with suppress(OSError):  # the connection is lost already
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)


def _drop(halves: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    Connection(*halves).close()


def fault(error: OSError) -> str:
    """What an error of the network says to an operator: `Connection refused`."""
    if isinstance(error, ssl.SSLError):
        return f"TLS: {error.reason or error}"
    if isinstance(error, TimeoutError) and error.errno is None:
        return str(error) or "no answer in time"
    if isinstance(error, socket.gaierror):
        return error.strerror or str(error)
    # asyncio's own texts repeat the address and hide the reason.
    return os.strerror(error.errno) if error.errno else str(error) or type(error).__name__


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
