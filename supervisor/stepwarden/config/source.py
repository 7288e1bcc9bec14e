"""From a path to text: nothing here waits, and nothing here trusts the file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from stepwarden.config.problems import ConfigError, Problem
from stepwarden.plain_file import MAX_CONFIG_BYTES, NotRegularError, identity, read_regular

_BOM = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True, slots=True)
class Source:
    """What a file held when it was read. `identity` tells its bytes from any others."""

    text: str
    identity: str


def read_text(path: Path) -> str:
    """The file's text without a byte order mark. Raises ConfigError with one line."""
    return read_source(path).text


def read_source(path: Path) -> Source:
    """The same with the identity of the file's bytes, which a ConfigError carries too."""
    data = _read_bytes(path)
    known = identity(data)
    try:
        return Source(_decoded(data, path), known)
    except ConfigError as error:
        error.identity = known
        raise


def _decoded(data: bytes, path: Path) -> str:
    if len(data) > MAX_CONFIG_BYTES:
        raise _refusal(path, f"is larger than {MAX_CONFIG_BYTES // 1024 // 1024} MiB")
    if data.startswith(_UTF16_MARKS):
        raise _refusal(path, "the file is UTF-16; only UTF-8 is accepted", 1, 1)
    data = data.removeprefix(_BOM)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        line, column = _place(data[: error.start].decode("utf-8", "replace"))
        byte = data[error.start]
        raise _refusal(path, f"byte 0x{byte:02X} is not UTF-8 text", line, column) from None
    found = _NOT_TEXT.search(text)
    if found:
        line, column = _place(text[: found.start()])
        code = ord(found.group())
        raise _refusal(path, f"control character 0x{code:02X} is not allowed", line, column)
    return text


def _read_bytes(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_CONFIG_BYTES)
    except NotRegularError as error:
        raise _refusal(path, str(error)) from None
    except OSError as error:
        raise _refusal(path, f"cannot be opened: {error.strerror}") from None
    except ValueError:
        raise _refusal(path, "is not a file name: it holds a NUL character") from None


def _place(before: str) -> tuple[int, int]:
    """Line and column, from 1, of what follows `before`."""
    lines = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return len(lines), len(lines[-1]) + 1


def _refusal(
    path: Path, message: str, line: int | None = None, column: int | None = None
) -> ConfigError:
    return ConfigError([Problem("", message, file=str(path), line=line, column=column)])
