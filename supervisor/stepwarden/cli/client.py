"""How the client commands find the daemon and ask it, each call with a limit.

Whatever goes wrong becomes one of the errors of `stepwarden.errors`: one line, one exit code.
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwarden_proto.channel import STATE_METADATA_KEY

from stepwarden.core.deadline import clamp_timeout
from stepwarden.errors import (
    ActionFailedError,
    RefusedError,
    StepwardenError,
    UnknownWorkerError,
    UnreachableError,
)

if TYPE_CHECKING:
    import grpc

SOCKET_VARIABLE = "STEPWARDEN_SOCKET"
SHIPPED_SOCKET = Path("/run/stepwarden/admin.sock")

DEFAULT_TIMEOUT_SECONDS = 5.0
MAX_TIMEOUT_SECONDS = 3600.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""A list of tens of thousands of workers."""


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that every client command takes."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--config", type=Path, metavar="FILE", help="ask the daemon of this configuration file"
    )
    where.add_argument(
        "--socket",
        type=Path,
        metavar="PATH",
        help=f"its admin socket (default: ${SOCKET_VARIABLE}, else {SHIPPED_SOCKET})",
    )
    parser.add_argument(
        "--timeout",
        type=seconds,
        default=DEFAULT_TIMEOUT_SECONDS,
        metavar="SECONDS",
        help="give up when the daemon has not answered by then (default: %(default)g)",
    )


def seconds(text: str) -> float:
    """A limit from the command line: never negative, never above an hour."""
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    timeout = clamp_timeout(number)
    return MAX_TIMEOUT_SECONDS if timeout is None else min(timeout, MAX_TIMEOUT_SECONDS)


def admin_socket(options: argparse.Namespace) -> Path:
    """The socket that the command line, the environment or the shipped default names."""
    if options.socket is not None:
        return Path(options.socket).absolute()
    if options.config is not None:
        from stepwarden.config.sockets import find_admin_socket

        return find_admin_socket(options.config)
    return Path(os.environ.get(SOCKET_VARIABLE) or SHIPPED_SOCKET).absolute()


class Client:
    """One connection to a daemon. `timeout` in seconds is the limit of each call."""

    def __init__(self, channel: grpc.Channel, path: Path, timeout: float) -> None:
        from stepwarden_proto.v1 import supervisor_pb2, supervisor_pb2_grpc

        make: Any = supervisor_pb2_grpc.SupervisorServiceStub
        self._stub: Any = make(channel)
        self._path = path
        self._timeout = timeout
        self.pb = supervisor_pb2

    def call(self, method: str, request: Any, extra: float = 0.0) -> Any:
        """One call; `extra` seconds are added to its limit."""
        with self._errors():
            return getattr(self._stub, method)(request, timeout=self._timeout + extra)

    def stream(self, method: str, request: Any, endless: bool = False) -> Iterator[Any]:
        """The answers of a streaming call; an endless one is limited by keepalive alone."""
        with self._errors():
            yield from getattr(self._stub, method)(
                request, timeout=None if endless else self._timeout
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        import grpc

        try:
            yield
        except grpc.RpcError as error:
            raise _plain_error(error, self._path, self._timeout) from error


@contextmanager
def connect(options: argparse.Namespace) -> Iterator[Client]:
    """A client of the daemon that `options` name."""
    path = admin_socket(options)
    _check_listener(path)
    import grpc
    from stepwarden_proto.channel import CLIENT_OPTIONS

    limit = ("grpc.max_receive_message_length", MAX_ANSWER_BYTES)
    with grpc.insecure_channel(f"unix:{path}", options=[*CLIENT_OPTIONS, limit]) as channel:
        yield Client(channel, path, options.timeout)


def _check_listener(path: Path) -> None:
    """Say at once, and in the kernel's words, why nobody can be reached there."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            code = probe.connect_ex(os.fspath(path))
        except (OSError, ValueError) as error:
            raise UnreachableError(f"{path} cannot be a socket: {error}") from error
    if code in (errno.EACCES, errno.EPERM):
        raise RefusedError(f"this user may not use the admin socket {path}")
    if code == errno.ENOENT:
        raise UnreachableError(f"no daemon: there is no socket {path}")
    if code == errno.ECONNREFUSED:
        raise UnreachableError(f"no daemon: nobody listens on {path}")
    if code not in (0, errno.EAGAIN, errno.EINPROGRESS):
        raise UnreachableError(f"no daemon: {path}: {os.strerror(code)}")


def _plain_error(error: grpc.RpcError, path: Path, timeout: float) -> StepwardenError:
    call: Any = error
    name = call.code().name
    text = " ".join(str(call.details() or "").split())
    trailing = call.trailing_metadata() or ()
    if name == "DEADLINE_EXCEEDED" and not any(key == STATE_METADATA_KEY for key, _ in trailing):
        return UnreachableError(f"the daemon at {path} did not answer within {timeout:g} s")
    make = _ERRORS.get(name)
    if make is not None:
        return make(text)
    if name in ("UNAVAILABLE", "CANCELLED"):
        return UnreachableError(f"the daemon at {path} went away: {text}")
    if name == "UNIMPLEMENTED":
        return UnreachableError(f"{path} is not the admin socket of this version: {text}")
    return StepwardenError(f"the daemon answered {name}: {text}")


_ERRORS: dict[str, Callable[[str], StepwardenError]] = {
    "NOT_FOUND": UnknownWorkerError,
    "FAILED_PRECONDITION": ActionFailedError,
    "DEADLINE_EXCEEDED": ActionFailedError,
    "PERMISSION_DENIED": RefusedError,
}
