"""What gRPC itself would write to standard error, past our log: nothing.

It writes a line, or a traceback, for what a peer sends: whoever can reach a socket could fill the
log by that, and hold up the loop where nobody reads it. What matters is told by those who call it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from typing import Any

_LEVEL = "GRPC_VERBOSITY"


def import_quietly() -> None:
    """Import gRPC for this process; call it before anything else does.

    It reads the variable when it is imported, and no worker is to inherit it. An operator who has
    set it hears everything.
    """
    if _LEVEL in os.environ:
        return
    logging.getLogger("grpc").addHandler(logging.NullHandler())
    os.environ[_LEVEL] = "NONE"
    try:
        import grpc

        # Older versions read it when they first begin to work. This channel connects to nothing.
        grpc.insecure_channel("unix:/dev/null").close()
    finally:
        del os.environ[_LEVEL]


def quiet_loop(loop: asyncio.AbstractEventLoop) -> None:
    """Let tasks of gRPC's own, which nobody can wait for, end without a traceback."""

    def handler(loop: asyncio.AbstractEventLoop, about: dict[str, Any]) -> None:
        if not is_of_grpc(about):
            loop.default_exception_handler(about)

    loop.set_exception_handler(handler)


def is_of_grpc(about: dict[str, Any]) -> bool:
    """Whether what an exception handler of a loop is told is about a task of gRPC's own."""
    task = about.get("future")
    inner = task.get_coro() if isinstance(task, asyncio.Task) else None
    return type(inner).__module__.startswith("_cython")
