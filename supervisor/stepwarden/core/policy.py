"""What the operator's YAML says about one worker, as the pure core needs it.

Built by config/ from the validated file. All durations in seconds; all already within range.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stepwarden.core import budget
from stepwarden.core.budget import Budget, StepRule

AGENT_REQUIRED = "required"
AGENT_OPTIONAL = "optional"
AGENT_NONE = "none"

LEARN_OFF = "off"
LEARN_OBSERVE = "observe"
LEARN_ON = "on"


@dataclass(frozen=True, slots=True)
class HardCaps:
    """Operator's own hard caps in seconds; None: computed from budget, window and busy factor."""

    step: float | None = None
    startup: float | None = None
    heartbeat: float | None = None


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """When and how often a dead worker is started again.

    `on`: any_exit, failure or never. The delay before restart n (from 0) is
    ``min(delay * factor ** n, max_delay)``, spread by +/- `jitter` of itself. `limit` deaths
    within `within`, or `limit` deaths in a row without `stable` uptime between them, and it is
    FAILED.
    """

    on: str = "any_exit"
    delay: float = 10.0
    factor: float = 2.0
    max_delay: float = 300.0
    jitter: float = 0.25
    limit: int = 5
    within: float = 1800.0
    stable: float = 600.0


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """Everything that judges one worker.

    `attached`: something else starts it; after its end (or at first) it is awaited for
    `expect_external` seconds. `probed`: a probe of its own port says when it is ready, and not its
    agent. `drain`: how long a rank may be draining; no step is judged then. `progress_budget`: how
    long its progress counter may stand still while work is present; None: there is no counter.
    `learn`: off, observe or on; no learned deadline is below `learn_floor`, none above the largest
    step budget.
    `observe`: it is judged and never signalled.
    """

    name: str
    backend: str = "gpu"
    step: StepRule = budget.SHIPPED["gpu"]
    max_num_seqs: int = 256
    agent: str = AGENT_REQUIRED
    startup: float = 600.0
    first_step: float = 120.0
    heartbeat_timeout: float = 30.0
    window: float = 30.0
    busy_cpu: float = 5.0
    busy_factor: float = budget.DEFAULT_BUSY_FACTOR
    lease_cap: float = 1800.0
    hard_caps: HardCaps = field(default_factory=HardCaps)
    restart: RestartPolicy = field(default_factory=RestartPolicy)
    autostart: bool = True
    attached: bool = False
    expect_external: float = 600.0
    probed: bool = False
    drain: float = 55.0
    progress_budget: float | None = None
    learn: str = LEARN_OBSERVE
    learn_floor: float = 10.0
    observe: bool = False

    def step_budget(self, num_seqs: int | None, num_tokens: int | None) -> Budget:
        """The budget of one step; an unknown batch takes `max_num_seqs`."""
        seqs = self.max_num_seqs if num_seqs is None or num_seqs < 1 else num_seqs
        return self.step.budget(seqs, num_tokens)

    def step_cap(self, step_budget: float) -> float:
        """Hard cap of a step with this budget."""
        return self._cap(step_budget, self.hard_caps.step)

    def startup_cap(self) -> float:
        """Hard cap of the start, from spawn."""
        return self._cap(self.startup, self.hard_caps.startup)

    def heartbeat_cap(self) -> float:
        """Hard cap of silence, from the last sign of life."""
        return self._cap(self.heartbeat_timeout, self.hard_caps.heartbeat)

    def _cap(self, seconds: float, override: float | None) -> float:
        return budget.hard_cap(seconds, self.window, self.busy_factor, self.step.maximum, override)
