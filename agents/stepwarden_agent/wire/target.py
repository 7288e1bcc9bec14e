"""Reads the target that the supervisor gave: `unix:/path`, `unix-abstract:name` or `host:port`."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Final

MAX_PATH_BYTES: Final = 107
"""What sockaddr_un holds besides its final zero byte."""

ACCEPTED: Final = "unix:/path, unix-abstract:name, HOST:PORT or [IPV6]:PORT"

Address = tuple[int, str | bytes | tuple[object, ...]]
"""Address family and socket address."""


@dataclass(frozen=True, slots=True)
class Target:
    """Where to connect: addresses, or the name and port of a host that has to be looked up.

    `authority`: what a call names as its host.
    """

    addresses: tuple[Address, ...]
    host: str
    port: int
    authority: str

    @property
    def local(self) -> bool:
        """A unix socket."""
        return not self.host


def parse_target(text: str) -> Target:
    """Read a target. Raises ValueError, with what is accepted, for anything else."""
    scheme, _, rest = text.partition(":")
    if scheme == "unix":
        # gRPC takes unix:///absolute and unix:relative as well.
        path = "/" + rest.lstrip("/") if rest.startswith("//") else rest
        return _unix(text, os.fsencode(path))
    if scheme == "unix-abstract":
        return _unix(text, b"\0" + os.fsencode(rest))
    if scheme in {"dns", "ipv4", "ipv6"} and rest:
        rest = rest.removeprefix("///")
        return _tcp(text, rest)
    return _tcp(text, text)


def addresses_of(host: str, port: int, numeric: bool) -> tuple[Address, ...]:
    """The addresses of a host; `numeric`: without asking anybody, so that it takes no time.

    Raises OSError where there is none.
    """
    flags = socket.AI_NUMERICHOST | socket.AI_NUMERICSERV if numeric else 0
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
    return tuple((int(family), address) for family, _, _, _, address in found)


def _unix(text: str, path: bytes) -> Target:
    if len(path) < 2 or len(path) > MAX_PATH_BYTES or b"\0" in path[1:]:
        raise ValueError(f"no target: {text!r}; accepted: {ACCEPTED}")
    return Target(((int(socket.AF_UNIX), path),), "", 0, "localhost")


def _tcp(text: str, place: str) -> Target:
    host, _, port = place.rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    good = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not (good and host.isascii() and host.isprintable() and host) or set(host) & set("/@ "):
        raise ValueError(f"no target: {text!r}; accepted: {ACCEPTED}")
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    try:
        return Target(addresses_of(host, int(port), numeric=True), host, int(port), authority)
    except OSError:
        return Target((), host, int(port), authority)
