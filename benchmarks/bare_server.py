"""The floor: a bare grpc.aio server that takes the same beats and does nothing with them.

bare_server.py SOCKET [options]     options: with the supervisor's channel options, not gRPC's own
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import grpc
import grpc.aio
from stepwarden_proto.channel import SERVER_OPTIONS
from stepwarden_proto.v1 import agent_pb2, agent_pb2_grpc


class Nothing(agent_pb2_grpc.AgentServiceServicer):
    async def Attach(self, requests: Any, _context: Any) -> Any:
        async for beat in requests:
            yield agent_pb2.Ack(seq=beat.seq)


async def main() -> None:
    server = grpc.aio.server(options=SERVER_OPTIONS if sys.argv[2:] == ["options"] else ())
    agent_pb2_grpc.add_AgentServiceServicer_to_server(Nothing(), server)
    server.add_insecure_port(f"unix:{sys.argv[1]}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    asyncio.run(main())
