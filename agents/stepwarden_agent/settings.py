"""What the supervisor told this process through its environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass

from stepwarden_proto.page import (
    ATTACHED_PAGES,
    ENV_ATTACH,
    ENV_CA,
    ENV_CERT,
    ENV_INCARNATION,
    ENV_INTERVAL,
    ENV_KEY,
    ENV_PAGE_DIR,
    ENV_SERVER_NAME,
    ENV_TARGET,
    ENV_TOKEN,
    ENV_WORKER,
)

DEFAULT_INTERVAL_SECONDS = 1.0
MIN_INTERVAL_SECONDS, MAX_INTERVAL_SECONDS = 0.1, 60.0


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM files for TLS to a TCP target. `cert` "": no certificate of ours; `key` "": in `cert`.

    `server_name`: what its certificate must name; "": the host of the target.
    """

    ca: str
    cert: str = ""
    key: str = ""
    server_name: str = ""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where to report, and every how many seconds.

    `target` or `page_dir` may be "" (not given), never both. `attach`: the directory where
    invitations to lives are left, "" for a worker that the supervisor starts itself. `tls` holds
    for a TCP target only; None: plain text.
    """

    worker: str
    incarnation: str
    target: str
    token: str
    page_dir: str
    interval: float = DEFAULT_INTERVAL_SECONDS
    attach: str = ""
    tls: TlsSettings | None = None


def read_settings(environ: Mapping[str, str]) -> Settings | None:
    """The settings in `environ`; None where no supervisor asks for reports."""
    target = environ.get(ENV_TARGET, "")
    page_dir = environ.get(ENV_PAGE_DIR, "")
    if not target and not page_dir:
        return _to_attach(environ.get(ENV_ATTACH, ""))
    return Settings(
        worker=environ.get(ENV_WORKER, ""),
        incarnation=environ.get(ENV_INCARNATION, ""),
        target=target,
        token=environ.get(ENV_TOKEN, ""),
        page_dir=page_dir,
        interval=as_interval(environ.get(ENV_INTERVAL, "")),
        tls=_tls(environ),
    )


def _tls(environ: Mapping[str, str]) -> TlsSettings | None:
    found = [environ.get(name, "") for name in (ENV_CA, ENV_CERT, ENV_KEY, ENV_SERVER_NAME)]
    return TlsSettings(*found) if any(found) else None


def _to_attach(directory: str) -> Settings | None:
    """Of a process that something else starts: who it is and where it reports will be told."""
    if not directory:
        return None
    directory = os.path.abspath(directory)
    return Settings("", "", "", "", os.path.join(directory, ATTACHED_PAGES), attach=directory)


def as_interval(text: object) -> float:
    """Seconds between two beats; the default for anything that is no sensible number."""
    try:
        seconds = float(text)  # type: ignore[arg-type]  # that is the question here
    except (TypeError, ValueError):
        return DEFAULT_INTERVAL_SECONDS
    if not MIN_INTERVAL_SECONDS <= seconds <= MAX_INTERVAL_SECONDS:
        return DEFAULT_INTERVAL_SECONDS
    return seconds
