"""The daemon under test, and the bare gRPC server that it is compared with."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """User and system time of one process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rss_megabytes(pid: int) -> float:
    """Resident memory of one process."""
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) / 1000 if match else 0.0


def until(condition: object, limit: float, what: str) -> None:
    """Wait for a condition (a callable); raises TimeoutError with `what`."""
    end = time.monotonic() + limit
    while not condition():  # type: ignore[operator]
        if time.monotonic() > end:
            raise TimeoutError(what)
        time.sleep(0.05)


def config_text(scratch: Path, body: str) -> str:
    """A configuration with its own directories and port, so that runs may go side by side."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return (
        f"supervisor:\n  runtime_dir: {scratch}/run\n  state_dir: {scratch}/state\n"
        f"  governor: {{deaths: 100000, freeze_max: 0}}\n"
        f'  log: {{format: json}}\n  health: {{listen: ["127.0.0.1:{port}"]}}\n{body}'
    )


@contextmanager
def daemon(scratch: Path, body: str) -> Iterator[subprocess.Popen[str]]:
    """A real daemon with temporary files of its own; ended with SIGTERM."""
    for name in ("run", "tmp"):
        (scratch / name).mkdir(exist_ok=True)
    file = scratch / "stepwarden.yaml"
    file.write_text(config_text(scratch, body), encoding="utf-8")
    with (scratch / "daemon.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "stepwarden", "run", str(file)],
            stderr=log,
            text=True,
            env={**os.environ, "TMPDIR": str(scratch / "tmp")},
        )
        try:
            until(
                lambda: " serves " in (scratch / "daemon.log").read_text(), 20, "daemon not ready"
            )
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def stub(scratch: Path) -> object:
    """The admin service of the daemon in `scratch`."""
    import grpc
    from stepwarden_proto.v1 import supervisor_pb2_grpc

    options = [("grpc.enable_http_proxy", 0)]
    channel = grpc.insecure_channel(f"unix:{scratch}/run/admin.sock", options=options)
    return supervisor_pb2_grpc.SupervisorServiceStub(channel)
