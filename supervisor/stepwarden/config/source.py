"""From a path to text: nothing here waits, and nothing here trusts the file."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

from stepwarden.config.problems import ConfigError, Problem

MAX_FILE_BYTES = 4 * 1024 * 1024
"""A file with thousands of workers stays far below this."""

_BOM = b"\xef\xbb\xbf"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_NOT_TEXT = re.compile("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def read_text(path: Path) -> str:
    """The file's text without a byte order mark. Raises ConfigError with one line."""
    data = _read_bytes(path)
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
        # A FIFO or a device must be recognised, never waited for.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError as error:
        raise _refusal(path, f"cannot be opened: {error.strerror}") from None
    except ValueError:
        raise _refusal(path, "is not a file name: it holds a NUL character") from None
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise _refusal(path, "is not a regular file")
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror}") from None
    finally:
        os.close(descriptor)
    if len(data) > MAX_FILE_BYTES:
        raise _refusal(path, f"is larger than {MAX_FILE_BYTES // 1024 // 1024} MiB")
    return data


def _place(before: str) -> tuple[int, int]:
    """Line and column, from 1, of what follows `before`."""
    lines = before.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return len(lines), len(lines[-1]) + 1


def _refusal(
    path: Path, message: str, line: int | None = None, column: int | None = None
) -> ConfigError:
    return ConfigError([Problem("", message, file=str(path), line=line, column=column)])
