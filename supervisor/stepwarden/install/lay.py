"""Compares what lies on the host with what would be laid down, lays it down and takes it away."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from stepwarden.install.stamp import Stamp, body, read_stamp
from stepwarden.install.ways import MODES, SERVICE, Piece, Place, Way, pieces, this_program

MAX_BYTES = 1 << 20


class State(StrEnum):
    """What a file is, beside what would be laid down."""

    SAME = "same"  # exactly that
    MISSING = "missing"
    OLDER = "older"  # laid down by another version, or for another installation or way
    EDITED = "edited"  # laid down by us and edited since
    FOREIGN = "foreign"  # not laid down by us
    KEPT = "kept"  # the operator's own: it is there, whatever it holds
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Found:
    """One file and how it differs. `detail`: why it cannot be read, or which version it is of.

    `stamped`: False where it was put there by hand, though it may be the very same.
    """

    piece: Piece
    state: State
    detail: str = ""
    stamped: bool = True


def compare(piece: Piece) -> Found:
    """How the file that is there differs from the one that would be."""
    try:
        with piece.path.open("rb") as file:
            text = file.read(MAX_BYTES).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return Found(piece, State.MISSING)
    except OSError as error:
        return Found(piece, State.UNREADABLE, error.strerror or str(error))
    if piece.keep:
        return Found(piece, State.KEPT)
    stamp = read_stamp(text)
    if stamp is not None and _alike(text, piece.text):
        return Found(piece, State.SAME)
    if stamp is None:
        # By hand from the sources it has no stamp, and is no less ours.
        plain = text == body(piece.text)
        return Found(piece, State.OLDER if plain else State.FOREIGN, "by hand", stamped=False)
    state = State.OLDER if stamp.intact else State.EDITED
    return Found(piece, state, f"version {stamp.version}, mode {stamp.mode}")


def installed_stamp(place: Place) -> Stamp | None:
    """What the installed unit says of how it was laid down; None where it is not ours."""
    try:
        with (place.units / SERVICE).open("rb") as file:
            stamp = read_stamp(file.read(MAX_BYTES).decode("utf-8", "replace"))
    except OSError:
        return None
    return stamp if stamp is not None and stamp.mode in MODES else None


def drift(place: Place | None = None, program: tuple[str, ...] | None = None) -> list[Found]:
    """Every file of the installed service and how it differs; [] where none is installed by us.

    The way is the one that the installed unit names. `program` None: this installation's.
    """
    where = Place() if place is None else place
    stamp = installed_stamp(where)
    if stamp is None:
        return []
    way = Way(stamp.mode, stamp.user, this_program() if program is None else program)
    return [compare(piece) for piece in pieces(way, where)]


def others(way: Way, place: Place) -> list[Piece]:
    """Files that another way has and this one has not: they would change how the daemon runs."""
    wanted = {piece.path for piece in pieces(way, place)}
    found: dict[Path, Piece] = {}
    for mode in MODES:
        for piece in pieces(Way(mode, way.user, way.program), place):
            if piece.path not in wanted:
                found.setdefault(piece.path, piece)
    return list(found.values())


def write(piece: Piece) -> None:
    """Put the file there, whole or not at all, with its mode whatever the umask. Raises OSError."""
    _make_directories(piece.path.parent)
    scratch = piece.path.with_name(f".{piece.path.name}.new")
    with suppress(FileNotFoundError):
        scratch.unlink()
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with open(os.open(scratch, flags, 0o600), "w", encoding="utf-8") as file:
            file.write(piece.text)
            os.fchmod(file.fileno(), piece.mode)
        os.replace(scratch, piece.path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise


def remove(path: Path) -> None:
    """Take the file away, and its directory where that was made for it alone. Raises OSError."""
    path.unlink()
    if path.parent.name == f"{SERVICE}.d":
        with suppress(OSError):  # something else is in there
            path.parent.rmdir()


def may_replace(found: Found, force: bool) -> bool:
    """Whether this file may be written over."""
    if found.state in (State.MISSING, State.OLDER):
        return True
    return force and found.state in (State.EDITED, State.FOREIGN)


def installed(every: Iterable[Piece]) -> list[Found]:
    """Those that are there and are nobody's edited work: what an uninstallation takes away."""
    found = [compare(piece) for piece in every]
    return [one for one in found if one.state in (State.SAME, State.OLDER)]


def _alike(one: str, other: str) -> bool:
    """Another version that lays down the very same is no difference."""
    stamps = [read_stamp(text) for text in (one, other)]
    ways = {(stamp.mode, stamp.user) for stamp in stamps if stamp is not None}
    return len(ways) == 1 and body(one) == body(other)


def _make_directories(folder: Path) -> None:
    for step in reversed((folder, *folder.parents)):
        if not step.exists():
            step.mkdir()
            step.chmod(0o755)
