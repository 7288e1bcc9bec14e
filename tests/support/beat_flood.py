"""Ten ranks that beat ten times a second each: run by path with ADDRESS TOKEN FILE.

Each waits for its acknowledgement before the next beat, as agents do. FILE gets, now and then, one
line: how late the machine let this process run at worst, in seconds, and the beats acknowledged.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path
from typing import Any

import grpc.aio
from stepwarden_proto.channel import CLIENT_OPTIONS
from stepwarden_proto.page import TOKEN_METADATA_KEY
from stepwarden_proto.v1 import agent_pb2 as pb
from stepwarden_proto.v1 import agent_pb2_grpc as rpc

RANKS = 10
INTERVAL = 0.1


class Flood:
    """All ranks of one process."""

    def __init__(self, told: Path) -> None:
        self.told = told
        self.late = 0.0
        self.acknowledged = 0

    async def beat(self, stub: Any, token: str, rank: int) -> None:
        """One rank, until the end of the process."""
        call = stub.Attach(metadata=((TOKEN_METADATA_KEY, token),))
        seq = 0
        while True:
            seq += 1
            clock = pb.ClockStamp(now_ns=time.monotonic_ns())
            beat = pb.Beat(worker="w", incarnation="w-1", rank=str(rank), seq=seq, clock=clock)
            await call.write(beat)
            await call.read()
            self.acknowledged += 1
            await self.pause()

    async def pause(self) -> None:
        """Sleep, and note what came on top."""
        wake = time.monotonic() + INTERVAL
        await asyncio.sleep(INTERVAL)
        self.late = max(self.late, time.monotonic() - wake)

    async def tell(self) -> None:
        """Write down what was seen so far, each time whole."""
        while True:
            unfinished = self.told.with_suffix(".new")
            unfinished.write_text(f"{self.late} {self.acknowledged}\n")
            os.replace(unfinished, self.told)
            await asyncio.sleep(INTERVAL)


async def main(address: str, token: str, told: str) -> None:
    """Beat until killed."""
    flood = Flood(Path(told))
    make: Any = rpc.AgentServiceStub
    async with grpc.aio.insecure_channel(address, options=CLIENT_OPTIONS) as channel:
        stub = make(channel)
        ranks = [flood.beat(stub, token, rank) for rank in range(RANKS)]
        await asyncio.gather(flood.tell(), *ranks)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
