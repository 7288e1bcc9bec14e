"""What begin + end cost the engine, per step: beside an empty call pair, a datagram, a unary RPC.

All loops run in this process and the best of several rounds counts: what else runs on the machine
only ever adds. `begin` and `end` are bound to names once, as an engine's hot loop does. The system
calls of the hot path are counted by strace, where it is installed, as the difference between a
program that steps a million times and one that does not.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import grpc
import grpc.aio
from results import Result, at_least, ratio
from stepwarden_agent import Agent
from stepwarden_proto.page import ENV_PAGE_DIR
from stepwarden_proto.v1 import agent_pb2

TOPIC = "begin + end, per step"
ROUNDS = 7
STEPS = 200_000
METHOD = "/bench/Beat"


def measure(scratch: Path) -> list[Result]:
    os.environ[ENV_PAGE_DIR] = str(scratch)
    agent = Agent.from_env(rank="bench")
    del os.environ[ENV_PAGE_DIR]
    # CPU time of this thread: what else runs on the machine does not count.
    empty = _best(lambda: _pairs(_nothing_begin, _nothing_end), STEPS, time.thread_time)
    pair = _best(lambda: _pairs(agent.begin, agent.end), STEPS, time.thread_time)
    datagram = _datagram(scratch)
    unary = _unary(scratch)
    agent.close()
    return [
        ratio(TOPIC, "beside an empty Python call pair", pair / empty, 7),
        at_least(TOPIC, "one datagram to a reader costs more by", datagram / pair, 3),
        at_least(TOPIC, "a unary gRPC heartbeat costs more by", unary / pair, 500),
        Result(TOPIC, "begin + end", f"{1e6 * pair:.3f} us"),
        Result(TOPIC, "empty call pair", f"{1e6 * empty:.3f} us"),
        Result(TOPIC, "datagram", f"{1e6 * datagram:.2f} us"),
        Result(TOPIC, "unary gRPC heartbeat", f"{1e6 * unary:.0f} us"),
        *_system_calls(scratch),
    ]


def _nothing_begin(num_seqs: int = -1, num_tokens: int = -1, phase: str = "unknown") -> int:
    return num_seqs


def _nothing_end(handle: int) -> None:
    return


def _pairs(begin: Callable[[int, int, str], int], end: Callable[[int], None]) -> None:
    for _ in range(STEPS):
        handle = begin(8, 8, "decode")
        end(handle)


def _best(run: Callable[[], None], count: int, clock: Callable[[], float]) -> float:
    """Seconds of one of `count` turns, in the best of several rounds."""
    times = []
    for _ in range(ROUNDS):
        began = clock()
        run()
        times.append(clock() - began)
    return min(times) / count


def _datagram(scratch: Path) -> float:
    """One sd_notify-like datagram to a reader that takes it, in seconds of the sender's CPU."""
    path = str(scratch / "notify")
    reader = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    reader.bind(path)
    sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    def take() -> None:
        while reader.recv(64) != b"end":
            pass

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    count = 20_000

    def send() -> None:
        for _ in range(count):
            sender.sendto(b"WATCHDOG=1", path)

    cost = _best(send, count, time.thread_time)
    sender.sendto(b"end", path)
    thread.join(5)
    reader.close()
    sender.close()
    return cost


def _unary(scratch: Path) -> float:
    """One unary heartbeat to a grpc.aio server in another process, in seconds of wall time."""
    path = scratch / "unary.sock"
    command = [sys.executable, __file__, "serve", str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        server.stdout.readline()
        with grpc.insecure_channel(f"unix:{path}") as channel:
            call = channel.unary_unary(
                METHOD, agent_pb2.Beat.SerializeToString, agent_pb2.Ack.FromString
            )
            beat = agent_pb2.Beat(worker="w", incarnation="1", rank="0", seq=1)
            count = 300

            def ask() -> None:
                for _ in range(count):
                    call(beat, timeout=5)

            # Wall time: most of it is spent in gRPC's other threads and in the server.
            cost = _best(ask, count, time.perf_counter)
        server.terminate()
    return cost


async def _serve(path: str) -> None:
    async def beat(request: agent_pb2.Beat, _context: object) -> agent_pb2.Ack:
        return agent_pb2.Ack(seq=request.seq)

    handler = grpc.unary_unary_rpc_method_handler(
        beat,
        request_deserializer=agent_pb2.Beat.FromString,
        response_serializer=agent_pb2.Ack.SerializeToString,
    )
    server = grpc.aio.server()
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("bench", {"Beat": handler}),)
    )
    server.add_insecure_port(f"unix:{path}")
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


COUNTED = """
import os, sys
sys.path[:0] = {path!r}
from stepwarden_agent.page_file import create_page
from stepwarden_agent.progress import Ring
page = create_page({folder!r}, sys.argv[1], "idle")
ring = Ring(lambda: None)
ring.attach(page.words)
for _ in range(int(sys.argv[1])):
    ring.end(ring.begin(8, 8, "decode"))
os._exit(0)
"""


def _system_calls(scratch: Path) -> list[Result]:
    if shutil.which("strace") is None:
        return [Result(TOPIC, "system calls", "not counted: strace is not installed")]
    few, many = _count(scratch, 0), _count(scratch, 1_000_000)
    extra = max(0, many - few)
    met = extra < 100  # a few for memory; one a step would be a million
    return [Result(TOPIC, "system calls of a million steps", str(extra), "none a step", met)]


def _count(scratch: Path, steps: int) -> int:
    program = COUNTED.format(path=sys.path, folder=str(scratch))
    log = scratch / f"strace.{steps}"
    command = ["strace", "-f", "-c", "-o", str(log), sys.executable, "-c", program, str(steps)]
    subprocess.run(command, check=True)
    total = re.search(r"^100\.00.*?(\d+)\s+(?:\d+\s+)?total$", log.read_text(), re.MULTILINE)
    assert total is not None, log.read_text()
    return int(total[1])


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[2]))
