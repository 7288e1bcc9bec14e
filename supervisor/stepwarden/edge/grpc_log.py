"""What gRPC itself writes to standard error, past our log: errors alone."""

from __future__ import annotations

import os

_LEVEL = "GRPC_VERBOSITY"


def import_quietly() -> None:
    """Import gRPC for this process; call it before anything else does.

    By itself it writes a line for each handshake that fails, so that whoever can reach a port can
    fill the log. It reads the variable when it is imported, and no worker is to inherit it.
    """
    if _LEVEL in os.environ:
        return
    os.environ[_LEVEL] = "ERROR"
    try:
        import grpc  # noqa: F401 - for what it reads meanwhile
    finally:
        del os.environ[_LEVEL]
