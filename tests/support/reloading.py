"""A crew whose file is rewritten while it runs, and the three ways to have it loaded again."""

from __future__ import annotations

import copy
import json
import signal
from collections.abc import Mapping
from typing import Any, Self

from stepwarden_proto.v1 import supervisor_pb2

from support.crew import Crew, Event, Section
from support.stub_control import STUB_COMMAND
from support.waiting import wait_for

QUIET = "  reload: {watch: false}\n"
"""For the supervisor section: nobody but the test reloads."""

OUTCOMES = frozenset({"reloaded", "reload_failed"})


class Reloaded(Crew):
    """`sections` are the workers of the file as it was written last."""

    def __init__(
        self,
        workers: Mapping[str, Section],
        *,
        supervisor: str = QUIET,
        env: Mapping[str, str] | None = None,
        **top: Any,
    ) -> None:
        self.top = top
        self.sections = dict(workers)
        super().__init__(workers, supervisor=supervisor, env=env, **top)

    def rewrite(self, workers: Mapping[str, Section | None], **top: Any) -> None:
        """Put these workers over those of the file; None: not in it any more."""
        for name, section in workers.items():
            if section is None:
                self.sections.pop(name)
                continue
            own = copy.deepcopy(section)
            (self.directory / name).mkdir(exist_ok=True)
            if own.get("command") == STUB_COMMAND:
                own["env"] = {"STUB_DIR": str(self.directory / name), **own.get("env", {})}
            self.sections[name] = own
        self.top = {**self.top, **top}
        self.write_sections(self.sections, **self.top)

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    def reload(self, *, dry_run: bool = False, wait: float | None = 20.0) -> Any:
        """The answer of the admin interface."""
        request = supervisor_pb2.ReloadRequest(dry_run=dry_run)
        if wait is not None:
            request.wait_seconds = wait
        return self.admin().Reload(request, timeout=60, wait_for_ready=True)

    def hang_up(self) -> None:
        """SIGHUP to the daemon; waits for nothing."""
        assert self.process is not None
        self.process.send_signal(signal.SIGHUP)

    def outcomes(self) -> list[Event]:
        """What came of each reload so far, the oldest first."""
        return [e for e in self.events() if e.kind in OUTCOMES and not e.worker]

    def wait_outcomes(self, count: int) -> list[Event]:
        """The same once there are so many."""
        wait_for(lambda: len(self.outcomes()) >= count, 30, lambda: str(self.outcomes()))
        return self.outcomes()

    def pids(self) -> dict[str, int]:
        """The main process of every worker."""
        return {name: seen.pid for name, seen in self.status().items()}

    def configuration(self) -> supervisor_pb2.Configuration:
        """What the daemon says of its file."""
        request = supervisor_pb2.ListWorkersRequest()
        answer = self.admin().ListWorkers(request, timeout=10)
        found: supervisor_pb2.Configuration = answer.configuration
        return found

    def shown(self) -> dict[str, Any]:
        """`stepwarden status --json`."""
        socket = str(self.directory / "run" / "admin.sock")
        done = self.cli("status", "--json", "--socket", socket)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found
