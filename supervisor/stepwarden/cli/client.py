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
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

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

SOCKET_VARIABLE = "STEPWARDEN_SOCKET"
SHIPPED_SOCKET = Path("/run/stepwarden/admin.sock")
SHIPPED_STATE_DIR = Path("/var/lib/stepwarden")
SERVICE = "SupervisorService"

DEFAULT_TIMEOUT_SECONDS = 5.0
MAX_TIMEOUT_SECONDS = 3600.0
_TRIES = 3

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


class ListChangedError(StepwardenError):
    """What was listed changed between two pages."""


class Client:
    """Asks one daemon. `timeout` in seconds is the limit of connecting and answering.

    It begins when the client is made, and all calls that have no limit of their own share it.
    Each call has a connection of its own. `pb`: the messages.
    """

    def __init__(self, path: Path, timeout: float, clock: Clock) -> None:
        from stepwarden_proto.v1 import supervisor_pb2

        self._path = path
        self._timeout = timeout
        self._clock = clock
        self._deadline = Deadline.after(clock.monotonic(), timeout)
        self.pb = supervisor_pb2

    def call(self, method: str, request: Any, extra: float = 0.0) -> Any:
        """One call; the daemon may take `extra` seconds more for its answer.

        An answer in pages is followed to its end and put together.
        """
        answer = self._once(method, request, extra)
        if not getattr(answer, "next_page_token", ""):
            return answer
        for _ in range(_TRIES):
            try:
                return self._with_pages(method, request, answer)
            except ListChangedError:
                answer = self._once(method, request, extra)
        raise ActionFailedError("the list of workers changes again and again; ask once more")

    def _with_pages(self, method: str, request: Any, first: Any) -> Any:
        whole, following = first, type(request)()
        following.CopyFrom(request)
        while whole.next_page_token:
            following.page_token = whole.next_page_token
            page = self._once(method, following, 0.0)
            whole.workers.extend(page.workers)
            whole.next_page_token = page.next_page_token
        return whole

    def _once(self, method: str, request: Any, extra: float) -> Any:
        now = self._clock.monotonic()
        limit = Deadline.after(now, (self._deadline.remaining(now) or 0.0) + extra)
        with closing(self._exchange(method, request, limit, self._timeout + extra)) as answers:
            for answer in answers:
                return answer
        raise UnreachableError(f"the daemon at {self._path} gave no answer")

    def stream(
        self, method: str, request: Any, endless: bool = False, extra: float = 0.0
    ) -> Generator[Any, None, None]:
        """The answers of a streaming call, for at most `extra` seconds more than the limit.

        An endless one is limited by signs of life alone.
        """
        now = self._clock.monotonic()
        seconds = self._timeout + extra
        limit = Deadline.after(now, (self._deadline.remaining(now) or 0.0) + extra)
        if endless:
            limit = Deadline.never()
            seconds = (KEEPALIVE_TIME_MS + KEEPALIVE_TIMEOUT_MS) / 1000
        yield from self._exchange(method, request, limit, seconds)

    def _exchange(
        self, method: str, request: Any, deadline: Deadline, seconds: float
    ) -> Generator[Any, None, None]:
        from google.protobuf.message import DecodeError

        from stepwarden.cli.calls import CallError, Patience, SilenceError, exchange

        service = self.pb.DESCRIPTOR.services_by_name[SERVICE]
        make = getattr(self.pb, service.methods_by_name[method].output_type.name)
        name = f"/{service.full_name}/{method}"
        patience = Patience(KEEPALIVE_TIME_MS / 1000, KEEPALIVE_TIMEOUT_MS / 1000)
        data = request.SerializeToString()
        try:
            for answer in exchange(self._path, name, data, deadline, patience, self._clock):
                yield make.FromString(answer)
        except SilenceError:
            raise _silent(self._path, seconds) from None
        except CallError as error:
            raise _plain_error(error.status, error.text, error.trailers, self._path) from error
        except DecodeError as error:
            text = f"{self._path} answers what this version cannot read"
            raise UnreachableError(text) from error
        except OSError as error:
            raise UnreachableError(f"the daemon at {self._path} went away") from error


@contextmanager
def connect(options: argparse.Namespace) -> Iterator[Client]:
    """A client of the daemon that `options` name."""
    path = admin_socket(options)
    named = options.config or options.socket or os.environ.get(SOCKET_VARIABLE)
    _check_listener(path, "" if named else "; --config FILE asks the daemon of that file")
    yield Client(path, options.timeout, SystemClock())


def _check_listener(path: Path, hint: str = "") -> None:
    """Say at once, and in the kernel's words, why nobody can be reached there.

    `hint`: what to try where nobody ever was.
    """
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
        raise UnreachableError(f"no daemon: there is no socket {path}{hint}")
    if code == errno.ECONNREFUSED:
        raise UnreachableError(f"no daemon: nobody listens on {path}")
    if code not in (0, errno.EAGAIN, errno.EINPROGRESS):
        raise UnreachableError(f"no daemon: {path}: {os.strerror(code)}")


def _plain_error(
    status: str, text: str, trailers: Mapping[str, str], path: Path
) -> StepwardenError:
    text = " ".join(text.split())
    if status == "DEADLINE_EXCEEDED" and STATE_METADATA_KEY not in trailers:
        return UnreachableError(f"the daemon at {path} did not answer in time")
    make = _ERRORS.get(status)
    if make is not None:
        return make(text)
    if status in ("UNAVAILABLE", "CANCELLED"):
        return UnreachableError(f"the daemon at {path} went away{f' ({text})' if text else ''}")
    if status == "UNIMPLEMENTED":
        return UnreachableError(
            f"{path} is not an admin socket of this version; agent.sock is for agents alone"
        )
    return StepwardenError(f"the daemon answered {status}: {text}")


def _silent(path: Path, seconds: float) -> UnreachableError:
    return UnreachableError(f"the daemon at {path} did not answer within {seconds:g} s")


_ERRORS: dict[str, Callable[[str], StepwardenError]] = {
    "NOT_FOUND": UnknownWorkerError,
    "FAILED_PRECONDITION": ActionFailedError,
    "DEADLINE_EXCEEDED": ActionFailedError,
    "PERMISSION_DENIED": RefusedError,
    "INVALID_ARGUMENT": UsageError,
    "ABORTED": ListChangedError,
}
