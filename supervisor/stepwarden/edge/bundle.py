"""Sealed bundles: one tar.gz for each incident, whole or absent, readable by the daemon's user.

The first member is manifest.json: a head that says what it is, and the SHA-256 of each other
member. The SHA-256 of the manifest itself is the seal; the journal has it in an event, so that a
bundle can be held against it. It is written under a name that no list shows, synced and renamed.
All of this reads and writes files: call it in a thread.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tarfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Final

MANIFEST: Final = "manifest.json"
SUFFIX: Final = ".tar.gz"
SCRATCH: Final = ".new"

MAX_MEMBER_BYTES = 8 << 20
MAX_BUNDLE_BYTES = 32 << 20
"""Before it is packed. What does not fit is left out, and the manifest names it."""

_MOST_READ = 80 << 20
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_UNREADABLE = (OSError, tarfile.TarError, ValueError, EOFError, zlib.error)


@dataclass(frozen=True, slots=True)
class Summary:
    """One bundle as a list shows it. `head` is what the writer said; `error`: it is damaged."""

    id: str
    size: int
    head: Mapping[str, Any] = field(default_factory=dict)
    seal: str = ""
    error: str = ""


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was read. `faults`: members that are not what the manifest says."""

    summary: Summary
    members: Mapping[str, bytes]
    faults: tuple[str, ...] = ()


class BundleError(Exception):
    """There is no such bundle, or it cannot be read; the text says so."""


def write_bundle(
    directory: Path, name: str, head: Mapping[str, Any], members: Mapping[str, bytes], mtime: int
) -> Summary:
    """Seal these members, the most important first, as `name`; OSError where it cannot.

    `mtime`: seconds since 1970, for the archive. Nothing is left where it fails.
    """
    kept, left_out = _fitting(members)
    manifest = _manifest(name, head, kept, left_out)
    packed = _packed({MANIFEST: manifest, **kept}, mtime)
    os.makedirs(directory, mode=0o700, exist_ok=True)
    scratch, path = directory / f".{name}{SCRATCH}", directory / f"{name}{SUFFIX}"
    try:
        _write_synced(scratch, packed)
        os.rename(scratch, path)
    except BaseException:
        with suppress(OSError):
            scratch.unlink()
        raise
    _sync_directory(directory)
    return Summary(name, len(packed), head, hashlib.sha256(manifest).hexdigest())


def _fitting(members: Mapping[str, bytes]) -> tuple[dict[str, bytes], list[str]]:
    kept: dict[str, bytes] = {}
    left_out, size = [], 0
    for name, data in members.items():
        if len(data) > MAX_MEMBER_BYTES or size + len(data) > MAX_BUNDLE_BYTES:
            left_out.append(name)
            continue
        size += len(data)
        kept[name] = data
    return kept, left_out


def _manifest(
    name: str, head: Mapping[str, Any], kept: Mapping[str, bytes], left_out: list[str]
) -> bytes:
    told = {
        "format": 1,
        "id": name,
        "head": dict(head),
        "members": {
            member: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            for member, data in kept.items()
        },
        "left_out": left_out,
    }
    return json.dumps(told, indent=1).encode()


def _packed(members: Mapping[str, bytes], mtime: int) -> bytes:
    whole = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=whole, mode="wb", compresslevel=6, mtime=mtime) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode, entry.mtime = len(data), 0o600, mtime
            archive.addfile(entry, io.BytesIO(data))
    return whole.getvalue()


