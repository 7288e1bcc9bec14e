"""The certificates of a listener: read at start, checked, and taken up anew when files change.

A server that is asked for its certificate answers from memory: reading is left to `refresh`, so
that a file system that hangs holds up no handshake.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from stepwarden.errors import RefusedError
from stepwarden.exposure import TlsFiles
from stepwarden.plain_file import read_regular

MAX_FILE_BYTES = 1024 * 1024
_TRIES = 3
_WANTED = {
    "cert": ("certificate", "CERTIFICATE-----"),
    "key": ("private key", "PRIVATE KEY-----"),
    "client_ca": ("certificates of authorities", "CERTIFICATE-----"),
}

Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Contents:
    stamp: Stamp
    cert: bytes
    key: bytes
    client_ca: bytes | None
    context: ssl.SSLContext


class Certificates:
    """The certificates that `files` hold; `section` names their place in the configuration.

    Raises RefusedError, which names the file and its key, where they cannot be used.
    """

    def __init__(self, files: TlsFiles, section: str) -> None:
        self._files = files
        self.section = section
        self._contents = self._read()

    def refresh(self) -> bool:
        """Take up files that have changed; True where they had. Blocks as the disk does.

        Raises RefusedError where they cannot be used; the former certificates then go on.
        """
        if self._stamp() == self._contents.stamp:
            return False
        self._contents = self._read()
        return True

    def credentials(self) -> grpc.ServerCredentials:
        """For a port of a gRPC server; each new connection gets the present certificates."""
        return grpc.dynamic_ssl_server_credentials(
            _configuration(self._contents),
            self._fetcher(),
            require_client_authentication=self._files.client_ca is not None,
        )

    def context(self) -> ssl.SSLContext:
        """For other servers, which ask for it with each new connection.

        It is never changed: a context that takes up files would go on to believe the authorities
        that it had before.
        """
        return self._contents.context

    def _fetcher(self) -> Callable[[], Any]:
        known = self._contents

        def fetch() -> Any:
            nonlocal known
            if known is self._contents:
                return None
            known = self._contents
            return _configuration(known)

        return fetch

    def _read(self) -> _Contents:
        for _ in range(_TRIES):
            stamp = self._stamp()
            found = {name: self._read_one(name, path) for name, path in self._named()}
            context = self._load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
            if self._stamp() == stamp:
                read = found["cert"], found["key"], found.get("client_ca")
                return _Contents(stamp, *read, context)
        raise CertificateError(f"the files of {self.section}.tls change again and again")

    def _read_one(self, name: str, path: Path) -> bytes:
        what, mark = _WANTED[name]
        try:
            content = read_regular(path, MAX_FILE_BYTES)
        except OSError as error:
            raise self._refusal(name, f"cannot be read: {error.strerror or error}") from error
        if len(content) > MAX_FILE_BYTES or mark.encode() not in content:
            raise self._refusal(name, f"holds no {what} in PEM (-----BEGIN ... {mark})")
        return content

    def _load(self, context: ssl.SSLContext) -> ssl.SSLContext:
        files = self._files
        try:
            context.load_cert_chain(files.cert, files.key, _no_passphrase)
        except (ssl.SSLError, OSError, ValueError) as error:
            name = "key" if "KEY" in str(getattr(error, "reason", "")) else "cert"
            if isinstance(error, _PassphraseError):
                name = "key"
            raise self._refusal(name, f"cannot be used: {_reason(error)}") from error
        if files.client_ca is not None:
            try:
                context.load_verify_locations(files.client_ca)
            except (ssl.SSLError, OSError) as error:
                text = f"cannot be used: {_reason(error)}"
                raise self._refusal("client_ca", text) from error
            context.verify_mode = ssl.CERT_REQUIRED
        return context

    def _stamp(self) -> Stamp:
        found = []
        for name, path in self._named():
            try:
                facts = path.stat()
            except OSError as error:
                raise self._refusal(name, f"cannot be read: {error.strerror}") from error
            found.append((facts.st_ino, facts.st_mtime_ns, facts.st_size))
        return tuple(found)

    def _named(self) -> list[tuple[str, Path]]:
        return list(self._files.named().items())

    def _refusal(self, name: str, text: str) -> CertificateError:
        path = self._files.named()[name]
        return CertificateError(f"{path} {text} ({self.section}.tls.{name} names it)")


class CertificateError(RefusedError):
    """Certificates that cannot be used; the text names their key of the configuration."""


class _PassphraseError(ValueError):
    """The key is locked, and nobody is there to ask."""


def _no_passphrase() -> str:
    raise _PassphraseError("the key has a passphrase; accepted is one without")


def _reason(error: Exception) -> str:
    reason = str(getattr(error, "reason", "") or "")
    if reason == "KEY_VALUES_MISMATCH":
        return "the key belongs to another certificate"
    return reason.replace("_", " ").lower() or getattr(error, "strerror", None) or str(error)


def _configuration(contents: _Contents) -> Any:
    return grpc.ssl_server_certificate_configuration(
        [(contents.key, contents.cert)], root_certificates=contents.client_ca
    )
