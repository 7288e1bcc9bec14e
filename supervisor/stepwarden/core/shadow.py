"""What a rule that only watches would have done: an alarm, perhaps a death, and how it came out."""

from __future__ import annotations

from dataclasses import dataclass

from stepwarden.core.verdict import Suspicion


@dataclass(frozen=True, slots=True)
class Shadow:
    """One step that such a rule holds against a worker.

    `suspicion` is what it would be were the rule in force. `yaml_budget`: what the YAML gave the
    same step, in seconds. `dead`: the rule has called the worker dead of it.
    """

    suspicion: Suspicion
    yaml_budget: float
    dead: bool = False
