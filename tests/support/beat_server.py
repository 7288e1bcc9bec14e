"""A small real agent service in a process of its own, which can be frozen, ended and restarted.

Every beat goes as one JSON line to a file. Run by `BeatServer`; not a mock: the same grpc.aio
server and options as the supervisor's.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self


class BeatServer:
    """Serves `target` and keeps what it hears in `log`; a context manager."""

    def __init__(self, target: str, log: Path) -> None:
        self.target = target
        self.log = log
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> Self:
        """Start it and wait until it listens."""
        command = [sys.executable, str(Path(__file__).resolve()), self.target, str(self.log)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        return self

    def freeze(self) -> None:
        """SIGSTOP."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def kill(self) -> None:
        """SIGKILL, and wait for its end."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def beats(self) -> list[dict[str, Any]]:
        """The fields of every beat so far, with `at` (when it came) and `token`."""
        try:
            lines = self.log.read_text("utf-8").splitlines(keepends=True)
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def wait_for(
        self, wanted: Callable[[dict[str, Any]], bool], seconds: float = 60.0
    ) -> dict[str, Any]:
        """The first beat that is `wanted`. Raises AssertionError where none comes in time."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for beat in self.beats():
                if wanted(beat):
                    return beat
            time.sleep(0.02)
        raise AssertionError(f"no such beat in {self.beats()}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


async def serve(target: str, log: Path) -> None:
    """Serve until killed."""
    import grpc
    import grpc.aio
    from google.protobuf import json_format
    from stepwarden_proto.channel import SERVER_OPTIONS
    from stepwarden_proto.page import TOKEN_METADATA_KEY
    from stepwarden_proto.v1 import agent_pb2, agent_pb2_grpc

    class Service(agent_pb2_grpc.AgentServiceServicer):
        async def Attach(
            self,
            request_iterator: AsyncIterator[agent_pb2.Beat],
            context: grpc.aio.ServicerContext[Any, Any],
        ) -> AsyncIterator[agent_pb2.Ack]:
            token = dict(context.invocation_metadata() or ()).get(TOKEN_METADATA_KEY)
            async for beat in request_iterator:
                fields = json_format.MessageToDict(beat, preserving_proto_field_name=True)
                fields |= {"at": time.monotonic(), "token": token}
                with log.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(fields) + "\n")
                yield agent_pb2.Ack(seq=beat.seq)

    server = grpc.aio.server(options=SERVER_OPTIONS)
    agent_pb2_grpc.add_AgentServiceServicer_to_server(Service(), server)  # type: ignore[no-untyped-call]
    assert server.add_insecure_port(target)
    await server.start()
    print("ready", flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    # A socket that another life left behind must not stop this one.
    if sys.argv[1].startswith("unix:") and os.path.exists(sys.argv[1][5:]):
        os.unlink(sys.argv[1][5:])
    asyncio.run(serve(sys.argv[1], Path(sys.argv[2])))
