"""Where our gRPC servers listen: unix sockets with exact modes, and TCP on request.

gRPC creates a unix socket with the mode that the umask leaves and has no option for it. So the
socket is bound inside a private directory (0700) that nobody else can enter, given its owner and
mode there, and only then linked to its public name. At no instant is it wider than configured,
and the process-wide umask, which other threads share, is left alone.
"""

from __future__ import annotations

import errno
import grp
import os
import socket
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from stepwarden.edge.certificates import CertificateError, Certificates
from stepwarden.errors import AlreadyRunningError, RefusedError
from stepwarden.exposure import ACCEPTED, TlsFiles, exposed, exposure_text

MAX_SOCKET_PATH_BYTES = 107
"""What sockaddr_un holds besides its final zero byte."""

LISTEN_OPTIONS: tuple[tuple[str, int], ...] = (("grpc.so_reuseport", 0),)
"""Two daemons on one port must be an error, not a lottery."""


def at_most(connections: int) -> tuple[tuple[str, int], ...]:
    """Further options: of each address so many connections at a time, handshakes included.

    One too many is closed at once; else whoever reaches the address could take all descriptors.
    """
    return (("grpc.max_allowed_incoming_connections", connections),)


class PortServer(Protocol):
    """What grpc.Server and grpc.aio.Server have in common for us."""

    def add_insecure_port(self, address: str) -> int:
        """Bind `address`; returns the port, 1 for a unix socket."""

    def add_secure_port(self, address: str, server_credentials: Any) -> int:
        """Likewise, with TLS."""


@dataclass(frozen=True, slots=True)
class UnixTarget:
    """A unix socket: its path, exact mode, and group id (None: the daemon's own group).

    `key`: what of the configuration names it, for errors. `owner`: its user id; None: the daemon.
    """

    path: Path
    mode: int = 0o600
    group: int | None = None
    key: str = field(default="", compare=False)
    owner: int | None = None

    def __str__(self) -> str:
        return f"unix:{self.path}"


@dataclass(frozen=True, slots=True)
class TcpTarget:
    """A TCP address; port 0 lets the kernel choose. `key` as of UnixTarget.

    `tls` None: plain text; `insecure`: on an address that other hosts can reach too.
    """

    host: str
    port: int
    key: str = field(default="", compare=False)
    tls: TlsFiles | None = field(default=None, compare=False)
    insecure: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


Target = UnixTarget | TcpTarget


@dataclass(frozen=True, slots=True)
class Place:
    """A target, and what it stands for now: numbers of hosts, and certificates that were read.

    Of a unix socket there is neither.
    """

    target: Target
    hosts: tuple[str, ...] = ()
    certificates: Certificates | None = None


def parse_target(text: str, mode: int = 0o600, group: int | None = None, key: str = "") -> Target:
    """Read ``unix:/path`` or ``host:port``; RefusedError says what is accepted."""
    if text.startswith("unix:"):
        path = Path("/" + text.removeprefix("unix:").lstrip("/"))
        return UnixTarget(path, mode, group, key)
    host, colon, port = text.rpartition(":")
    if not (colon and host and port.isascii() and port.isdigit() and int(port) <= 65535):
        raise RefusedError(f"cannot listen on {text!r}: use HOST:PORT or unix:/absolute/path")
    return TcpTarget(host.removeprefix("[").removesuffix("]"), int(port), key)


def group_id(name: str | None) -> int | None:
    """The id of a group of this host; None for None. RefusedError where there is no such group."""
    try:
        return None if name is None else grp.getgrnam(name).gr_gid
    except KeyError:
        raise RefusedError(f"there is no group {name!r} on this host") from None


