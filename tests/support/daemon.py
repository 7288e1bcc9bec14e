"""A real daemon for stories: `python -m stepwarden run FILE`, asked over its admin socket.

    with Daemon(YAML_WITHOUT_SUPERVISOR_SECTION) as daemon:
        daemon.wait_state("w", "HEALTHY")
        ...
    # on a clean exit of the block: SIGTERM, exit code 0, and not one process is left

Everything waits for a condition with a limit. A failed block still leaves nothing running.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import grpc
import psutil
from stepwarden.config import load
from stepwarden_proto.v1 import supervisor_pb2, supervisor_pb2_grpc

from support import processes

TESTS = Path(__file__).resolve().parents[1]
ROOT = TESTS.parent


def free_port() -> int:
    """A TCP port of the loopback address that nobody holds now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


UNGOVERNED = "  governor: {deaths: 100000, freeze_max: 0}\n"
"""Many hang at the same time in a story; those of the governor say their own numbers."""


class Daemon:
    """One daemon in directories of its own.

    `body`: the YAML without its `supervisor:` section. `supervisor`: extra lines of that section,
    each indented by two spaces. `env`: added to the daemon's environment, which workers inherit;
    a PYTHONPATH in it comes before the usual one.
    """

    def __init__(
        self, body: str, *, supervisor: str = "", env: Mapping[str, str] | None = None
    ) -> None:
        # A short path: a unix socket's path may have 107 bytes only.
        self.directory = Path(tempfile.mkdtemp(prefix="sw-"))
        self.mark = uuid.uuid4().hex
        self.config = self.directory / "stepwarden.yaml"
        self.log = self.directory / "daemon.log"
        self.health_address = f"127.0.0.1:{free_port()}"
        self.process: subprocess.Popen[bytes] | None = None
        self._extra_env = dict(env or {})
        self._seen: set[psutil.Process] = set()
        self._channel: grpc.Channel | None = None
        self._supervisor = supervisor
        self.write_config(body)

    def write_config(self, body: str) -> None:
        """Put `body` below our own `supervisor:` section into the configuration file."""
        head = (
            "supervisor:\n"
            f"  runtime_dir: {self.directory / 'run'}\n"
            f"  state_dir: {self.directory / 'state'}\n"
            f'  health: {{listen: ["{self.health_address}"]}}\n'
        )
        said = self._supervisor if self._supervisor.endswith("\n") else f"{self._supervisor}\n"
        tail = "\n" if "governor:" in said else UNGOVERNED
        self.config.write_text(head + said.lstrip("\n") + tail + body, encoding="utf-8")

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self._clean_up()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self.stop()
            else:
                print(f"--- {self.log}\n{self.log_tail()}", file=sys.stderr)
        finally:
            self._clean_up()

    def start(self, limit: float = 60.0) -> None:
        """Start it and wait until it answers; also again after `stop` or `kill`."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.directory,
                env=self.environment(),
                start_new_session=True,
            )
        self._wait_until_it_answers(limit)

    def command(self) -> list[str]:
        """What starts it; a kind of daemon may be started otherwise."""
        return [sys.executable, "-m", "stepwarden", "run", str(self.config)]

    def environment(self) -> dict[str, str]:
        """What the daemon, the command line and hand-started workers run with."""
        paths = [path for path in [self._extra_env.get("PYTHONPATH")] if path]
        paths += [str(TESTS)]
        paths += [os.path.abspath(p) for p in os.environ.get("PYTHONPATH", "").split(":") if p]
        base = {k: v for k, v in os.environ.items() if not k.startswith("STEPWARDEN_")}
        extra = {"PYTHONPATH": ":".join(paths), processes.MARK_VARIABLE: self.mark}
        return base | self._extra_env | extra

    @property
    def pid(self) -> int:
        """Process id of the daemon that was started last."""
        assert self.process is not None
        return self.process.pid

    def admin(self) -> supervisor_pb2_grpc.SupervisorServiceStub:
        """A stub on the admin socket."""
        if self._channel is None:
            target = f"unix:{load(self.config).supervisor.admin_socket}"
            options = [("grpc.enable_http_proxy", 0), ("grpc.max_reconnect_backoff_ms", 200)]
            self._channel = grpc.insecure_channel(target, options=options)
        return supervisor_pb2_grpc.SupervisorServiceStub(  # type: ignore[no-untyped-call]
            self._channel
        )

    def status(self, limit: float = 10.0) -> dict[str, supervisor_pb2.Worker]:
        """All workers by name, as the daemon reports them now."""
        request = supervisor_pb2.ListWorkersRequest()
        answer = self.admin().ListWorkers(request, timeout=limit, wait_for_ready=True)
        self._remember()
        return {worker.name: worker for worker in answer.workers}

    def events(self, worker: str = "", limit: float = 10.0) -> list[supervisor_pb2.Event]:
        """Everything that happened so far, the oldest first."""
        request = supervisor_pb2.WatchEventsRequest(worker=worker)
        return list(self.admin().WatchEvents(request, timeout=limit, wait_for_ready=True))

    def wait_event(
        self,
        wanted: Callable[[supervisor_pb2.Event], bool],
        *,
        worker: str = "",
        limit: float = 60.0,
    ) -> supervisor_pb2.Event:
        """The first event, past or coming, that `wanted` accepts."""
        request = supervisor_pb2.WatchEventsRequest(follow=True, worker=worker)
        seen: list[str] = []
        stream = self.admin().WatchEvents(request, timeout=limit, wait_for_ready=True)
        event: supervisor_pb2.Event
        try:
            for event in stream:
                self._remember()
                seen.append(f"{event.kind} {event.from_state}>{event.to_state}: {event.sentence}")
                if wanted(event):
                    return event
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
        finally:
            stream.cancel()
        raise AssertionError(f"not within {limit:g} s; happened:\n  " + "\n  ".join(seen))

    def wait_transition(
        self, worker: str, to_state: str, *, after: int = 0, limit: float = 60.0
    ) -> supervisor_pb2.Event:
        """The first transition of `worker` to `to_state` whose event id is above `after`."""
        return self.wait_event(
            lambda event: event.to_state == to_state and event.id > after,
            worker=worker,
            limit=limit,
        )

    def wait_state(self, worker: str, state: str, limit: float = 60.0) -> supervisor_pb2.Worker:
        """`worker`'s status as soon as it is in `state`; asked at most 20 times a second."""
        return self.wait_status(worker, lambda seen: seen.state == state, state, limit)

    def wait_status(
        self,
        worker: str,
        wanted: Callable[[supervisor_pb2.Worker], bool],
        description: str,
        limit: float = 60.0,
    ) -> supervisor_pb2.Worker:
        """`worker`'s status as soon as `wanted` accepts it."""
        end = time.monotonic() + limit
        while True:
            seen = self.status()[worker]
            if wanted(seen):
                return seen
            assert time.monotonic() < end, f"not {description} within {limit:g} s, but {seen}"
            self._assert_alive()
            time.sleep(0.05)

    def cli(self, *words: str, limit: float = 30.0) -> subprocess.CompletedProcess[str]:
        """Run `stepwarden WORDS` in the daemon's directory and return what it said."""
        return subprocess.run(
            [sys.executable, "-m", "stepwarden", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.directory,
            env=self.environment(),
            timeout=limit,
            check=False,
        )

    def tree(self) -> list[psutil.Process]:
        """Every living process below the daemon or with its mark, the daemon excepted."""
        found = {*processes.descendants(self.pid), *processes.marked(self.mark)}
        self._seen |= found
        return sorted((p for p in found if p.pid != self.pid), key=lambda p: p.pid)

    def stop(self, limit: float = 30.0) -> None:
        """SIGTERM; exit code 0 within `limit`; not one process of it is left."""
        if self.process is not None:
            self.tree()
            self.terminate()
            self._close_channel()
            try:
                code = self.process.wait(limit)
            except subprocess.TimeoutExpired:
                raise AssertionError(f"still running:\n{self.log_tail()}") from None
            assert code == 0, f"exit code {code}:\n{self.log_tail()}"
            self.process = None
        self.assert_nothing_left()

    def terminate(self) -> None:
        """SIGTERM to the daemon; waits for nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """SIGKILL the daemon alone, as a crash would; its workers are left to themselves."""
        assert self.process is not None
        self.tree()
        self.process.kill()
        self.process.wait(10)
        self.process = None
        self._close_channel()

    def left(self) -> list[psutil.Process]:
        """Processes ever seen here, or with our mark, that live now; the daemon counts too."""
        found = {p for p in self._seen if processes.still_there(p)}
        found |= {p for p in processes.marked(self.mark) if processes.still_there(p)}
        return sorted(found, key=lambda p: p.pid)

    def assert_nothing_left(self) -> None:
        """Fail with the list of processes that are left."""
        left = self.left()
        assert not left, f"left behind: {processes.describe(left)}"

    def log_tail(self, lines: int = 60) -> str:
        """The end of what the daemon and its workers wrote."""
        if not self.log.exists():
            return ""
        text = self.log.read_text(encoding="utf-8", errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def _wait_until_it_answers(self, limit: float) -> None:
        end = time.monotonic() + limit
        while True:
            self._assert_alive()
            try:
                self.status(limit=0.5)
                return
            except grpc.RpcError:
                text = f"no answer within {limit:g} s:\n{self.log_tail()}"
                assert time.monotonic() < end, text

    def _assert_alive(self) -> None:
        code = None if self.process is None else self.process.poll()
        assert code is None, f"the daemon ended with {code}:\n{self.log_tail()}"

    def _remember(self) -> None:
        if self.process is not None:
            self._seen |= set(processes.descendants(self.process.pid))

    def _close_channel(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _clean_up(self) -> None:
        self._close_channel()
        if self.process is not None:
            self.tree()
            self.process.kill()
            self.process.wait(10)
            self.process = None
        processes.end(self.left())
        shutil.rmtree(self.directory, ignore_errors=True)
