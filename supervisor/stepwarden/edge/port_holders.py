"""Is a TCP port free to be listened on, and who has it if not?"""

from __future__ import annotations

import errno
import ipaddress
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

from stepwarden.edge.file_locks import name_of

ANY = ("0.0.0.0", "::")
"""Where a port without a host is tried: a server may take it on any address of either family."""

_LISTEN = "0A"
_NO_SUCH_FAMILY = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)


@dataclass(frozen=True, slots=True)
class Port:
    """A port as the operator wrote it. `host`: a literal address; None: every address."""

    number: int
    host: str | None = None

    def __str__(self) -> str:
        if self.host is None:
            return str(self.number)
        return f"[{self.host}]:{self.number}" if ":" in self.host else f"{self.host}:{self.number}"


def bind_fault(port: Port) -> int:
    """Why nobody could listen there now, as an errno; 0 where a server could.

    Tried by binding, for an instant, as servers do: what only waits in TIME_WAIT does not count.
    """
    for host in ANY if port.host is None else (port.host,):
        try:
            _bind(host, port.number)
        except OSError as error:
            code = error.errno or errno.EINVAL
            if port.host is None and code in _NO_SUCH_FAMILY:
                continue
            if code not in (errno.EACCES, errno.EPERM):
                return code
            # Without the right to bind a low port we can still see who listens there.
            if _listeners(port):
                return errno.EADDRINUSE
    return 0


def holders(port: Port) -> str:
    """Who listens there, as far as we may see: ` by pid 4711 (server)`; "" where nobody knows.

    Looks at the descriptors of every process, which takes a while on a large host.
    """
    inodes = _listeners(port)
    pids = sorted({pid for pid, inode in _sockets() if inode in inodes}) if inodes else []
    return f" by {', '.join(map(name_of, pids[:3]))}" if pids else ""


def _bind(host: str, number: int) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        probe.bind((host, number))


def _listeners(port: Port) -> set[str]:
    """The inodes of the sockets that listen on this port, on addresses that get in its way."""
    found: set[str] = set()
    for table in ("tcp", "tcp6"):
        with suppress(OSError), open(f"/proc/net/{table}", encoding="ascii") as lines:
            found |= {words[9] for words in map(str.split, lines) if _in_the_way(words, port)}
    return found


def _in_the_way(words: list[str], port: Port) -> bool:
    if len(words) < 10 or words[3] != _LISTEN:
        return False
    address, _, number = words[1].rpartition(":")
    if int(number, 16) != port.number:
        return False
    local = _address(address)
    wanted = None if port.host is None else ipaddress.ip_address(port.host.partition("%")[0])
    return wanted is None or wanted.is_unspecified or local.is_unspecified or local == wanted


def _address(written: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel writes addresses as words in the host's own order of bytes."""
    words = [int(written[at : at + 8], 16) for at in range(0, len(written), 8)]
    raw = b"".join(word.to_bytes(4, sys.byteorder) for word in words)
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    return mapped or address


def _sockets() -> Iterator[tuple[int, str]]:
    """Each socket that a process holds, as far as we may see: its pid and inode."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError):
            for name in os.listdir(f"/proc/{pid}/fd"):
                with suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{name}")
                    if target.startswith("socket:["):
                        yield int(pid), target[8:-1]
