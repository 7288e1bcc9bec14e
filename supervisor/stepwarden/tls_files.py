"""The PEM files of a TLS listener: read, and tried as a server would use them.

Whoever serves with them and whoever checks a configuration ask here, so that both say the same.
"""

from __future__ import annotations

import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stepwarden.exposure import TlsFiles
from stepwarden.plain_file import read_regular

MAX_FILE_BYTES = 1024 * 1024
_TRIES = 3
_TIMES = {9: "is not valid yet", 10: "has expired"}
"""By X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED."""

_WANTED = {
    "cert": ("certificate", "CERTIFICATE-----"),
    "key": ("private key", "PRIVATE KEY-----"),
    "client_ca": ("certificates of authorities", "CERTIFICATE-----"),
}

Stamp = tuple[tuple[int, int, int], ...]
"""Of each file what changes with its content: another stamp, another content."""


@dataclass(frozen=True, slots=True)
class TlsContents:
    """What the files held at `stamp`, and a context that serves with it."""

    stamp: Stamp
    cert: bytes
    key: bytes
    client_ca: bytes | None
    context: ssl.SSLContext


class TlsFileError(Exception):
    """One of the files cannot be used. `name`: its key below `tls`; the text says why.

    `denied`: this process may not read it; another might.
    """

    def __init__(self, name: str, text: str, denied: bool = False) -> None:
        super().__init__(text)
        self.name = name
        self.denied = denied


def read_tls(files: TlsFiles) -> TlsContents:
    """Read and try them. Blocks as the disk does. Raises TlsFileError."""
    for _ in range(_TRIES):
        stamp = stamp_of(files)
        found = {name: _read_one(name, path) for name, path in files.named().items()}
        context = _load(files)
        if stamp_of(files) == stamp:
            read = found["cert"], found["key"], found.get("client_ca")
            return TlsContents(stamp, *read, context)
    raise TlsFileError("cert", "changes again and again, or its key does")


def tls_problems(files: TlsFiles) -> list[TlsFileError]:
    """All that `read_tls` would find wrong one after the other; blocks as the disk does."""
    found: list[TlsFileError] = []
    for name, path in files.named().items():
        try:
            _read_one(name, path)
        except TlsFileError as error:
            found.append(error)
    try:
        if not found:
            _load(files)
    except TlsFileError as error:
        found.append(error)
    return found


def out_of_date(files: TlsFiles) -> str:
    """What a client finds wrong with the time of the certificate: "has expired"; "": nothing.

    Found as a client does, by a handshake in memory: nothing else here can read a certificate.
    Blocks as the disk does; "" too where the files cannot be used.
    """
    server, client = (
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER),
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
    )
    client.check_hostname = False
    client.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    try:
        server.load_cert_chain(files.cert, files.key, _no_passphrase)
        client.load_verify_locations(files.cert)
        _shake_hands(client, server)
    except ssl.SSLCertVerificationError as error:
        return _TIMES.get(error.verify_code, "")
    except (OSError, ValueError):
        return ""
    return ""


def _shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """The client's half, up to its judgement of the certificate. Raises what it says."""
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(back, there)
    answering = server.wrap_bio(there, back, server_side=True)
    for side in (asking, answering, asking):
        with suppress(ssl.SSLWantReadError):
            side.do_handshake()


def stamp_of(files: TlsFiles) -> Stamp:
    """As they are now. Raises TlsFileError where one cannot be looked at."""
    found = []
    for name, path in files.named().items():
        try:
            facts = path.stat()
        except OSError as error:
            raise _unreadable(name, error) from error
        found.append((facts.st_ino, facts.st_mtime_ns, facts.st_size))
    return tuple(found)


def _read_one(name: str, path: Path) -> bytes:
    what, mark = _WANTED[name]
    try:
        content = read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        raise _unreadable(name, error) from error
    if len(content) > MAX_FILE_BYTES or mark.encode() not in content:
        raise TlsFileError(name, f"holds no {what} in PEM (-----BEGIN ... {mark})")
    return content


def _unreadable(name: str, error: OSError) -> TlsFileError:
    text = f"cannot be read: {error.strerror or error}"
    return TlsFileError(name, text, isinstance(error, PermissionError))


def _load(files: TlsFiles) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        context.load_cert_chain(files.cert, files.key, _no_passphrase)
    except (ssl.SSLError, OSError, ValueError) as error:
        of_key = "KEY" in str(getattr(error, "reason", "")) or isinstance(error, _PassphraseError)
        text = f"cannot be used: {_reason(error)}"
        raise TlsFileError("key" if of_key else "cert", text) from error
    if files.client_ca is not None:
        try:
            context.load_verify_locations(files.client_ca)
        except (ssl.SSLError, OSError) as error:
            raise TlsFileError("client_ca", f"cannot be used: {_reason(error)}") from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context


class _PassphraseError(ValueError):
    """The key is locked, and nobody is there to ask."""


def _no_passphrase() -> str:
    raise _PassphraseError("the key has a passphrase; accepted is one without")


def _reason(error: Exception) -> str:
    reason = str(getattr(error, "reason", "") or "")
    if reason == "KEY_VALUES_MISMATCH":
        return "the key belongs to another certificate"
    if isinstance(error, ssl.SSLError) and not reason:
        return "it is damaged, or not whole"  # OpenSSL's own words name a line of its source
    return reason.replace("_", " ").lower() or getattr(error, "strerror", None) or str(error)
