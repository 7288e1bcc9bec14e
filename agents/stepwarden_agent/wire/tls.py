"""TLS between a socket and HTTP/2: bytes in, bytes out, on the standard library's ssl.

Imported only where TLS is used. The descriptor stays outside, so that a fork, an engine that closes
it and a write to a peer that is gone are what they are without TLS.
"""

from __future__ import annotations

import ssl
from typing import Final

from stepwarden_agent.settings import TlsSettings
from stepwarden_agent.wire.errors import TlsError

_CHUNK_BYTES: Final = 65_536
_NOT_TLS: Final = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH", "HTTP_REQUEST")


def make_context(told: TlsSettings) -> ssl.SSLContext:
    """What a connection needs; reads the files, and so may take long. Raises TlsError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_alpn_protocols(["h2"])
    try:
        context.load_verify_locations(told.ca)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"STEPWARDEN_CA: {told.ca}: {_reason(error)}") from error
    if told.cert:
        try:
            context.load_cert_chain(told.cert, told.key or None, _no_passphrase)
        except (ssl.SSLError, OSError, ValueError) as error:
            files = f"{told.cert} and {told.key or 'the key in it'}"
            raise TlsError(f"STEPWARDEN_CERT, STEPWARDEN_KEY: {files}: {_reason(error)}") from error
    return context


class Tls:
    """One connection. `out`: what has to be sent; take away from its front what was."""

    def __init__(self, context: ssl.SSLContext, server_name: str) -> None:
        self._arrived = ssl.MemoryBIO()
        self._leaving = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._arrived, self._leaving, server_hostname=server_name or None
        )
        self._agreed = False
        self.out = bytearray()

    def agree(self) -> bool:
        """Whether both sides have agreed. Raises TlsError where they cannot."""
        if not self._agreed:
            try:
                self._object.do_handshake()
            except ssl.SSLWantReadError:
                self._collect()
                return False
            except ssl.SSLError as error:
                self._collect()  # what tells the peer why
                raise TlsError(_words(error)) from error
            self._collect()
            if self._object.selected_alpn_protocol() != "h2":
                raise TlsError("it speaks TLS but not HTTP/2")
            self._agreed = True
        return True

    def arrive(self, data: bytes) -> None:
        """Take in what came from the peer; nothing: its end."""
        if data:
            self._arrived.write(data)
        else:
            self._arrived.write_eof()

    def open(self) -> bytes | None:
        """What has arrived, in plain; None: nothing yet; b"": the peer has closed. TlsError."""
        plain = bytearray()
        try:
            while True:
                part = self._object.read(_CHUNK_BYTES)
                if not part:
                    break
                plain += part
        except ssl.SSLWantReadError:
            self._collect()  # an answer of TLS itself, such as new keys
            return bytes(plain) or None
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            pass
        except ssl.SSLError as error:
            if not plain:
                raise TlsError(_words(error)) from error
        return bytes(plain)

    def seal(self, plain: bytearray) -> None:
        """Put all of `plain` into `out`; not while there is something in it. Raises TlsError."""
        try:
            while plain:
                del plain[: self._object.write(plain)]
        except ssl.SSLError as error:
            raise TlsError(_words(error)) from error
        self._collect()

    def _collect(self) -> None:
        self.out += self._leaving.read()


def _no_passphrase() -> str:
    raise ValueError("the key has a passphrase, and nobody is there to ask")


def _reason(error: Exception) -> str:
    reason = str(getattr(error, "reason", "") or "").replace("_", " ").lower()
    return reason or getattr(error, "strerror", None) or str(error)


def _words(error: ssl.SSLError) -> str:
    """What went wrong, in one line that an operator can do something about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return "the connection was closed before both sides agreed on TLS"
    reason = error.reason or ""
    if any(mark in reason for mark in _NOT_TLS):
        return "the port speaks no TLS (STEPWARDEN_CA asks for it)"
    if "CERTIFICATE_REQUIRED" in reason:
        return "it wants a certificate of ours (STEPWARDEN_CERT and STEPWARDEN_KEY)"
    if "ALERT" in reason and ("CERT" in reason or "UNKNOWN_CA" in reason):
        return f"it does not accept our certificate: {_reason(error)}"
    return _reason(error)
