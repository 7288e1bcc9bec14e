"""Who can reach an address that we listen on, and whether it may be served without TLS.

The one place where that is decided: the check of a configuration asks it about what is written,
the listener at start about what the name stands for then.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ACCEPTED = "a loopback address, tls: {cert: FILE, key: FILE}, or insecure: true"
"""What an address may be without TLS, for errors."""

_LOCAL_NAMES = frozenset({"localhost", "ip6-localhost", "ip6-loopback"})


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files of a listener. `client_ca` None: clients need no certificate."""

    cert: Path
    key: Path
    client_ca: Path | None = None

    def named(self) -> dict[str, Path]:
        """Each file by its key in the configuration."""
        files = {"cert": self.cert, "key": self.key}
        return files if self.client_ca is None else {**files, "client_ca": self.client_ca}


@dataclass(frozen=True, slots=True)
class ListenSettings:
    """The TCP addresses of one service, as HOST:PORT, and what protects them.

    `tls` None: plain text. `insecure`: plain text on addresses that other hosts can reach is meant.
    """

    addresses: tuple[str, ...] = ()
    tls: TlsFiles | None = None
    insecure: bool = False


NOWHERE: Final = ListenSettings()
"""Of a service that does not listen by TCP."""


def is_loopback(host: str) -> bool:
    """True where nobody outside this host reaches the address or the name.

    A name counts only where the standards say what it means; nobody is asked.
    """
    name = host.strip("[]").lower().rstrip(".")
    if name in _LOCAL_NAMES or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def exposed(hosts: Iterable[str], tls: bool, insecure: bool) -> bool:
    """Whether one of `hosts`, addresses of one listener, must not be served so."""
    return not (tls or insecure) and not all(map(is_loopback, hosts))


def exposure_text(address: str) -> str:
    """What is wrong with an address that `exposed` names."""
    return f"other hosts can reach {address}, and without TLS all of it would be plain text"
