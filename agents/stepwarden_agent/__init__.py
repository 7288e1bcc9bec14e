"""The agent that lives inside a worker and must never harm it.

::

    from stepwarden_agent import Agent

    agent = Agent.from_env(phase="loading")
    ...
    agent.phase("idle")
    with agent.step(num_seqs, num_tokens, phase="decode"):
        run_the_model()
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stepwarden_agent.agent import Agent
    from stepwarden_agent.leases import Lease

__all__ = ["Agent", "Lease"]


def __getattr__(name: str) -> object:
    # Loaded when asked for: the command line uses the wire client below this package alone.
    if name == "Agent":
        from stepwarden_agent.agent import Agent

        return Agent
    if name == "Lease":
        from stepwarden_agent.leases import Lease

        return Lease
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
