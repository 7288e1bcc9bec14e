"""Runs lives as our children, each in a control group of its own where we may make one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path

from stepwarden_proto import page

from stepwarden.clock import Clock
from stepwarden.config import WorkerConfig
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.daemon.life import Life
from stepwarden.daemon.runners import SPAWN, Runner
from stepwarden.edge.aside import Aside
from stepwarden.edge.begun import Begun
from stepwarden.edge.cgroup import Cgroup, expect_joins, make_cgroup
from stepwarden.edge.launcher import Launcher, LaunchSpec
from stepwarden.edge.log_guard import LogGuard, find_log
from stepwarden.edge.output_capture import CaptureSpec, open_capture
from stepwarden.edge.reaper import Reaper

SPAWN_LIMIT_SECONDS = 10.0
"""A start whose exec takes longer (dead network path, locked file) has failed."""


class SpawnRunner(Runner):
    """`cgroups`: below which groups may be made; None: there can be none.

    `descriptors`: how many a worker may hold open at first; None: as many as we. `on_log`: told of
    each process of ours that writes a worker's output, which belongs to no family. `note`: told
    what became of one. `note_life`: notes a life for the next daemon.
    """

    kind = SPAWN

    def __init__(
        self,
        launcher: Launcher,
        reaper: Reaper,
        cgroups: Path | None,
        descriptors: int | None,
        on_log: Callable[[ProcessId], None],
        clock: Clock,
        note: Callable[[Event], None],
        note_life: Callable[[Life], Awaitable[None]],
    ) -> None:
        self._launcher = launcher
        self._reaper = reaper
        self._cgroups = cgroups
        self._descriptors = descriptors
        self._on_log = on_log
        self._clock = clock
        self._note = note
        self._note_life = note_life

    def reserve(self, life: Life) -> None:
        """Its control group, by the name of the life."""
        group = None if self._cgroups is None else make_cgroup(self._cgroups, life.name)
        life.cgroup = "" if group is None else str(group.path)

    def release(self, life: Life) -> None:
        """Nobody has ever run in its control group, so no burial will come and remove it."""
        if life.cgroup:
            with suppress(OSError):
                Cgroup(Path(life.cgroup)).remove()

    async def start(
        self, life: Life, config: WorkerConfig, environment: Mapping[str, str]
    ) -> Begun:
        """Spawn it; with captured output after the process that takes the output."""
        output = config.output
        if output.mode == "capture" and output.path is not None:
            files = CaptureSpec(output.path, output.max_file, output.keep)
            with await open_capture(self._launcher, files) as capture:
                self._on_log(capture.process)
                begun = await self._spawn(life, config, environment, capture.output_fd)
                self._guard(life, files, capture.take_reader(), capture.process)
                return begun
        return await self._spawn(life, config, environment, None)

    async def resume(self, life: Life, config: WorkerConfig) -> None:
        """Watch over the log process of a life that an earlier daemon started."""
        output, main = config.output, life.main
        if main is None or output.mode != "capture" or output.path is None:
            return
        files = CaptureSpec(output.path, output.max_file, output.keep)
        deadline = Deadline.after(self._clock.monotonic(), SPAWN_LIMIT_SECONDS)
        with suppress(OSError):  # TimeoutError is one
            found = await Aside(self._clock).call(lambda: find_log(main, files), deadline)
            if found is not None:
                reader, files, process = found
                self._guard(life, files, reader, process)

    def _guard(
        self, life: Life, files: CaptureSpec, reader: int, process: ProcessId | None
    ) -> None:
        def report(text: str) -> None:
            self._note(Event(Kind.DAEMON, text, life.worker, str(life.incarnation)))

        if process is not None:
            self._on_log(process)
        life.log = LogGuard(
            self._launcher, files, reader, process, self._clock, self._on_log, report
        )
        life.log.start()

    async def _spawn(
        self,
        life: Life,
        config: WorkerConfig,
        environment: Mapping[str, str],
        output_fd: int | None,
    ) -> Begun:
        async def chosen(process: ProcessId) -> None:
            # Killed between the exec and its note, we would leave one whose command has blanked its
            # environment (env -i) to nobody, and the next daemon would start another beside it.
            life.launcher = process
            await self._note_life(life)

        spec = self.spec(config, environment, life.cgroup, output_fd)
        process = await self._launcher.spawn(spec, SPAWN_LIMIT_SECONDS, chosen)
        return Begun(process, life.cgroup)

    def spec(
        self,
        config: WorkerConfig,
        environment: Mapping[str, str],
        cgroup: str = "",
        output_fd: int | None = None,
    ) -> LaunchSpec:
        """What the launcher is to start for this worker."""
        run_as, output = config.run_as, config.output
        append = output.mode == "append" and output.path is not None
        return LaunchSpec(
            config.argv,
            environment,
            config.cwd,
            str(output.path) if append else None,
            self._descriptors if "nofile" not in run_as.limits else None,
            run_as.user,
            run_as.group,
            run_as.umask,
            run_as.nice,
            run_as.limits,
            cgroup or None,
            output_fd,
            pid_variable=page.ENV_MAIN,
        )

    async def exit_of(self, life: Life) -> Exit | None:
        """What the reaper knows, where it was our child."""
        return None if life.main is None else self._reaper.exit_of(life.main)

    async def before_burial(self, life: Life, config: WorkerConfig) -> None:  # noqa: ARG002
        """Another life follows as a rule, and joins a control group of its own."""
        if self._cgroups is not None:
            with suppress(RuntimeError):  # no thread to be had: it takes a little longer
                asyncio.get_running_loop().run_in_executor(None, expect_joins, self._cgroups)
