"""stepwarden: a supervisor that knows a slow inference worker from a dead one.

The timeout policy for engine authors can be taken from here; see docs/python-api.md:

    from stepwarden import Backend, RpcTimeoutPolicy, configure_engine_timeout, on_rpc_timeout
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwarden.core.verdict import Ruling
    from stepwarden.policy import (
        Backend,
        RpcTimeoutPolicy,
        configure_engine_timeout,
        on_rpc_timeout,
    )

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "RpcTimeoutPolicy",
    "Ruling",
    "configure_engine_timeout",
    "on_rpc_timeout",
]


def __getattr__(name: str) -> object:
    # Loaded when asked for: the command line and the agent import this package at each start.
    if name in __all__:
        from stepwarden import policy

        return getattr(policy, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
