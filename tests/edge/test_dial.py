"""Connections of our probes take no port from anybody."""

from __future__ import annotations

import asyncio
import socket

from stepwarden.clock import SystemClock
from stepwarden.core.deadline import Deadline
from stepwarden.edge.dial import Dialer
from support.process_world import PATIENCE, run

CLOCK = SystemClock()


def test_the_port_of_a_connection_that_has_ended_can_be_listened_on() -> None:
    """It stays with the connection for a minute, and the kernel chose it: perhaps ours of later."""

    async def story() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
            deadline = Deadline.after(CLOCK.monotonic(), PATIENCE)
            connection = await Dialer(CLOCK).connect("127.0.0.1", port, deadline)
            accepted, ours = server.accept()
            connection.close()
            with accepted:
                accepted.setblocking(False)
                ended = asyncio.get_running_loop().sock_recv(accepted, 1)
                assert await asyncio.wait_for(ended, PATIENCE) == b"", "we ended it first"
        with socket.socket() as next_one:
            next_one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            next_one.bind(ours)
            next_one.listen()

    run(story())
