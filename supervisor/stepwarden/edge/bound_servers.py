"""gRPC servers that answer alike, one for each address.

So an address whose socket was taken away can be bound again while the others go on: a server that
runs takes no further address.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc.aio

from stepwarden.edge.listen import Listening, Target, listen

RETIRE_SECONDS = 1.0
"""Calls that came by a socket which is gone get so long; who made them connects again."""


@dataclass(slots=True)
class _Bound:
    server: grpc.aio.Server
    listening: Listening


class BoundServers:
    """One server for each of `targets`. `make`: gives a new one, with LISTEN_OPTIONS."""

    def __init__(self, targets: Sequence[Target], make: Callable[[], grpc.aio.Server]) -> None:
        self._targets = tuple(targets)
        self._make = make
        self._bound: list[_Bound] = []
        self._serving = False

    @property
    def listening(self) -> list[Listening]:
        """What is bound now, in the order of the targets."""
        return [bound.listening for bound in self._bound]

    async def bind(self) -> None:
        """Listen; who connects waits until `start`.

        Raises what `listen` raises, and then holds nothing.
        """
        try:
            for target in self._targets:
                self._bound.append(await self._listen(target))
        except BaseException:
            await self.stop(0.0)
            raise

    async def start(self) -> None:
        """Serve, after `bind` where that has not been called. Raises what `listen` raises."""
        if not self._bound:
            await self.bind()
        self._serving = True
        for bound in self._bound:
            await bound.server.start()

    async def stop(self, grace: float) -> None:
        """Give calls under way `grace` seconds, stop, and take the sockets away."""
        self._serving = False
        ending, self._bound = self._bound, []
        await asyncio.gather(*(bound.server.stop(grace) for bound in ending))
        for bound in ending:
            bound.listening.close()

    def lost(self) -> list[Target]:
        """Addresses under which nobody reaches us any more. Asks the file system: may block."""
        return [bound.listening.target for bound in list(self._bound) if bound.listening.lost()]

    async def bind_again(self, target: Target) -> None:
        """Listen there with a new server, and let the old one go.

        Raises what `listen` raises; then everything is as it was.
        """
        for place, old in enumerate(self._bound):
            if old.listening.target == target and self._serving:
                new = await self._listen(target)
                self._bound[place] = new
                await new.server.start()
                await old.server.stop(RETIRE_SECONDS)
                old.listening.close()
                return

    async def _listen(self, target: Target) -> _Bound:
        server = self._make()
        try:
            return _Bound(server, listen(server, target))
        except BaseException:
            await server.stop(0.0)
            raise
