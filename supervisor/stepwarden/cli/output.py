"""Standard output that says so when it cannot be written, and says it once."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Any

from stepwarden.errors import StepwardenError


class OutputError(StepwardenError):
    """What a command has to say could not be written: a full disk, a closed descriptor."""


class _Output:
    """A stream whose failures cannot be taken for those of something else."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with _told():
            if self._stream is None:
                raise OutputError("cannot write the output: standard output is closed")
            return int(self._stream.write(text))

    def flush(self) -> None:
        with _told():
            if self._stream is not None:
                self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def _told() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OutputError(f"cannot write the output: {error.strerror or error}") from error


@contextmanager
def checked_output() -> Iterator[None]:
    """Everything printed inside has been written at the end, or OutputError is raised.

    BrokenPipeError: the reader left. After either, nothing more is tried on this stream.
    """
    stream = sys.stdout
    if isinstance(stream, io.TextIOWrapper):
        # A terminal that speaks ASCII alone gets escapes for the rest, not a traceback.
        stream.reconfigure(errors="backslashreplace")
    output: Any = _Output(stream)
    try:
        with redirect_stdout(output):
            try:
                yield
            finally:
                output.flush()
    except (OutputError, BrokenPipeError):
        silence(stream)
        raise


def complain(text: str) -> None:
    """One message to standard error; where nobody can read it, the exit code has to do."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        silence(sys.stderr)


def silence(stream: Any) -> None:
    """Lead a stream to nowhere: the interpreter tries once more to write what it still holds."""
    # A stream without a descriptor, or none at all, holds nothing back.
    with suppress(OSError, ValueError, AttributeError):
        number = stream.fileno()
        nowhere = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        os.dup2(nowhere, number)
        os.close(nowhere)
