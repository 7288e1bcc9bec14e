"""gRPC servers that answer alike, one for each address.

So an address whose socket was taken away can be bound again while the others go on: a server that
runs takes no further address. And what ends one server leaves the others: grpc.aio gives up serving
for good when somebody calls a method whose name is no text. Such a server is replaced at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass

import grpc.aio

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.edge.aside import Aside
from stepwarden.edge.listen import Listening, Place, Target, UnixTarget, bind, look_up
from stepwarden.errors import RefusedError, StepwardenError

RETIRE_SECONDS = 1.0
"""Calls that came by a socket which is gone get so long; who made them connects again."""


LOOK_UP_SECONDS = 10.0
"""What an address means, and its certificates, have to be known by then."""

REVIVE_SECONDS = 0.1
"""From the end of a server that somebody brought down to the next: that somebody gets no loop."""


@dataclass(slots=True, eq=False)
class _Bound:
    server: grpc.aio.Server
    listening: Listening
    following: asyncio.Task[None] | None = None
    ended: bool = False
    stopped: bool = False


class BoundServers:
    """One server for each of `targets`. `make`: gives a new one, with LISTEN_OPTIONS.

    `told` hears of each server that was brought down.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        make: Callable[[], grpc.aio.Server],
        clock: Clock,
        told: Callable[[str], object] = lambda _: None,
    ) -> None:
        self._targets = tuple(targets)
        self._make = make
        self._clock = clock
        self._told = told
        self._names = Aside(clock)
        self._asking = asyncio.Lock()
        self._bound: list[_Bound] = []
        self._serving = False
        # Who sees the end of a server and who sees its socket gone must not both replace it.
        self._replacing = asyncio.Lock()

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
            await self._serve(bound)

    async def add(self, targets: Sequence[Target]) -> None:
        """Serve further addresses, all of them or none. Raises what `listen` raises."""
        new: list[_Bound] = []
        try:
            for target in targets:
                new.append(await self._listen(target))
                await self._serve(new[-1])
        except BaseException:
            for bound in new:
                await self._end(bound, 0.0)
            raise
        self._bound += new

    async def stop(self, grace: float) -> None:
        """Give calls under way `grace` seconds, stop, and take the sockets away."""
        self._serving = False
        ending, self._bound = self._bound, []
        await asyncio.gather(*(self._end(bound, grace) for bound in ending))

    def lost(self) -> list[Target]:
        """Addresses under which nobody reaches us any more. Asks the file system: may block."""
        bound = list(self._bound)
        return [one.listening.target for one in bound if one.ended or one.listening.lost()]

    async def bind_again(self, target: Target) -> None:
        """Listen there with a new server, and let the old one go.

        Nothing is done where that address is served by now. Raises what `listen` raises; then
        everything is as it was.
        """
        asked = [bound for bound in self._bound if bound.listening.target == target]
        async with self._replacing:
            for old in [bound for bound in asked if bound in self._bound]:
                if self._serving:
                    await self._replace(old)
                    return

    async def _replace(self, old: _Bound) -> None:
        if old.ended:
            # At its end it takes its socket's name away, which must not be the new one's.
            await self._end(old, 0.0)
        new = await self._listen(old.listening.target)
        if old not in self._bound:  # all were stopped meanwhile
            await self._end(new, 0.0)
            return
        self._bound[self._bound.index(old)] = new
        await self._serve(new)
        await self._end(old, RETIRE_SECONDS)

    async def _serve(self, bound: _Bound) -> None:
        await bound.server.start()
        if bound.stopped:  # meanwhile
            return
        bound.following = asyncio.get_running_loop().create_task(self._follow(bound))

    async def _end(self, bound: _Bound, grace: float) -> None:
        bound.stopped = True
        if bound.ended:
            # It has nothing to give its calls any more, and may raise again what ended it.
            with suppress(Exception):
                await bound.server.stop(0.0)
        else:
            await bound.server.stop(grace)
        bound.listening.close()
        if bound.following is not None and bound.following is not asyncio.current_task():
            bound.following.cancel()

    async def _follow(self, bound: _Bound) -> None:
        """Replace a server that does not end by our word."""
        why = "no reason is known"
        try:
            await bound.server.wait_for_termination()
        except Exception as error:  # whatever gRPC's loop was ended by
            why = type(error).__name__
        if not self._serving or bound not in self._bound:
            return
        bound.ended = True
        target = bound.listening.target
        self._told(f"a call ended the server of {target} ({why}); a new one takes its place")
        await asyncio.sleep(REVIVE_SECONDS)
        if bound in self._bound:
            with suppress(StepwardenError):  # then whoever asks what is lost tries again
                await self.bind_again(target)

    async def _listen(self, target: Target) -> _Bound:
        server = self._make()
        try:
            return _Bound(server, bind(server, await self._look_up(target)))
        except BaseException:
            await server.stop(0.0)
            raise

    async def _look_up(self, target: Target) -> Place:
        """Beside the loop: a name server or a disk may take its time."""
        if isinstance(target, UnixTarget):
            return look_up(target)
        async with self._asking:
            limit = Deadline.after(self._clock.monotonic(), LOOK_UP_SECONDS)
            try:
                return await self._names.call(lambda: look_up(target), limit)
            except TimeoutError:
                text = f"cannot listen on {target}: no answer of what it means, or of the disk of"
                raise RefusedError(f"{text} its certificates, in {LOOK_UP_SECONDS:g} s") from None
            except OSError as error:
                raise RefusedError(f"cannot listen on {target}: {error}") from error
