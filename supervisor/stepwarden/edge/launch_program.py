"""The launcher process: waits for one request, sets itself up, and becomes the worker.

Run as a plain file by `python -I -S -E`; imports nothing of ours. Descriptor 3 is a socket to the
supervisor. It reads one JSON object up to end of file, answers "+" once it has it, and then either
execs, which closes the socket (end of file: the worker runs), or writes why it could not.
End of file without a request means that the supervisor is gone: nothing is started.

Text arrives as latin-1 of the real bytes, so that no locale can change a path or an argument.
"""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import sys

TYPE_CHECKING = False  # typing.TYPE_CHECKING, without the time that importing typing takes
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

CHANNEL = 3
EXIT_NOT_STARTED = 127


def main() -> int:
    """Returns only where nothing was started."""
    _close_inherited()
    os.set_inheritable(CHANNEL, False)
    received = _read_all()
    if not received:
        return 0
    os.write(CHANNEL, b"+")
    try:
        _become(json.loads(received))
    except Exception as error:  # whatever went wrong belongs to the supervisor's log
        os.write(CHANNEL, str(error).encode("utf-8", "backslashreplace")[:4000])
    return EXIT_NOT_STARTED


def _close_inherited() -> None:
    # Libraries in the supervisor may hold descriptors without the close-on-exec flag.
    for name in os.listdir("/proc/self/fd"):
        if int(name) > CHANNEL:
            try:
                os.close(int(name))
            except OSError:  # the descriptor of the listing itself
                continue
    for descriptor in (1, 2):
        try:
            os.fstat(descriptor)
        except OSError:  # the supervisor runs without one; the worker shall not trip over that
            os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)


def _read_all() -> bytes:
    parts = []
    while part := os.read(CHANNEL, 1 << 16):
        parts.append(part)
    return b"".join(parts)


def _become(request: dict[str, Any]) -> None:
    argv = [word.encode("latin-1") for word in request["argv"]]
    env = {key.encode("latin-1"): value.encode("latin-1") for key, value in request["env"].items()}
    if request["cwd"] is not None:
        _attempt("enter the working directory", os.chdir, request["cwd"].encode("latin-1"))
    if request["stdout"] is not None:
        _redirect(request["stdout"].encode("latin-1"))
    _lose_protection()
    if request["descriptors"] is not None:
        _limit_descriptors(request["descriptors"])
    # Python ignores these two for itself, and what is ignored stays so over exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    _attempt("start", lambda path: os.execvpe(path, argv, env), argv[0])


def _lose_protection() -> None:
    # The service manager may spare the supervisor when memory runs out; a worker, which is where
    # the memory is, must not inherit that. Raising one's own score needs no privilege.
    try:
        with open("/proc/self/oom_score_adj", "r+", encoding="ascii") as score:
            if int(score.read()) < 0:
                score.seek(0)
                score.write("0")
    except (OSError, ValueError):  # no such file, or not ours to change: start it all the same
        return


def _limit_descriptors(soft: int) -> None:
    # The supervisor raised its own.
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    except (OSError, ValueError):  # no reason not to start it
        return


def _redirect(path: bytes) -> None:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOCTTY

    def open_as_output(name: bytes) -> None:
        output = os.open(name, flags, 0o640)
        os.dup2(output, 1)
        os.dup2(output, 2)

    _attempt("open the output file", open_as_output, path)


def _attempt(what: str, action: Callable[[bytes], None], path: bytes) -> None:
    try:
        action(path)
    except ValueError as error:  # a NUL byte, or "=" in the name of a variable
        raise RuntimeError(f"cannot {what} {os.fsdecode(path)!r}: {error}") from None
    except OSError as error:
        code = errno.errorcode.get(error.errno or 0, "?")
        text = f"cannot {what} {os.fsdecode(path)!r}: {error.strerror} ({code})"
        if what == "start" and code == "ENOENT" and b"/" in path and os.path.exists(path):
            text += "; the file is there, the interpreter that it names is not"
        raise RuntimeError(text) from None


if __name__ == "__main__":
    sys.exit(main())
