"""The keys that every TCP listener of the daemon has: TLS, or the word that it has none.

A section of a listener inherits from `ListenSection` and adds its `listen:`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path as FilePath
from typing import Annotated

from pydantic import Field

from stepwarden.config.fields import Flag, split_address
from stepwarden.config.findings import Findings
from stepwarden.config.problems import Path
from stepwarden.config.sections import ABSOLUTE_PATH, Section
from stepwarden.exposure import ACCEPTED, ListenSettings, TlsFiles, exposed, exposure_text


class TlsSection(Section):
    """Certificates of a listener, in PEM. Changed files are taken up while it runs."""

    cert: Annotated[str, ABSOLUTE_PATH] = Field(
        description="File of the certificate, followed by those of its issuers."
    )
    key: Annotated[str, ABSOLUTE_PATH] = Field(
        description="File of its private key, without a passphrase."
    )
    client_ca: Annotated[str | None, ABSOLUTE_PATH] = Field(
        default=None,
        description="File of the authorities whose certificates clients must show. Without it:"
        " clients show none.",
    )


class ListenSection(Section):
    """The keys of a TCP listener beside its `listen`."""

    tls: TlsSection | None = Field(default=None, description="Speak TLS. Without it: plain text.")
    insecure: Annotated[bool, Flag()] = Field(
        default=False,
        description="true: plain text is meant, on addresses that other hosts can reach too.",
    )


def listen_settings(
    section: ListenSection, addresses: Sequence[str], path: Path, findings: Findings
) -> ListenSettings:
    """The settings of the listener whose section stands at `path`; what is not safe is refused."""
    tls = section.tls
    files = None
    if tls is not None:
        ca = None if tls.client_ca is None else FilePath(tls.client_ca)
        files = TlsFiles(FilePath(tls.cert), FilePath(tls.key), ca)
    if tls is not None and section.insecure:
        message = "means nothing beside tls"
        findings.error((*path, "insecure"), message, "one of the two")
    if tls is not None and not addresses:
        findings.warning((*path, "tls"), "protects nothing: listen names no address")
    for position, address in enumerate(addresses):
        if exposed([split_address(address)[0]], tls is not None, section.insecure):
            findings.error((*path, "listen", position), exposure_text(address), ACCEPTED)
    return ListenSettings(tuple(addresses), files, section.insecure)
