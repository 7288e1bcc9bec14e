"""CPU of an agent that beats at 1 Hz to a real daemon, beside what its transport costs anyway.

The worker does nothing but hold an agent, so all CPU time of its process after the start is the
agent's: its beat thread. References run at the same time: a process with a stream of grpcio that is
open and silent, one whose stream of grpcio does nothing but send an empty message each second and
take the answer, and one that does so over a bare socket. What wakes up once a second finds cold
caches, so each message costs far more than in a tight loop.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from results import Result, ratio
from servers import HERE, daemon, stub, until
from stepwarden_proto.v1 import supervisor_pb2

TOPIC = "agent at 1 Hz"
SECONDS = 60.0
SETTLE_SECONDS = 5.0

STREAM = """
import queue, sys, time
import grpc
from stepwarden_proto.channel import CLIENT_OPTIONS
from stepwarden_proto.v1 import agent_pb2, agent_pb2_grpc
messages = queue.SimpleQueue()
stub = agent_pb2_grpc.AgentServiceStub(grpc.insecure_channel(sys.argv[1], options=CLIENT_OPTIONS))
answers = stub.Attach(iter(messages.get, None))
while True:
    messages.put(agent_pb2.Beat())
    next(answers)
    time.sleep(float(sys.argv[2]))
"""

PING_PONG = """
import os, socket, time
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    while data := theirs.recv(4096):
        theirs.send(data)
    os._exit(0)
theirs.close()
while True:
    ours.send(b"x" * 200)
    ours.recv(4096)
    time.sleep(1)
"""


def measure(scratch: Path) -> list[Result]:
    command = f'["{sys.executable}", "{HERE}/many_ranks.py", "1"]'
    bare = [sys.executable, str(HERE / "bare_server.py"), str(scratch / "bare.sock"), "options"]
    with (
        daemon(scratch, f"workers:\n  w: {{backend: cpu, command: {command}}}\n"),
        subprocess.Popen(bare, stdout=subprocess.PIPE) as server,
    ):
        assert server.stdout is not None
        server.stdout.readline()
        silent = _program(STREAM, f"unix:{scratch}/bare.sock", "3600")
        talking = _program(STREAM, f"unix:{scratch}/bare.sock", "1")
        pinging = _program(PING_PONG)
        service = stub(scratch)
        until(lambda: _pid(service) > 0, 30, "the rank did not attach")
        time.sleep(SETTLE_SECONDS)
        pids = (_pid(service), silent.pid, talking.pid, pinging.pid)
        before = [_cpu_seconds(pid) for pid in pids]
        time.sleep(SECONDS)
        used = [_cpu_seconds(pid) - start for pid, start in zip(pids, before, strict=True)]
        for process in (silent, talking, pinging, server):
            process.kill()
            process.wait()
    agent, stream, bare_beats, ping = (100 * seconds / SECONDS for seconds in used)
    return [
        ratio(TOPIC, "CPU of a core", agent, 0.1, "%"),
        Result(TOPIC, "a stream of grpcio that is open and silent", f"{stream:.3g} %"),
        Result(TOPIC, "a stream of grpcio with an empty message at 1 Hz", f"{bare_beats:.3g} %"),
        Result(TOPIC, "a bare socket ping-pong at 1 Hz", f"{ping:.3g} %"),
    ]


def _program(text: str, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", text, *arguments])


def _cpu_seconds(pid: int) -> float:
    """CPU time of all threads of a process: ticks of 10 ms would be too coarse."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9


def _pid(service: object) -> int:
    answer = service.ListWorkers(supervisor_pb2.ListWorkersRequest(), timeout=5)  # type: ignore[attr-defined]
    return next((rank.pid for worker in answer.workers for rank in worker.ranks), 0)
