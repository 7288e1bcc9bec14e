"""The files of a recording as records, whole or as far as a killed daemon wrote them."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path

from stepwarden.replay.codec import UnreadableError, reading
from stepwarden.replay.lines import Head, Record, read

SUFFIX = ".jsonl.gz"
SUBDIRECTORY = "recording"
"""Below the state directory."""

MAX_LINE = 16 << 20
_CHUNK = 1 << 16


def files_of(path: Path) -> list[Path]:
    """The files of a recording, the oldest first.

    `path`: one of them, their directory, or a state directory. `UnreadableError`: there is none.
    """
    with reading(path):
        return _files_of(path)


def _files_of(path: Path) -> list[Path]:
    if path.is_file():
        return [path]
    for directory in (path, path / SUBDIRECTORY):
        found = sorted(directory.glob(f"*{SUFFIX}")) if directory.is_dir() else []
        if found:
            return found
    path.stat()
    raise UnreadableError(f"{path}: there is no recording ({SUFFIX} files) in it")


def records_of(files: Iterable[Path]) -> Iterator[Record]:
    """All records, file after file. `UnreadableError` names the file and the line."""
    for path in files:
        try:
            yield from _checked(read(_lines(path)))
        except UnreadableError as error:
            raise UnreadableError(f"{path}: {error}") from None


def _checked(records: Iterator[Record]) -> Iterator[Record]:
    for number, record in enumerate(records):
        if number == 0 and not isinstance(record, Head):
            raise UnreadableError("it does not begin as a recording does")
        yield record


def _lines(path: Path) -> Iterator[str]:
    """Whole lines only: the last one of a killed daemon may be torn."""
    rest = b""
    for block in _unpacked(path):
        *whole, rest = (rest + block).split(b"\n")
        if len(rest) > MAX_LINE:
            raise UnreadableError(f"a line is longer than {MAX_LINE} bytes")
        for line in whole:
            yield line.decode("utf-8", "surrogatepass")


def _unpacked(path: Path) -> Iterator[bytes]:
    unpacker = zlib.decompressobj(31)
    with reading(path), path.open("rb") as file:
        while block := file.read(_CHUNK):
            try:
                yield unpacker.decompress(block)
            except zlib.error:
                raise UnreadableError("it is damaged, or no gzip file") from None
