"""The timeout policy for engine authors, without the daemon. docs/python-api.md explains it.

    from stepwarden import Backend, RpcTimeoutPolicy, on_rpc_timeout

    seconds = RpcTimeoutPolicy(Backend.CPU).compute(max_num_seqs=16)  # 316.0
    ...  # the call has not come back after so many seconds
    if on_rpc_timeout(worker, step_start) == "DEAD":
        raise EngineDead

Budgets and verdicts are the daemon's own (`core.budget`, `core.verdict`). Needs no more than the
package's own dependencies.
"""

from __future__ import annotations

import math
import os
import threading
from collections import OrderedDict
from collections.abc import MutableMapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from stepwarden.clock import Clock, SystemClock
from stepwarden.core import budget
from stepwarden.core.clocks import Cause, RunningClock
from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.core.evidence import CpuSample, ProcessId
from stepwarden.core.verdict import Ruling, Suspicion, judge
from stepwarden.edge.process_probe import cpu_sample
from stepwarden.edge.process_table import read_process

ENGINE_STEP_TIMEOUT = "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS"
"""The variable by which vLLM is told how long one `execute_model` call may take."""

DEFAULT_WINDOW = 30.0
DEFAULT_BUSY_CPU = 5.0

SHORTEST_MEASUREMENT = 1.0
"""Samples that lie closer together (seconds) say nothing: CPU is counted in ticks of 10 ms."""

KEPT_SAMPLES = 1024
"""Processes whose last sample is remembered; the one not asked for longest goes first."""


class Backend(StrEnum):
    """Where a model runs. Any other text is a backend too, with the numbers as they are given."""

    CPU = "cpu"
    GPU = "gpu"


_FACTORS = {Backend.CPU.value: (10.0, 5.0)}
"""How much longer than on a GPU: the base, and each sequence."""


@dataclass(frozen=True, slots=True)
class RpcTimeoutPolicy:
    """How long one step may take on a backend. All times in seconds.

    `base_timeout` and `per_seq_seconds` are those of a GPU; on a CPU they count 10 and 5 times.
    No timeout is above `max_timeout`.
    """

    backend: Backend | str
    base_timeout: float = 30.0
    per_seq_seconds: float = 0.2
    max_timeout: float = budget.DEFAULT_MAX_SECONDS

    def __post_init__(self) -> None:
        for name in ("base_timeout", "per_seq_seconds", "max_timeout"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0.0):
                raise ValueError(f"{name}: {value!r} is no number of seconds from 0 on")

    @property
    def formula(self) -> budget.Formula:
        """The budget of the daemon that stands behind it."""
        base, per_seq = _FACTORS.get(str(self.backend), (1.0, 1.0))
        return budget.Formula(
            base=base * self.base_timeout,
            per_seq=per_seq * self.per_seq_seconds,
            maximum=self.max_timeout,
        )

    def compute(self, max_num_seqs: int) -> float:
        """Seconds that a step of `max_num_seqs` sequences may take."""
        if not isinstance(max_num_seqs, int) or max_num_seqs < 1:
            raise ValueError(f"max_num_seqs: {max_num_seqs!r} is no whole number from 1 on")
        return self.formula.budget(max_num_seqs, None).seconds

    def hard_cap(self, max_num_seqs: int | None, window: float = DEFAULT_WINDOW) -> float:
        """Seconds after which even a busy worker is dead; None: as for the longest step."""
        seconds = self.max_timeout if max_num_seqs is None else self.compute(max_num_seqs)
        factor = budget.DEFAULT_BUSY_FACTOR
        return budget.hard_cap(seconds, window, factor, self.max_timeout, None)


def configure_engine_timeout(
    backend: Backend | str,
    max_num_seqs: int,
    environ: MutableMapping[str, str] | None = None,
) -> dict[str, str]:
    """The environment variables that give an engine the timeout of the policy.

    With `environ` (say `os.environ`, before the engine starts) they are put there too, except
    those that somebody has set already: an operator's own value stands, and is what is returned.
    """
    seconds = math.ceil(RpcTimeoutPolicy(backend).compute(max_num_seqs))
    variables = {ENGINE_STEP_TIMEOUT: str(seconds)}
    if environ is None:
        return variables
    return {name: environ.setdefault(name, value) for name, value in variables.items()}


