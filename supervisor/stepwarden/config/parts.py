"""Sections of one worker to settings: how it runs, what it waits for, what tells how it does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath

from stepwarden.config.findings import Findings
from stepwarden.config.model import WorkerSection
from stepwarden.config.problems import Path
from stepwarden.config.sections import SharedSection, StopSection, keys_of
from stepwarden.config.settings import (
    OutputConfig,
    ProgressCounter,
    ReadyProbe,
    ReleaseGate,
    RunAs,
    ShortCommand,
)
from stepwarden.config.shape_sections import ReadySection
from stepwarden.core.policy import AGENT_NONE

_PROBES = ("agent", "tcp", "http", "grpc", "command", "delay")
_BELONGS = {"status": ("http",), "service": ("grpc",)}
_ASKED_AGAIN = ("tcp", "http", "grpc", "command")
_TURNED_OVER = ("max_file", "keep")


class PartsBuilder:
    """Makes the parts of one worker; the findings say what is wrong with them."""

    def __init__(
        self, name: str, section: WorkerSection, shared: SharedSection, findings: Findings
    ) -> None:
        self._path: Path = ("workers", name)
        self._name = name
        self._section = section
        self._shared = shared
        self._findings = findings

    def run_as(self) -> RunAs:
        """User, group, mask, priority and limits."""
        shared, limits = self._shared, self._shared.limits
        return RunAs(
            user=shared.user,
            group=shared.group,
            umask=None if shared.umask is None else int(shared.umask, 8),
            nice=shared.nice,
            limits={
                key: getattr(limits, name)
                for key, name in keys_of(type(limits)).items()
                if name in limits.model_fields_set
            },
        )

    def output(self, state_dir: FilePath) -> OutputConfig:
        """Where output goes; what is captured goes below `state_dir` where no path is written."""
        said = self._shared.output
        own: Path = (*self._path, "output")
        path = own if self._findings.written(own) else ("defaults", "output")
        if said.mode == "append" and said.path is None:
            self._findings.consequence(path, "mode append needs a path", "path: /some/file")
        if said.mode == "inherit" and said.path is not None:
            message = "mode inherit takes no path"
            self._findings.consequence(path, message, "mode: append or capture with a path")
        if said.mode != "capture":
            for key in _TURNED_OVER:
                if self._findings.written((*own, key)):
                    message = f"means nothing with mode {said.mode}: only captured output has it"
                    self._findings.error((*own, key), message, "mode: capture", at_key=True)
            return OutputConfig(said.mode, None if said.path is None else FilePath(said.path))
        file = FilePath(said.path or state_dir / "output" / self._name)
        return OutputConfig(said.mode, file, said.max_file, said.keep)

    def pre_start(self) -> ShortCommand | None:
        """The command before each start."""
        said = self._section.pre_start
        if said is None:
            return None
        argv = self._argv(said.command, "pre_start", "command")
        return ShortCommand(argv, said.timeout, said.ignore_failure)

    def stop_command(self) -> ShortCommand | None:
        """The command that stops it, before any signal."""
        said = self._shared.stop
        own: Path = (*self._path, "stop")
        if said.command is None:
            if self._findings.written((*own, "timeout")):
                message = "is for a command, and there is none"
                accepted = "command with timeout, or signal and grace"
                self._findings.error((*own, "timeout"), message, accepted, at_key=True)
            return None
        argv = self._argv(said.command, "stop", "command")
        # What follows a command that failed is the signal, in any case.
        return ShortCommand(argv, said.timeout, ignore_failure=True)

    def progress(self) -> ProgressCounter | None:
        """The counter that shows whether it gets on."""
        said = self._section.progress
        if said is None:
            return None
        counters, work = tuple(said.counter), tuple(said.work)
        return ProgressCounter(said.url, counters, work, said.interval, said.budget)

    def release(self) -> ReleaseGate | None:
        """What must be free before each start."""
        said, path = self._section.release, (*self._path, "release")
        if said is None:
            return None
        if not (said.ports or said.files or said.command is not None):
            accepted = "ports, files or command"
            self._findings.consequence(path, "says nothing that must be free", accepted)
        command: tuple[str, ...] = ()
        if said.command is not None:
            command = self._argv(said.command, "release", "command")
        files = tuple(FilePath(file) for file in said.files)
        return ReleaseGate(tuple(said.ports), files, command, said.limit)

    def ready(self) -> ReadyProbe | None:
        """The probe; None where its agent says it, or else its process."""
        said, path = self._section.ready, (*self._path, "ready")
        if said is None:
            return None
        written = [key for key in _PROBES if getattr(said, key) is not None]
        if len(written) != 1:
            message = f"{' and '.join(written)} are written" if written else "says no probe"
            self._findings.consequence(path, message, f"one of {', '.join(_PROBES)}")
            return None
        kind = written[0]
        self._check_ready_keys(kind)
        if kind == "agent":
            self._check_ready_agent(said)
            return None
        return self._probe(kind, said)

    def _probe(self, kind: str, said: ReadySection) -> ReadyProbe:
        return ReadyProbe(
            kind=kind,
            target=said.tcp or said.http or said.grpc or "",
            status=said.status,
            service=said.service,
            argv=() if said.command is None else self._argv(said.command, "ready", "command"),
            delay=said.delay or 0.0,
            interval=said.interval,
            timeout=said.timeout,
        )

    def _check_ready_keys(self, kind: str) -> None:
        belongs = {**_BELONGS, "interval": _ASKED_AGAIN, "timeout": _ASKED_AGAIN}
        for key, kinds in belongs.items():
            path = (*self._path, "ready", key)
            if kind not in kinds and self._findings.written(path):
                message = f"means nothing with {kind}"
                self._findings.error(path, message, f"with {', '.join(kinds)}", at_key=True)

    def _check_ready_agent(self, said: ReadySection) -> None:
        path = (*self._path, "ready", "agent")
        if not said.agent:
            self._findings.error(path, "false says no probe", f"one of {', '.join(_PROBES)}")
        elif self._shared.agent == AGENT_NONE:
            self._findings.error(path, "there is no agent to say it (agent: none)", "another probe")

    def _argv(self, command: Sequence[str], *keys: str) -> tuple[str, ...]:
        if not command or not command[0]:
            here: Path = (*self._path, *keys)
            path = here if self._findings.written(here) else ("defaults", *keys)
            self._findings.consequence(path, "names no program", "[program, argument]")
            return ("",)
        return tuple(command)


def check_stop(name: str, stop: StopSection, findings: Findings) -> None:
    """Warn of a grace that nobody waits for."""
    for path in (("workers", name, "stop"), ("defaults", "stop")):
        if stop.signal == "KILL" and all(
            findings.written((*path, key)) for key in ("signal", "grace")
        ):
            findings.warning((*path, "grace"), "nothing is waited for after signal KILL")
