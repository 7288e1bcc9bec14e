"""Certificates for tests of TLS: an authority, servers and clients of it, and bad ones."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import trustme

LONG_AGO = datetime(2001, 1, 1, tzinfo=UTC)


class Authority:
    """Writes what it issues into `folder`: NAME.crt, NAME.key; its own certificate to `ca`."""

    def __init__(self, folder: Path, name: str = "ca") -> None:
        self._folder = folder
        self._authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
        self.ca = folder / f"{name}.crt"
        self._authority.cert_pem.write_to_path(self.ca)

    def issue(self, name: str, *hosts: str, expired: bool = False) -> tuple[Path, Path]:
        """A certificate for these hosts, and its key. An earlier one of this name is replaced."""
        issued = self._authority.issue_cert(
            *(hosts or ("localhost", "127.0.0.1")),
            not_after=LONG_AGO if expired else None,
            key_type=trustme.KeyType.ECDSA,
        )
        cert, key = self._folder / f"{name}.crt", self._folder / f"{name}.key"
        for path, content in (
            (cert, b"".join(blob.bytes() for blob in issued.cert_chain_pems)),
            (key, issued.private_key_pem.bytes()),
        ):
            beside = path.with_suffix(".new")
            beside.write_bytes(content)
            beside.replace(path)
        return cert, key
