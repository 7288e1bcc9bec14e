"""One connection to a message bus. jeepney knows the bytes; every wait and its limit is ours.

Nothing here blocks: the bytes go through an asyncio transport, and each call has a deadline. A bus
that hangs costs its callers their limits; one that goes away fails all that wait for it, at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

from jeepney import HeaderFields, Message, MessageType, Parser
from jeepney.auth import BEGIN, Authenticator
from jeepney.bus import get_connectable_addresses
from jeepney.bus_messages import message_bus

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.errors import StepwardenError
from stepwarden.waiting import wait

SYSTEM_BUS = "unix:path=/run/dbus/system_bus_socket"

Body = tuple[Any, ...]
"""What a message carries: as its signature says, a variant as (signature, value)."""


class BusError(StepwardenError):
    """A call over the message bus did not come about."""


class BusUnavailable(BusError):
    """No answer: the bus is not there, went away, or did not answer within the limit."""


class BusRefused(BusError):
    """The other side answered with an error; `name` is its D-Bus name."""

    def __init__(self, name: str, text: str) -> None:
        super().__init__(text or name)
        self.name = name


class DbusLink(asyncio.Protocol):
    """A connection that has said hello. Made by `open`; once `closed`, it stays so.

    `name`: what the bus calls us.
    """

    def __init__(self, on_signal: Callable[[Message], None]) -> None:
        self.closed = False
        self.name = ""
        self._on_signal = on_signal
        self._authenticator = Authenticator()
        self._parser = Parser()
        self._serials = count(start=1)
        self._calls: dict[int, asyncio.Future[Message]] = {}
        self._retired = False
        self._transport: asyncio.WriteTransport | None = None
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    @classmethod
    async def open(
        cls,
        address: str,
        on_signal: Callable[[Message], None],
        deadline: Deadline,
        clock: Clock,
    ) -> DbusLink:
        """Connect, authenticate as our uid and say hello. BusUnavailable where that fails."""
        link = cls(on_signal)
        try:
            path = next(get_connectable_addresses(address))
            loop = asyncio.get_running_loop()
            await wait(loop.create_unix_connection(lambda: link, path), deadline, clock)
            await wait(asyncio.shield(link._ready), deadline, clock)
            (link.name,) = await link.call(message_bus.Hello(), deadline, clock)
        except (OSError, RuntimeError, ValueError, BusError) as error:
            link.close()
            text = str(error) or type(error).__name__
            raise BusUnavailable(f"the message bus {address} cannot be used: {text}") from None
        except asyncio.CancelledError:
            link.close()
            raise
        return link

    async def call(self, message: Message, deadline: Deadline, clock: Clock) -> Body:
        """Send a method call; returns the body of its answer.

        BusRefused: the answer is an error. BusUnavailable: none came before the deadline.
        """
        if self.closed or self._transport is None:
            raise BusUnavailable("the message bus has gone away")
        serial = next(self._serials)
        answer: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._calls[serial] = answer
        try:
            self._transport.write(message.serialise(serial))
            reply = await wait(answer, deadline, clock)
        except TimeoutError:
            member = message.header.fields[HeaderFields.member]
            raise BusUnavailable(f"no answer to {member} over the message bus in time") from None
        finally:
            del self._calls[serial]
            self._close_if_done()
        return _body(reply)

    def retire(self) -> None:
        """Close as soon as nobody waits for an answer any more."""
        self._retired = True
        self._close_if_done()

    def close(self) -> None:
        """Give the socket back; whoever waits for an answer gets BusUnavailable."""
        if self._transport is not None:
            self._transport.abort()
        self._lost("the connection was closed")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to authenticate; asyncio calls this."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport
        if self.closed:  # nobody waited that long
            transport.abort()
            return
        transport.write(self._authenticator.data_to_send())

    def data_received(self, data: bytes) -> None:
        """Take what arrived; asyncio calls this. Bytes that make no sense end the connection."""
        try:
            if self._authenticator.authenticated:
                self._take(data)
            else:
                self._authenticate(data)
        except Exception as error:  # whatever the parser trips over, this connection is of no use
            self._lost(f"it sent what nobody can read: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The other side is gone; asyncio calls this."""
        self._lost(str(exc) if exc else "the connection was closed")

    def _authenticate(self, data: bytes) -> None:
        self._authenticator.feed(data)
        if self._authenticator.authenticated and self._transport is not None:
            self._transport.write(BEGIN)
            if not self._ready.done():
                self._ready.set_result(None)

    def _take(self, data: bytes) -> None:
        self._parser.add_data(data)
        while (message := self._parser.get_next_message()) is not None:
            serial = message.header.fields.get(HeaderFields.reply_serial)
            answer = self._calls.get(serial)
            if answer is not None and not answer.done():
                answer.set_result(message)
            elif message.header.message_type is MessageType.signal:
                self._on_signal(message)

    def _lost(self, why: str) -> None:
        self.closed = True
        for waiting in [self._ready, *self._calls.values()]:
            if not waiting.done():
                waiting.set_exception(BusUnavailable(f"the message bus has gone away: {why}"))
        if self._ready.done() and not self._ready.cancelled():
            self._ready.exception()  # nobody may be waiting for it

    def _close_if_done(self) -> None:
        if self._retired and not self._calls and not self.closed:
            self.close()


def _body(reply: Message) -> Body:
    body: Body = reply.body
    if reply.header.message_type is MessageType.error:
        text = body[0] if body and isinstance(body[0], str) else ""
        raise BusRefused(reply.header.fields.get(HeaderFields.error_name, "unknown error"), text)
    return body
