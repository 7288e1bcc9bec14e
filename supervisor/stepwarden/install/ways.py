"""The ways of running the daemon as a service, and the files of each.

root    root; workers are transient units                                          (the default)
spawn   root; the sandbox is loosened for workers that are children of the daemon
user    a user of its own, without any capability; it spawns its workers as itself
units   a user of its own; workers are pre-installed units, which polkit lets it start and stop
"""

from __future__ import annotations

import re
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from stepwarden.errors import UsageError
from stepwarden.install.shipped import text_of
from stepwarden.install.stamp import stamped

MODES = ("root", "spawn", "user", "units")
SERVICE = "stepwarden.service"
CONFIG = Path("/etc/stepwarden/stepwarden.yaml")
USER = "stepwarden"
USER_NAME = re.compile(r"[a-z_][a-z0-9_-]{0,30}")

_DROP_INS = {"root": (), "spawn": ("spawn",), "user": ("spawn", "user"), "units": ("units",)}


@dataclass(frozen=True, slots=True)
class Place:
    """Directories of the host. `prefix` None: the administrator's; `/usr`: those of packages.

    `root`: what stands for `/`, for an image or a package that is being made.
    """

    root: Path = Path("/")
    prefix: Path | None = None

    def at(self, path: Path) -> Path:
        """Where this path of the host is now."""
        return self.root / path.relative_to("/")

    @property
    def units(self) -> Path:
        """Of systemd's units."""
        return self._either("/etc/systemd/system", "lib/systemd/system")

    @property
    def users(self) -> Path:
        """Of sysusers.d."""
        return self._either("/etc/sysusers.d", "lib/sysusers.d")

    @property
    def directories(self) -> Path:
        """Of tmpfiles.d."""
        return self._either("/etc/tmpfiles.d", "lib/tmpfiles.d")

    @property
    def rules(self) -> Path:
        """Of polkit."""
        return self._either("/etc/polkit-1/rules.d", "share/polkit-1/rules.d")

    def _either(self, own: str, packaged: str) -> Path:
        return self.at(Path(own) if self.prefix is None else self.prefix / packaged)


@dataclass(frozen=True, slots=True)
class Way:
    """How the daemon is to run. `program`: the words before `run FILE` and `reload`."""

    mode: str
    user: str
    program: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Piece:
    """One file. `text` is what it is to hold, stamp included; `keep`: never replaced once there."""

    path: Path
    text: str
    mode: int = 0o644
    keep: bool = False


def pieces(way: Way, place: Place) -> list[Piece]:
    """Every file of this way. Raises UsageError, StepwardenError."""
    if USER_NAME.fullmatch(way.user) is None:
        accepted = "lower case letters, digits, - and _, 31 at most"
        raise UsageError(f"{way.user!r} is no name for a user of the system; accepted: {accepted}")
    found = [
        _piece(way, place.units / SERVICE, SERVICE),
        _piece(way, place.directories / "stepwarden.conf", "stepwarden.tmpfiles"),
    ]
    for name in _DROP_INS[way.mode]:
        shipped = f"{SERVICE}.d/{name}.conf"
        found.append(_piece(way, place.units / f"{SERVICE}.d" / f"{name}.conf", shipped))
    if way.mode in ("user", "units"):
        found.append(_piece(way, place.users / "stepwarden.conf", "stepwarden.sysusers"))
    if way.mode == "units":
        users = place.users / "stepwarden-worker.conf"
        found.append(_piece(way, users, "stepwarden-worker.sysusers"))
        unit = "stepwarden-worker@.service"
        found.append(_piece(way, place.units / unit, unit))
        rule = "50-stepwarden.rules"
        found.append(_piece(way, place.rules / rule, f"polkit/{rule}", comment="//"))
    found.append(Piece(place.at(CONFIG), text_of(CONFIG.name), keep=True))
    return found


def this_program() -> tuple[str, ...]:
    """How this very installation is started: its own command, else its interpreter."""
    command = Path(sysconfig.get_path("scripts")) / "stepwarden"
    try:
        with command.open("rb") as file:
            first = file.readline().strip()
    except OSError:
        first = b""
    if first == b"#!" + sys.executable.encode():
        return (str(command),)
    return (sys.executable, "-P", "-m", "stepwarden")


def command_line(words: tuple[str, ...]) -> str:
    """Words as a unit file takes them."""
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    plain = word.replace("%", "%%").replace("$", "$$")
    if re.fullmatch(r"[A-Za-z0-9_%$./:=@+,-]+", plain):
        return plain
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _piece(way: Way, path: Path, shipped: str, comment: str = "#") -> Piece:
    text = text_of(shipped)
    if shipped == SERVICE:
        text = _with_program(text, command_line(way.program))
    if way.mode in ("user", "units"):
        text = _with_user(text, way.user)
    return Piece(path, stamped(text, comment, way.mode, way.user))


def _with_program(text: str, program: str) -> str:
    for name in ("ExecStart", "ExecReload"):
        text = text.replace(f"\n{name}=stepwarden ", f"\n{name}={program} ")
    return text


def _with_user(text: str, user: str) -> str:
    """Every place that names the daemon's user or group, and none that names something else."""
    for before, after in (
        ("\nUser=stepwarden\n", f"\nUser={user}\n"),
        ("\nGroup=stepwarden\n", f"\nGroup={user}\n"),
        ("\nu stepwarden ", f"\nu {user} "),
        ('subject.user == "stepwarden"', f'subject.user == "{user}"'),
        ("/run/stepwarden 0755 root root", f"/run/stepwarden 0755 {user} {user}"),
    ):
        text = text.replace(before, after)
    return text
