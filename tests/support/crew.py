"""A real daemon with a crew of stub workers, and what stories ask about what happened.

    with Crew({"w": stub("attach; idle", retry={"window": "3s"})}, backends=...) as crew:
        crew.ready()
        crew.stub("w").send("freeze 10")
        crew.wait_transition("w", "DEAD")

A module often shares one crew: every story is set going at once, and the tests then read what
happened from the journal. So many long waits take only as long as the longest of them.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Self

import grpc
import psutil
from stepwarden.config import load
from stepwarden_proto.channel import CLIENT_OPTIONS
from stepwarden_proto.page import TOKEN_METADATA_KEY
from stepwarden_proto.v1 import agent_pb2, agent_pb2_grpc, supervisor_pb2

from support import processes
from support.daemon import Daemon
from support.lateness import HostLateness
from support.stub_control import STUB_COMMAND, StubControl

Event = supervisor_pb2.Event
Section = dict[str, Any]

INTERVALS = 2 * 0.2 + 0.3
"""A detection is right from its budget on, and no later than two check intervals and 0.3 s."""


def stub(script: str = "attach; idle", **sections: Any) -> Section:
    """One stub worker. `script`: its commands at start; lives are separated by ``|``."""
    given = {"command": STUB_COMMAND, "env": {"STUB_SCRIPT": script}, "backend": "gpu"}
    return {**given, **sections}


def shell(line: str, **sections: Any) -> Section:
    """A worker without an agent."""
    return {"shell": line, "agent": "none", "backend": "gpu", **sections}


class Crew(Daemon):
    """A daemon whose workers are given as mappings; `top` holds the file's other sections.

    Every stub gets a directory of its own. `host` measures how late this machine itself is.
    """

    def __init__(
        self,
        workers: Mapping[str, Section],
        *,
        supervisor: str = "",
        env: Mapping[str, str] | None = None,
        **top: Any,
    ) -> None:
        super().__init__("", supervisor=supervisor, env=env)
        self.host = HostLateness()
        for name, section in workers.items():
            (self.directory / name).mkdir()
            if section.get("command") == STUB_COMMAND or "env" in section:
                section["env"] = {"STUB_DIR": str(self.directory / name), **section["env"]}
        self.write_sections(workers, **top)
        self._names = tuple(workers)

    def write_sections(self, workers: Mapping[str, Section], **top: Any) -> None:
        """Write the configuration anew, for the next start of the daemon."""
        sections = {**top, "workers": dict(workers)}
        lines = [f"{key}: {json.dumps(value)}" for key, value in sections.items()]
        self.write_config("\n".join(lines) + "\n")

    def __enter__(self) -> Self:
        super().__enter__()
        self.host.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.host.stop()
        super().__exit__(*error)

    def ready(self, *names: str) -> None:
        """Wait until these (all) workers are HEALTHY."""
        for name in names or self._names:
            self.wait_state(name, "HEALTHY")

    def stub(self, name: str) -> StubControl:
        """The control of a stub worker."""
        return StubControl(self.directory / name)

    def turns(self, worker: str) -> list[Event]:
        """Its changes of state so far, the oldest first."""
        return [event for event in self.events(worker) if event.to_state]

    def states(self, worker: str) -> list[str]:
        """The states it went through, the oldest first."""
        return [event.to_state for event in self.turns(worker)]

    def leniency(self) -> float:
        """Seconds that a detection may come later because this machine was late itself.

        The supervisor grants some too: for its doubt, and for time that a worker got no CPU.
        """
        told = [(event.kind, data(event)) for event in self.events() if event.data_json]
        lost = sum(float(of["seconds"]) for kind, of in told if kind == "supervisor_paused")
        doubt = max((float(of.get("longer") or 0.0) for _, of in told), default=0.0)
        starved = max((float(of.get("starved") or 0.0) for _, of in told), default=0.0)
        return INTERVALS + 2 * self.host.worst + lost + doubt + starved

    def health(self, service: str) -> str:
        """What grpc.health.v1 Check answers: SERVING, NOT_SERVING, or the name of an error."""
        with health_stub(self.health_address) as asked:
            return check(asked, service)


class HealthLog:
    """Follows one name of grpc.health.v1 and notes each answer with its time.

    `ended_with`: the name of the status code once the stream has ended.
    """

    def __init__(self, address: str, service: str) -> None:
        self.answers: list[tuple[float, str]] = []
        self.ended_with = ""
        self._channel = grpc.insecure_channel(address, options=CLIENT_OPTIONS)
        self._call = watch(self._channel, service)
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._call.cancel()
        self._thread.join(10)
        self._channel.close()

    def between(self, begin: float, end: float) -> set[str]:
        """Every answer that held at some time from `begin` to `end`."""
        found = {name for at, name in self.answers if begin <= at <= end}
        before = [name for at, name in self.answers if at < begin]
        return found | set(before[-1:])

    def _follow(self) -> None:
        with contextlib.suppress(grpc.RpcError):
            for answer in self._call:
                self.answers.append((time.monotonic(), SERVING_STATUS[answer[0]]))
        self.ended_with = self._call.code().name


SERVING_STATUS = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")


def _request(service: str) -> bytes:
    name = service.encode()
    assert len(name) < 128
    return bytes([0x0A, len(name)]) + name if name else b""


def _status(message: bytes) -> tuple[int]:
    return (message[1],) if message else (0,)


def watch(channel: grpc.Channel, service: str) -> Any:
    """Health Watch on `channel`; each answer is a tuple that holds the status number."""
    call: Any = channel.unary_stream(
        "/grpc.health.v1.Health/Watch",
        _request,
        _status,
    )
    return call(service)


@contextlib.contextmanager
def health_stub(address: str, credentials: grpc.ChannelCredentials | None = None) -> Iterator[Any]:
    """Health Check as a callable; with `credentials` over TLS."""
    with (
        grpc.insecure_channel(address, options=CLIENT_OPTIONS)
        if credentials is None
        else grpc.secure_channel(address, credentials, options=CLIENT_OPTIONS)
    ) as channel:
        yield channel.unary_unary(
            "/grpc.health.v1.Health/Check",
            _request,
            _status,
        )


def check(asked: Any, service: str) -> str:
    """One Check, with a deadline."""
    try:
        return SERVING_STATUS[asked(service, timeout=10.0)[0]]
    except grpc.RpcError as error:
        return str(error.code().name)


def data(event: Event) -> dict[str, Any]:
    """The numbers of an event."""
    found: dict[str, Any] = json.loads(event.data_json or "{}")
    return found


def span(before: Event, after: Event) -> float:
    """Seconds between two events, on the clock of decisions."""
    return after.monotonic - before.monotonic


def first(events: list[Event], wanted: Callable[[Event], bool]) -> Event:
    """The first event that `wanted` accepts."""
    return next(event for event in events if wanted(event))


def secrets_of(pid: int) -> dict[str, str]:
    """What the daemon gave to the worker with this pid: its STEPWARDEN_ variables."""
    environ = psutil.Process(pid).environ()
    return {key: value for key, value in environ.items() if key.startswith("STEPWARDEN_")}


def send_beat(target: str, token: str, **fields: Any) -> str:
    """One beat from nobody's agent: "acknowledged", "closed", or the name of the refusal."""
    with grpc.insecure_channel(target, options=CLIENT_OPTIONS) as channel:
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)  # type: ignore[no-untyped-call]
        metadata = ((TOKEN_METADATA_KEY, token),)
        beat = agent_pb2.Beat(**fields)
        answers = stub.Attach(iter([beat]), metadata=metadata, timeout=10.0)
        try:
            return "closed" if next(answers, None) is None else "acknowledged"
        except grpc.RpcError as error:
            return str(error.code().name)


def settings(crew: Crew) -> Any:
    """The configuration as the daemon read it."""
    return load(crew.config)


def living(pids: list[int]) -> list[int]:
    """Those of these processes that still run; zombies do not."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            if processes.still_there(psutil.Process(pid)):
                found.append(pid)
    return found


PYTHON = sys.executable
