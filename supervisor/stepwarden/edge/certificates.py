"""The certificates of a listener: read at start, checked, and taken up anew when files change.

A server that is asked for its certificate answers from memory: reading is left to `refresh`, so
that a file system that hangs holds up no handshake.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

import grpc

from stepwarden.errors import RefusedError
from stepwarden.exposure import TlsFiles
from stepwarden.tls_files import TlsContents, TlsFileError, out_of_date, read_tls, stamp_of


class Certificates:
    """The certificates that `files` hold; `section` names their place in the configuration.

    Raises CertificateError, which names the file and its key, where they cannot be used.
    """

    def __init__(self, files: TlsFiles, section: str) -> None:
        self._files = files
        self.section = section
        self._contents = self._read()

    def refresh(self) -> bool:
        """Take up files that have changed; True where they had. Blocks as the disk does.

        Raises CertificateError where they cannot be used; the former certificates then go on.
        """
        try:
            if stamp_of(self._files) == self._contents.stamp:
                return False
        except TlsFileError as error:
            raise self._refusal(error) from error
        self._contents = self._read()
        return True

    def out_of_date(self) -> str:
        """What clients will find wrong with its time, such as "has expired"; "": nothing.

        Blocks as the disk does.
        """
        return out_of_date(self._files)

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

    def _read(self) -> TlsContents:
        try:
            return read_tls(self._files)
        except TlsFileError as error:
            raise self._refusal(error) from error

    def _refusal(self, error: TlsFileError) -> CertificateError:
        path = self._files.named()[error.name]
        return CertificateError(f"{path} {error} ({self.section}.tls.{error.name} names it)")


class CertificateError(RefusedError):
    """Certificates that cannot be used; the text names their key of the configuration."""


def _configuration(contents: TlsContents) -> Any:
    return grpc.ssl_server_certificate_configuration(
        [(contents.key, contents.cert)], root_certificates=contents.client_ca
    )