class HasPid(Protocol):
    """`psutil.Process`, `subprocess.Popen`, `multiprocessing.Process` and their like."""

    @property
    def pid(self) -> int | None:
        """Its process id; None where it was never started."""


def on_rpc_timeout(
    worker: HasPid | int,
    step_start: float | None,
    *,
    policy: RpcTimeoutPolicy | None = None,
    max_num_seqs: int | None = None,
    window: float = DEFAULT_WINDOW,
    busy_cpu: float = DEFAULT_BUSY_CPU,
    clock: Clock | None = None,
) -> Ruling:
    """A call to `worker` has timed out: wait once more, or is it dead? Never blocks.

    `step_start`: when the step began, in seconds of `time.monotonic()`; None: unknown, and no hard
    cap holds. `policy` and `max_num_seqs` give the hard cap; without them it is that of the longest
    step of any batch. Returns

    - DEAD: the process is gone, stopped, or measured not working since the last call for this
      step, or the hard cap is reached;
    - UNHEALTHY_RETRY: measured working, or its CPU is not known: the first call for a step has
      nothing to compare with. Wait another `window` and ask again.

    The CPU of the process and its descendants counts; `busy_cpu` is in percent of one core.
    """
    now = (clock or SystemClock()).monotonic()
    pid = _pid_of(worker)
    if pid is None:
        return Ruling.DEAD
    entry = read_process(pid)
    if entry is None:
        # Not even its existence may be visible (another user's, with a hidden /proc).
        return Ruling.UNHEALTHY_RETRY if _exists(pid) else Ruling.DEAD
    if entry.gone:
        return Ruling.DEAD
    sample = cpu_sample(entry.process, now)
    cap = (policy or RpcTimeoutPolicy(Backend.GPU)).hard_cap(max_num_seqs, window)
    before = _samples.swap(entry.process, step_start, sample, now, 2.0 * window)
    return _judge(step_start, cap, before, sample, now, busy_cpu)


def _judge(
    step_start: float | None,
    cap: float,
    before: CpuSample | None,
    sample: CpuSample | None,
    now: float,
    busy_cpu: float,
) -> Ruling:
    """Ask the daemon's judge at the end of a window that began with the sample before."""
    began = now if step_start is None or not math.isfinite(step_start) else step_start
    running = RunningClock(
        subject="worker",
        cause=Cause.STEP,
        began=began,
        budget=0.0,
        deadline=Deadline(began),
        hard_cap=cap,
        cap_at=began + cap,
        arithmetic="",
    )
    opened = now if before is None else before.at
    suspicion = Suspicion(running, opened, now, before, whole_until=now)
    return judge(suspicion, sample, now, window=0.0, busy_cpu=busy_cpu).ruling


def _pid_of(worker: HasPid | int) -> int | None:
    """Its pid; None where the object itself knows that its process has ended."""
    pid = worker if isinstance(worker, int) else worker.pid
    if pid is None or pid < 1:
        raise ValueError(f"worker: {worker!r} is no process that was started")
    # Popen and multiprocessing know of an end, and reap; then the pid may be another's already.
    ended = any(getattr(worker, name, None) is not None for name in ("returncode", "exitcode"))
    running = getattr(worker, "is_running", None)  # psutil: compares the start time
    return None if ended or (running is not None and not running()) else pid


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


class _Samples:
    """The last CPU sample of each process for the step it was taken in; from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[ProcessId, tuple[float | None, CpuSample]] = OrderedDict()

    def swap(
        self,
        process: ProcessId,
        step_start: float | None,
        sample: CpuSample | None,
        now: float,
        longest: float,
    ) -> CpuSample | None:
        """Keep the new sample; returns the one to compare it with, None where there is none.

        One of another step does not count: the rest between two steps would thin out the CPU of
        this one. Where the step is unknown none older than `longest` does.
        """
        with self._lock:
            of_step, before = self._kept.get(process, (None, None))
            if before is not None:
                too_old = step_start is None and elapsed(before.at, now) > longest
                if of_step != step_start or too_old:
                    before = None
                elif elapsed(before.at, now) < SHORTEST_MEASUREMENT:
                    return None  # and keep the older one, for a later call
            if sample is not None:
                self._kept[process] = (step_start, sample)
                self._kept.move_to_end(process)
            while len(self._kept) > KEPT_SAMPLES:
                self._kept.popitem(last=False)
            return before


_samples = _Samples()
