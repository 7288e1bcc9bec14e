"""The agent that lives inside a worker and must never harm it.

::

    from stepwarden_agent import Agent

    agent = Agent.from_env(phase="loading")
    ...
    agent.phase("idle")
    with agent.step(num_seqs, num_tokens, phase="decode"):
        run_the_model()
"""

from stepwarden_agent.agent import Agent
from stepwarden_agent.leases import Lease

__all__ = ["Agent", "Lease"]