class Listening:
    """One bound address. `close()` removes the socket, if it is still ours.

    `certificates`: what it shows to clients, to be refreshed; None: it speaks plain text.
    """

    def __init__(
        self,
        target: Target,
        port: int,
        directory_fd: int | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        self.target = target
        self.port = port
        self.certificates = certificates
        # gRPC unlinks the name it bound below this descriptor when it ends; while we hold it the
        # number cannot come to mean another directory.
        self._directory_fd = directory_fd
        self._identity = _identity(target.path) if isinstance(target, UnixTarget) else None

    @property
    def address(self) -> str:
        """The gRPC target to reach it."""
        if isinstance(self.target, TcpTarget):
            return str(TcpTarget(self.target.host, self.port))
        return str(self.target)

    def lost(self) -> bool:
        """Whether something else, or nothing, has our socket's name now. May block; never raises.

        What cannot be looked at is not lost.
        """
        if not isinstance(self.target, UnixTarget) or self._identity is None:
            return False
        try:
            return _identity(self.target.path) != self._identity
        except (FileNotFoundError, NotADirectoryError):
            return True
        except OSError:
            return False

    def close(self) -> None:
        """After the server has stopped: take the socket's name away. Never raises."""
        if isinstance(self.target, UnixTarget) and self._identity is not None:
            with suppress(OSError):
                if _identity(self.target.path) == self._identity:
                    self.target.path.unlink()
            self._identity = None
        if self._directory_fd is not None:
            os.close(self._directory_fd)
            self._directory_fd = None


def listen(server: PortServer, target: Target) -> Listening:
    """Look `target` up and bind it for `server`: both may raise, and the first may block."""
    return bind(server, look_up(target))


def look_up(target: Target) -> Place:
    """What it stands for now. Blocks as name servers and the disk of certificates do.

    RefusedError: the address cannot or must not be used; the text says why.
    """
    if isinstance(target, UnixTarget):
        return Place(target)
    with _named(target):
        return _looked_up(target)


def bind(server: PortServer, place: Place) -> Listening:
    """Bind it for `server`, which must not have been started; asks nobody.

    AlreadyRunningError: somebody listens there. RefusedError: as of `look_up`. The server must
    have been made with LISTEN_OPTIONS.
    """
    target = place.target
    with _named(target):
        if isinstance(target, UnixTarget):
            return _listen_unix(server, target)
        return _listen_tcp(server, target, place)


def listen_by_ourselves(
    target: TcpTarget, backlog: int
) -> tuple[socket.socket, Certificates | None]:
    """A socket that listens there, and what to show to clients, for a server that is not gRPC's.

    Raises as `listen` does.
    """
    with _named(target):
        place = _looked_up(target)
        return _listening_socket(target, place.hosts[0], backlog), place.certificates


@contextmanager
def _named(target: Target) -> Iterator[None]:
    """Let errors say which key of the configuration names the address."""
    try:
        yield
    except CertificateError:
        raise
    except (AlreadyRunningError, RefusedError) as error:
        if not target.key:
            raise
        raise type(error)(f"{error} ({target.key} names it)") from error


def ensure_directory(path: Path, mode: int, group: int | None = None) -> None:
    """Create a directory with exactly this mode and group; an existing one is only checked.

    RefusedError where others could replace what lies in it, or it cannot be made.
    """
    try:
        # Made private first: owner and mode are set before anybody else can look in.
        path.mkdir(0o700)
    except FileExistsError:
        _check_directory(path)
        return
    except FileNotFoundError:
        ensure_directory(path.parent, 0o755)
        ensure_directory(path, mode, group)
        return
    except OSError as error:
        raise RefusedError(f"cannot make the directory {path}: {error.strerror}") from error
    if group is not None:
        os.chown(path, -1, group)
    path.chmod(mode)


def _check_directory(path: Path) -> None:
    facts = path.stat()
    if not stat.S_ISDIR(facts.st_mode):
        raise RefusedError(f"{path} is in the way: a directory is needed there")
    shared = facts.st_mode & (stat.S_IWGRP | stat.S_IWOTH) and not facts.st_mode & stat.S_ISVTX
    if facts.st_uid not in (0, os.geteuid()) or shared:
        raise RefusedError(
            f"the directory {path} (owner {facts.st_uid}, mode {stat.S_IMODE(facts.st_mode):04o})"
            " lets others replace our sockets: it must be ours and writable for us alone"
        )


def _listen_unix(server: PortServer, target: UnixTarget) -> Listening:
    _check_socket_path(target.path)
    _clear_leftover(target.path)
    directory_fd: int | None = None
    private: str | None = None
    try:
        private = tempfile.mkdtemp(prefix=".", dir=target.path.parent)
        directory_fd = os.open(private, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        # Bound through the descriptor, the private name may be longer than a socket path.
        server.add_insecure_port(f"unix:/proc/self/fd/{directory_fd}/s")
        hidden = Path(private) / "s"
        if target.group is not None or target.owner is not None:
            owner, group = target.owner, target.group
            os.chown(hidden, -1 if owner is None else owner, -1 if group is None else group)
        hidden.chmod(target.mode)
        # A link, unlike a rename, replaces nothing that appeared there in the meantime.
        os.link(hidden, target.path)
        return Listening(target, 1, directory_fd)
    except (OSError, RuntimeError) as error:
        if directory_fd is not None:
            os.close(directory_fd)
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise RefusedError(f"cannot listen on {target.path}: {reason}") from error
    finally:
        if private is not None:
            with suppress(OSError):
                (Path(private) / "s").unlink()
            with suppress(OSError):
                Path(private).rmdir()


def _check_socket_path(path: Path) -> None:
    length = len(os.fsencode(path))
    if not path.is_absolute():
        raise RefusedError(f"the socket path {path} must be absolute")
    if length > MAX_SOCKET_PATH_BYTES:
        raise RefusedError(
            f"the socket path {path} has {length} bytes;"
            f" the kernel takes at most {MAX_SOCKET_PATH_BYTES}"
        )
    if not path.parent.is_dir():
        raise RefusedError(f"cannot listen on {path}: the directory {path.parent} is missing")


def _clear_leftover(path: Path) -> None:
    """Remove the socket of a dead owner; anything else there is an error and stays."""
    try:
        facts = path.lstat()
    except FileNotFoundError:
        return
    except OSError as error:
        raise RefusedError(f"cannot look at {path}: {error.strerror}") from error
    if not stat.S_ISSOCK(facts.st_mode):
        raise RefusedError(f"cannot listen on {path}: something that is no socket is there")
    if _somebody_listens(path):
        raise AlreadyRunningError(f"another process listens on {path}")
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise RefusedError(f"cannot replace {path}: {error.strerror}") from error


def _somebody_listens(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        # A full backlog must not hold us: it too means that somebody is there.
        probe.setblocking(False)
        code = probe.connect_ex(os.fspath(path))
    return code not in (errno.ECONNREFUSED, errno.ENOENT)


def _looked_up(target: TcpTarget) -> Place:
    """The one answer that is judged is the one that is bound: a name may soon mean another host."""
    hosts: tuple[str, ...] = ()
    unknown: OSError | None = None
    try:
        found = socket.getaddrinfo(target.host, target.port, type=socket.SOCK_STREAM)
        hosts = tuple(dict.fromkeys(str(address[0]) for *_, address in found))
    except OSError as error:
        unknown = error
    certificates = _tls_of(target, hosts)
    if unknown is not None:
        raise _refusal(target, unknown) from unknown
    return Place(target, hosts, certificates)


def _tls_of(target: TcpTarget, hosts: tuple[str, ...]) -> Certificates | None:
    """The certificates of a listener, read now; None: it is to speak plain text.

    RefusedError where they cannot be used, or where an address must not go without.
    """
    if target.tls is not None:
        return Certificates(target.tls, target.key.removesuffix(".listen"))
    # A name that only happens to mean the loopback today is judged by itself.
    if exposed((target.host, *hosts), tls=False, insecure=target.insecure):
        text = f"cannot listen: {exposure_text(str(target))}; accepted: {ACCEPTED}"
        raise RefusedError(text)
    return None


def _listen_tcp(server: PortServer, target: TcpTarget, place: Place) -> Listening:
    # Once by ourselves: gRPC's own error does not say what is wrong.
    _listening_socket(target, place.hosts[0], 1).close()
    credentials = None if place.certificates is None else place.certificates.credentials()
    port = target.port
    for number, host in enumerate(place.hosts):
        address = str(TcpTarget(host, port))
        try:
            if credentials is None:
                port = server.add_insecure_port(address)
            else:
                port = server.add_secure_port(address, credentials)
        except RuntimeError as error:
            if number == 0:
                raise AlreadyRunningError(f"cannot listen on {target}: {error}") from error
            # A name may have an address of a family that this host does not speak.
    return Listening(target, port, certificates=place.certificates)


def _listening_socket(target: TcpTarget, host: str, backlog: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(
            host, target.port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )
        family, kind, protocol, _, address = found[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(backlog)
        except OSError:
            made.close()
            raise
    except OSError as error:
        raise _refusal(target, error) from error
    return made


def _refusal(target: TcpTarget, error: OSError) -> AlreadyRunningError | RefusedError:
    text = f"cannot listen on {target}: {error.strerror or error}"
    return (AlreadyRunningError if error.errno == errno.EADDRINUSE else RefusedError)(text)


def _identity(path: Path) -> tuple[int, int]:
    facts = path.lstat()
    return facts.st_dev, facts.st_ino
