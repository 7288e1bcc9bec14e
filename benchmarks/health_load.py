"""Check of our health while every core is wanted twice over: the probes of a kubelet.

64 real agents beat at 1 Hz, and two processes per core do nothing but compute, at the daemon's own
priority. A probe is what a kubelet sends: a connection of its own, one Check of "", a deadline of a
second, at which it counts as missed. Its time is measured by the client, whose own waiting for a
core is in it. Beside it, turn by turn, the same probes of a bare grpc server that answers from a
constant: what the machine and gRPC take by themselves under that load.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
from results import Result, median, percentile, ratio
from servers import HERE, daemon, stub, until
from stepwarden.config import load
from stepwarden.edge.health_messages import HealthCheckRequest, HealthCheckResponse
from stepwarden_proto.channel import CLIENT_OPTIONS
from stepwarden_proto.v1 import supervisor_pb2

TOPIC = "health Check, 64 ranks, every core wanted twice"
WORKERS, RANKS = 4, 16
PROBES = 400
PAUSE_SECONDS = 0.05
PROBE_SECONDS = 1.0
MISSED = 1000 * PROBE_SECONDS
SERVING = 1
METHOD = "/grpc.health.v1.Health/Check"


def measure(scratch: Path) -> list[Result]:
    command = f'["{sys.executable}", "{HERE}/many_ranks.py", "{RANKS}"]'
    workers = "".join(f"  w{n}: {{backend: cpu, command: {command}}}\n" for n in range(WORKERS))
    with ExitStack() as stack:
        stack.enter_context(daemon(scratch, f"workers:\n{workers}"))
        service = stub(scratch)
        until(lambda: _attached(service), 120, "not all ranks attached")
        bare = stack.enter_context(_bare_server())
        stack.enter_context(_burners(2 * (os.cpu_count() or 1)))
        address = load(scratch / "stepwarden.yaml").supervisor.health.addresses[0]
        ours, floor, kept = _probe(address, bare)
    return [
        ratio(TOPIC, f"p99 of {PROBES} probes, a connection each", percentile(ours, 99), 100, "ms"),
        Result(TOPIC, "missed, of ours and of a bare server", _missed(ours, floor)),
        Result(TOPIC, "median of them", f"{median(ours):.3g} ms"),
        Result(TOPIC, "p99 on a connection that is kept", f"{percentile(kept, 99):.3g} ms"),
        Result(
            TOPIC, "p99 of a bare server's, a connection each", f"{percentile(floor, 99):.3g} ms"
        ),
    ]


def _missed(*times: list[float]) -> str:
    return " and ".join(str(sum(one >= MISSED for one in each)) for each in times)


def _probe(ours: str, bare: str) -> tuple[list[float], list[float], list[float]]:
    """Milliseconds of each probe: of our server, of the bare one, and on a kept connection."""
    times: tuple[list[float], list[float], list[float]] = ([], [], [])
    with grpc.insecure_channel(ours, options=CLIENT_OPTIONS) as kept:
        for _ in range(PROBES):
            times[0].append(_fresh(ours))
            times[1].append(_fresh(bare))
            times[2].append(_check(kept))
            time.sleep(PAUSE_SECONDS)
    return times


def _fresh(address: str) -> float:
    began = time.perf_counter()
    # Without this channels to one address share a connection.
    options = [*CLIENT_OPTIONS, ("grpc.use_local_subchannel_pool", 1)]
    with grpc.insecure_channel(address, options=options) as channel:
        if _check(channel) == MISSED:
            return MISSED
    return 1000 * (time.perf_counter() - began)


def _check(channel: grpc.Channel) -> float:
    began = time.perf_counter()
    asked = channel.unary_unary(
        METHOD, HealthCheckRequest.SerializeToString, HealthCheckResponse.FromString
    )
    try:
        answer = asked(HealthCheckRequest(), timeout=PROBE_SECONDS)
    except grpc.RpcError as error:
        if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
            raise
        return MISSED
    assert answer.status == SERVING, "the loop has turned within 3 s under this load"
    return 1000 * (time.perf_counter() - began)


def _attached(service: object) -> bool:
    answer = service.ListWorkers(supervisor_pb2.ListWorkersRequest(), timeout=5)  # type: ignore[attr-defined]
    return sum(len(worker.ranks) for worker in answer.workers) == WORKERS * RANKS


@contextmanager
def _burners(count: int) -> Iterator[None]:
    burn = [sys.executable, "-c", "while True: pass"]
    processes = [subprocess.Popen(burn) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


@contextmanager
def _bare_server() -> Iterator[str]:
    """A server in a process of its own; its address."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield f"127.0.0.1:{int(server.stdout.readline())}"
        finally:
            server.kill()


def _serve() -> None:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    answer = HealthCheckResponse(status=SERVING).SerializeToString()
    handlers = {"Check": grpc.unary_unary_rpc_method_handler(lambda _request, _context: answer)}
    handler = grpc.method_handlers_generic_handler("grpc.health.v1.Health", handlers)
    server.add_generic_rpc_handlers((handler,))
    print(server.add_insecure_port("127.0.0.1:0"), flush=True)
    server.start()
    server.wait_for_termination()


if __name__ == "__main__":
    _serve()
