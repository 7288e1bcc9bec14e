"""What a file names and this host does not have.

Programs and directories are warnings only: the file may be meant for another host, or the disk may
be mounted later. Accounts, units and the files of TLS are errors, since no start could go well.
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
from collections.abc import Mapping

from stepwarden.config.findings import Findings
from stepwarden.config.problems import Path
from stepwarden.config.settings import ShortCommand, WorkerConfig
from stepwarden.config.units import AskUnits, UnitsUnknown
from stepwarden.config.values import parse_whole
from stepwarden.exposure import ListenSettings
from stepwarden.naming import shown
from stepwarden.tls_files import out_of_date, tls_problems


class HostChecks:
    """Looks at this host for the workers of one file."""

    def __init__(self, findings: Findings) -> None:
        self._findings = findings
        self._accounts: dict[tuple[str, str], bool] = {}

    def check(self, worker: WorkerConfig) -> None:
        """Look for everything that one worker names, but its unit."""
        self._check_paths(worker)
        attach = worker.attach
        for keys, what, name in (
            (("user",), "user", worker.run_as.user),
            (("group",), "group", worker.run_as.group),
            (("attach", "expect_user"), "user", None if attach is None else attach.expect_user),
        ):
            if name is not None and not self._is_there(what, name):
                path = self._findings.home(worker.name, *keys)
                message = f"there is no {what} {shown(name)} on this host"
                self._findings.error(path, message, f"a {what} of this host, or a number")

    def check_listener(self, settings: ListenSettings, path: Path) -> None:
        """Try the certificates of the listener whose section stands at `path`, as `run` will."""
        if settings.tls is None or not settings.addresses:
            return
        if wrong := out_of_date(settings.tls):
            here, file = (*path, "tls", "cert"), shown(str(settings.tls.cert))
            self._findings.warning(here, f"the certificate in {file} {wrong}: clients refuse it")
        for error in tls_problems(settings.tls):
            here, file = (*path, "tls", error.name), shown(str(settings.tls.named()[error.name]))
            if error.denied:
                self._findings.warning(here, f"{file} {error}; the daemon must be able to")
            else:
                self._findings.error(here, f"{file} {error}")
        self._check_private((*path, "tls", "key"), str(settings.tls.key))

    def check_units(self, workers: Mapping[str, WorkerConfig], ask: AskUnits) -> None:
        """Ask systemd, once for all, whether their units can be workers."""
        units = {name: worker.unit for name, worker in workers.items() if worker.unit is not None}
        if not units:
            return
        try:
            refusals = ask(list(units.values()))
        except UnitsUnknown as unknown:
            for name in units:
                message = f"it could not be checked that its Restart= is no: {unknown}"
                self._findings.warning(("workers", name, "unit"), message)
            return
        for name, unit in units.items():
            if refusals.get(unit):
                accepted = "a unit that systemd knows, with Restart=no"
                self._findings.error(("workers", name, "unit"), refusals[unit], accepted)

    def _check_paths(self, worker: WorkerConfig) -> None:
        gate, ready = worker.release, worker.ready
        for keys, argv in (
            (("command",), worker.command),
            (("pre_start", "command"), _argv(worker.pre_start)),
            (("stop", "command"), _argv(worker.stop_command)),
            (("ready", "command"), None if ready is None else ready.argv),
            (("release", "command"), None if gate is None else gate.command),
        ):
            if argv:
                home = self._findings.home(worker.name, *keys)
                self._check_path((*home, 0), argv[0], "program")
        self._check_path(("workers", worker.name, "cwd"), worker.cwd or "", "directory")
        for file in worker.env_files:
            self._check_private(self._findings.home(worker.name, "env_file"), str(file))

    def _check_private(self, path: Path, file: str) -> None:
        try:
            mode = os.stat(file).st_mode
        except OSError:
            return
        if mode & stat.S_IROTH:
            message = f"every user of this host can read {shown(file)}"
            self._findings.warning(path, f"{message} (mode {stat.S_IMODE(mode):04o})")

    def _check_path(self, path: Path, text: str, kind: str) -> None:
        wrong = _wrong(text, kind) if text.startswith("/") else ""
        if wrong:
            self._findings.warning(path, f"{shown(text)} {wrong} on this host")

    def _is_there(self, what: str, name: str) -> bool:
        if parse_whole(name) is not None:
            return True  # a number needs no entry
        if (what, name) not in self._accounts:
            self._accounts[what, name] = _account_is_there(what, name)
        return self._accounts[what, name]


def _account_is_there(what: str, name: str) -> bool:
    try:
        if what == "user":
            pwd.getpwnam(name)
        else:
            grp.getgrnam(name)
    except KeyError:
        return False
    return True


def _argv(command: ShortCommand | None) -> tuple[str, ...]:
    return () if command is None else command.argv


def _wrong(text: str, kind: str) -> str:
    """What is wrong with a path to a directory or a program; "": nothing, or nobody can know."""
    try:
        mode = os.stat(text).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except OSError:
        return ""
    if kind == "directory":
        return "" if stat.S_ISDIR(mode) else "is not a directory"
    if stat.S_ISDIR(mode):
        return f"is a directory, not a {kind},"
    return "" if mode & 0o111 else "is a file that nobody may execute"
