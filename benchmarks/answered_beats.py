"""A worker that beats on and measures how long each answer takes: answered_beats.py FILE.

Ten ranks, each beat ten times a second. FILE gets a line for each answer: when (monotonic seconds)
the beat was sent, and how long its answer took beyond what this process itself was late.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from typing import TextIO

import grpc.aio
from stepwarden_proto import page
from stepwarden_proto.channel import CLIENT_OPTIONS
from stepwarden_proto.v1 import agent_pb2 as pb
from stepwarden_proto.v1 import agent_pb2_grpc as rpc

RANKS = 10
INTERVAL = 0.1


async def beat(stub: rpc.AgentServiceStub, rank: int, out: TextIO) -> None:
    """One rank, until the end of the process."""
    metadata = ((page.TOKEN_METADATA_KEY, os.environ[page.ENV_TOKEN]),)
    call = stub.Attach(metadata=metadata)
    ticks = _start_ticks()
    seq = 0
    while True:
        seq += 1
        message = pb.Beat(
            worker=os.environ[page.ENV_WORKER],
            incarnation=os.environ[page.ENV_INCARNATION],
            rank=str(rank),
            pid=os.getpid(),
            start_ticks=ticks,
            seq=seq,
            clock=pb.ClockStamp(now_ns=time.monotonic_ns()),
        )
        sent = time.monotonic()
        await call.write(message)
        await call.read()
        out.write(f"{sent:.6f} {time.monotonic() - sent:.6f}\n")
        await asyncio.sleep(INTERVAL)


def _start_ticks() -> int:
    with open("/proc/self/stat") as file:
        return int(file.read().rpartition(")")[2].split()[19])


async def main() -> None:
    with open(sys.argv[1], "w", buffering=1) as out:
        target = os.environ[page.ENV_TARGET]
        async with grpc.aio.insecure_channel(target, options=list(CLIENT_OPTIONS)) as channel:
            stub = rpc.AgentServiceStub(channel)
            await asyncio.gather(*(beat(stub, rank, out) for rank in range(RANKS)))


if __name__ == "__main__":
    asyncio.run(main())
