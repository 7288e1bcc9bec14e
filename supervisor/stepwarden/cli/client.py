"""How the client commands find the daemon and ask it, each call with a limit.

Whatever goes wrong becomes one of the errors of `stepwarden.errors`: one line, one exit code.
"""

from __future__ import annotations

import argparse
import errno
import math
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stepwarden_proto.channel import STATE_METADATA_KEY

from stepwarden.cli.arguments import path as path_argument
from stepwarden.clock import Clock, SystemClock
from stepwarden.core.deadline import Deadline, clamp_timeout
from stepwarden.errors import (
    ActionFailedError,
    RefusedError,
    StepwardenError,
    UnknownWorkerError,
    UnreachableError,
    UsageError,
)

if TYPE_CHECKING:
    import grpc

SOCKET_VARIABLE = "STEPWARDEN_SOCKET"
SHIPPED_SOCKET = Path("/run/stepwarden/admin.sock")
SHIPPED_STATE_DIR = Path("/var/lib/stepwarden")

DEFAULT_TIMEOUT_SECONDS = 5.0
MAX_TIMEOUT_SECONDS = 3600.0
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""A list of tens of thousands of workers."""

MAX_SOCKET_PATH_BYTES = 107
"""What the kernel keeps for the path of a unix socket."""

KEEPALIVE_TIME_MS = 10_000
KEEPALIVE_TIMEOUT_MS = 5_000
"""An open stream to a daemon that is frozen ends after the two together.

Well above the least interval of pings that the daemon allows.
"""


def add_connection_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that every client command takes."""
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--config",
        type=path_argument,
        metavar="FILE",
        help="ask the daemon of this configuration file",
    )
    where.add_argument(
        "--socket",
        type=path_argument,
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
    timeout = clamp_timeout(_number(text))
    return MAX_TIMEOUT_SECONDS if timeout is None else min(timeout, MAX_TIMEOUT_SECONDS)


def seconds_not_negative(text: str) -> float:
    """As `seconds`, where less than nothing is a mistake."""
    if _number(text) < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is negative; 0 or more seconds are accepted")
    return seconds(text)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if math.isnan(number):
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return number


def admin_socket(options: argparse.Namespace) -> Path:
    """The socket that the command line, the environment or the shipped default names."""
    if options.socket is not None:
        return Path(options.socket).absolute()
    if options.config is not None:
        from stepwarden.config.sockets import find_admin_socket

        return find_admin_socket(options.config)
    return Path(os.environ.get(SOCKET_VARIABLE) or SHIPPED_SOCKET).absolute()


def state_directory(options: argparse.Namespace) -> Path | None:
    """The state directory of the daemon that `options` name; None where a socket is all we know."""
    if options.config is not None:
        from stepwarden.config.sockets import find_state_dir

        return find_state_dir(options.config)
    if options.socket is not None or os.environ.get(SOCKET_VARIABLE):
        return None
    return SHIPPED_STATE_DIR


class Client:
    """One connection to a daemon. `timeout` in seconds is the limit of connecting and answering.

    It begins when the client is made, and all calls that have no limit of their own share it.
    """

    def __init__(self, channel: grpc.Channel, path: Path, timeout: float, clock: Clock) -> None:
        from stepwarden_proto.v1 import supervisor_pb2, supervisor_pb2_grpc

        make: Any = supervisor_pb2_grpc.SupervisorServiceStub
        self._stub: Any = make(channel)
        self._path = path
        self._timeout = timeout
        self._clock = clock
        self._deadline = Deadline.after(clock.monotonic(), timeout)
        self.pb = supervisor_pb2

    def call(self, method: str, request: Any, extra: float = 0.0) -> Any:
        """One call; the daemon may take `extra` seconds more for its answer."""
        with self._errors(self._timeout + extra):
            # Waiting for the connection too, the limit is the only one: without it gRPC gives up
            # on a frozen daemon after a time of its own.
            return getattr(self._stub, method)(
                request, timeout=self._left() + extra, wait_for_ready=True
            )

    def stream(self, method: str, request: Any, endless: bool = False) -> Iterator[Any]:
        """The answers of a streaming call; an endless one is limited by keepalive alone."""
        with self._errors(self._timeout):
            yield from getattr(self._stub, method)(
                request,
                timeout=None if endless else self._left(),
                wait_for_ready=not endless,
            )

    def _left(self) -> float:
        return self._deadline.remaining(self._clock.monotonic()) or 0.0

    @contextmanager
    def _errors(self, limit: float) -> Iterator[None]:
        import grpc

        try:
            yield
        except grpc.RpcError as error:
            raise _plain_error(error, self._path, limit) from error


@contextmanager
def connect(options: argparse.Namespace) -> Iterator[Client]:
    """A client of the daemon that `options` name."""
    path = admin_socket(options)
    _check_listener(path)
    import grpc
    from stepwarden_proto.channel import CLIENT_OPTIONS

    own = {
        "grpc.max_receive_message_length": MAX_ANSWER_BYTES,
        "grpc.keepalive_time_ms": KEEPALIVE_TIME_MS,
        "grpc.keepalive_timeout_ms": KEEPALIVE_TIMEOUT_MS,
        # The first of the two that has passed counts; its default is a minute.
        "grpc.http2.ping_timeout_ms": KEEPALIVE_TIMEOUT_MS,
    }
    all_options = list({**dict(CLIENT_OPTIONS), **own}.items())
    with grpc.insecure_channel(f"unix:{path}", options=all_options) as channel:
        yield Client(channel, path, options.timeout, SystemClock())


def _check_listener(path: Path) -> None:
    """Say at once, and in the kernel's words, why nobody can be reached there."""
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH_BYTES:
        raise UnreachableError(
            f"no daemon: {path} cannot be a socket: its path has {length} bytes,"
            f" and the kernel takes at most {MAX_SOCKET_PATH_BYTES}"
        )
    with suppress(OSError, ValueError):  # what is wrong with it is found out below
        if not stat.S_ISSOCK(path.stat().st_mode):
            raise UnreachableError(f"no daemon: {path} is not a socket")
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
        return _silent(path, timeout)
    make = _ERRORS.get(name)
    if make is not None:
        return make(text)
    if name in ("UNAVAILABLE", "CANCELLED"):
        # The transport's own words, of pings and frames, help nobody; but they tell one case.
        if "ping" in text or "keepalive" in text:
            return _silent(path, (KEEPALIVE_TIME_MS + KEEPALIVE_TIMEOUT_MS) / 1000)
        return UnreachableError(f"the daemon at {path} went away")
    if name == "UNIMPLEMENTED":
        return UnreachableError(
            f"{path} is not an admin socket of this version; agent.sock is for agents alone"
        )
    return StepwardenError(f"the daemon answered {name}: {text}")


def _silent(path: Path, seconds: float) -> UnreachableError:
    return UnreachableError(f"the daemon at {path} did not answer within {seconds:g} s")


_ERRORS: dict[str, Callable[[str], StepwardenError]] = {
    "NOT_FOUND": UnknownWorkerError,
    "FAILED_PRECONDITION": ActionFailedError,
    "DEADLINE_EXCEEDED": ActionFailedError,
    "PERMISSION_DENIED": RefusedError,
    "INVALID_ARGUMENT": UsageError,
}