def _write_synced(path: Path, data: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW
    descriptor = os.open(path, flags, 0o600)
    try:
        with open(descriptor, "wb", closefd=False) as file:
            os.fchmod(descriptor, 0o600)
            file.write(data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(directory: Path) -> None:
    with suppress(OSError):  # some file systems have no such thing
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def sweep(directory: Path) -> int:
    """Remove what a daemon that was killed left half written; how many there were."""
    found = 0
    for path in _entries(directory):
        if path.name.startswith(".") and path.name.endswith(SCRATCH):
            with suppress(OSError):
                path.unlink()
                found += 1
    return found


def names(directory: Path) -> list[str]:
    """The ids of all bundles, the oldest first; OSError where the directory cannot be read."""
    try:
        found = os.listdir(directory)
    except FileNotFoundError:
        return []
    ids = (name.removesuffix(SUFFIX) for name in found if name.endswith(SUFFIX))
    return sorted(name for name in ids if _ID.fullmatch(name))


def summaries(directory: Path) -> list[Summary]:
    """Every bundle, the oldest first. One that is damaged is named, with what is wrong."""
    return [_summary(directory, name) for name in names(directory)]


def _summary(directory: Path, name: str) -> Summary:
    try:
        with _opened(directory, name) as file:
            size = os.fstat(file.fileno()).st_size
            raw = next(iter(_members(file)))[1]
            head = _head(raw, name)["head"]
        return Summary(name, size, head, hashlib.sha256(raw).hexdigest())
    except (*_UNREADABLE, StopIteration) as error:
        return Summary(name, 0, error=f"cannot be read: {_text(error)}")


def read_bundle(directory: Path, name: str) -> Bundle:
    """One bundle, whole, each member held against the manifest. BundleError otherwise."""
    try:
        with _opened(directory, name) as file:
            size = os.fstat(file.fileno()).st_size
            return _unpacked(name, size, dict(_members(file)))
    except FileNotFoundError:
        raise BundleError(f"there is no incident {name}") from None
    except _UNREADABLE as error:
        raise BundleError(f"incident {name} cannot be read: {_text(error)}") from None


def unpack(name: str, data: bytes) -> Bundle:
    """The same of a bundle that was handed over."""
    try:
        return _unpacked(name, len(data), dict(_members(io.BytesIO(data))))
    except _UNREADABLE as error:
        raise BundleError(f"incident {name} cannot be read: {_text(error)}") from None


def raw_bundle(directory: Path, name: str) -> bytes:
    """The file as it is, for an export."""
    try:
        with _opened(directory, name) as file:
            return file.read()
    except FileNotFoundError:
        raise BundleError(f"there is no incident {name}") from None
    except OSError as error:
        raise BundleError(f"incident {name} cannot be read: {_text(error)}") from None


def _unpacked(name: str, size: int, members: dict[str, bytes]) -> Bundle:
    raw = members.pop(MANIFEST, b"")
    told = _head(raw, name)
    faults = []
    for member, wanted in told["members"].items():
        data = members.get(member)
        if data is None:
            faults.append(f"{member} is missing")
        elif hashlib.sha256(data).hexdigest() != wanted.get("sha256"):
            faults.append(f"{member} was changed")
    faults += [f"{member} was added" for member in members if member not in told["members"]]
    summary = Summary(name, size, told["head"], hashlib.sha256(raw).hexdigest())
    return Bundle(summary, members, tuple(faults))


def _head(raw: bytes, name: str) -> dict[str, Any]:
    told = json.loads(raw)
    if not isinstance(told, dict) or told.get("id") != name:
        raise ValueError("its manifest is of another one")
    if not isinstance(told.get("head"), dict) or not isinstance(told.get("members"), dict):
        raise ValueError("its manifest is none")
    if not all(isinstance(wanted, dict) for wanted in told["members"].values()):
        raise ValueError("its manifest is none")
    return told


def _members(file: IO[bytes]) -> Any:
    size = 0
    with tarfile.open(fileobj=file, mode="r|gz") as archive:
        for entry in archive:
            size += entry.size
            if not entry.isreg() or size > _MOST_READ:
                raise ValueError("holds what no bundle does")
            found = archive.extractfile(entry)
            yield entry.name, b"" if found is None else found.read()


def _opened(directory: Path, name: str) -> IO[bytes]:
    if not _ID.fullmatch(name):
        raise FileNotFoundError(name)
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    return open(os.open(directory / f"{name}{SUFFIX}", flags), "rb")


def retain(directory: Path, keep: int, max_size: int) -> int:
    """Remove the oldest beyond `keep` bundles or `max_size` bytes; how many went.

    The newest one stays whatever its size.
    """
    size, removed = 0, 0
    for position, name in enumerate(reversed(names(directory))):
        path = directory / f"{name}{SUFFIX}"
        with suppress(OSError):
            size += path.stat().st_size
            if position >= max(keep, 1) or (position and size > max_size):
                path.unlink()
                removed += 1
    return removed


def _entries(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:
        return []


def _text(error: BaseException) -> str:
    told = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return told or type(error).__name__
