"""The way from "EngineDeadError: RPC call to execute_model timed out" to what has to be changed.

Each step is a question that an operator would ask, with this worker's own numbers in the answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stepwarden.config import WorkerConfig
from stepwarden.config.engine_checks import below_budget, raise_to
from stepwarden.config.engines import VLLM_STEP_DEFAULT, VLLM_STEP_TIMEOUT
from stepwarden.config.values import parse_whole
from stepwarden.core.policy import AGENT_REQUIRED
from stepwarden.doctor.engine_times import Times, times_of
from stepwarden.doctor.subject import Subject

TOO_SHORT = "engine first, too early"
BETWEEN = "engine first, on late steps"
OURS_FIRST = "stepwarden first"
UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True)
class Step:
    """One question of the path."""

    question: str
    answer: str


@dataclass(frozen=True, slots=True)
class Path:
    """The whole path of one worker.

    `fired`: seconds of vLLM's time-out in the life that runs (or the next one); None: unreadable.
    `case`: which of the four above. `steps` lead to `change`, what to do, the best first.
    """

    worker: str
    case: str
    fired: int | None
    budget: float
    hard_cap: float
    needed: int
    steps: tuple[Step, ...]
    change: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """The same as a JSON object."""
        return {
            "worker": self.worker,
            "case": self.case,
            "engine_timeout_seconds": self.fired,
            "budget_seconds": self.budget,
            "hard_cap_seconds": self.hard_cap,
            "engine_timeout_needed": self.needed,
            "steps": [{"question": s.question, "answer": s.answer} for s in self.steps],
            "change": list(self.change),
        }


def engine_dead(subject: Subject, worker: WorkerConfig) -> Path:
    """The path of one worker of the file."""
    times = times_of(subject, worker)
    seen = _seen(subject, worker.name)
    fired = _in_force(times)
    case = _case(times, fired)
    steps = (
        Step("Did a time-out of vLLM's fire?", _which_text(seen)),
        Step("Which time-out, and how long is it?", _which_value(times, fired)),
        Step("CPU or GPU?", _backend(worker)),
        Step("Which batch?", _batch(times)),
        Step("Who decides first, vLLM or stepwarden?", _first(times, fired, case)),
        Step("Was it slow, or did it hang?", _slow_or_hung(worker, seen)),
    )
    need = times.need
    change = tuple(_change(times, fired, case))
    return Path(worker.name, case, fired, need.budget, need.cap, need.timeout, steps, change)


def _in_force(times: Times) -> int | None:
    """Of the life that runs where that is known: it, or one like it, is what died."""
    running = times.step.running
    if running is None:
        return times.step.seconds
    return VLLM_STEP_DEFAULT if running == "" else parse_whole(running)


def _case(times: Times, fired: int | None) -> str:
    if fired is None:
        return UNREADABLE
    if fired < times.need.budget:
        return TOO_SHORT
    return BETWEEN if fired < times.need.timeout else OURS_FIRST


def _which_text(seen: Any) -> str:
    death = ""
    if seen is not None and seen.last_death:
        death = f" stepwarden's own record of its last death: {seen.last_death}."
    return (
        "Read the engine's log just above EngineDeadError. `RPC call to execute_model timed out`"
        f" (or sample_tokens): yes, {VLLM_STEP_TIMEOUT}; go on here. Anything else (a traceback, a"
        " signal, out of memory, `WorkerProc died`): no, the engine died of that, and no time-out"
        f" or budget helps.{death}"
    )


def _which_value(times: Times, fired: int | None) -> str:
    step, running = times.step, times.step.running
    answer = f"The next life gets {VLLM_STEP_TIMEOUT}={step.text}, set by {step.source}."
    if running is not None and running != step.text:
        had = (
            f"{fired} s" if running else f"vLLM's default, {VLLM_STEP_DEFAULT} s, for it is not set"
        )
        return f"{answer} The life that runs has another: {had}."
    if running is None:
        return f"{answer} What a former life had is only known if the file was the same."
    return f"{answer} The life that runs has the same."


def _backend(worker: WorkerConfig) -> str:
    policy = worker.policy
    one = policy.step_budget(1, None)
    answer = f"backend: {policy.backend}; one sequence may take {one.arithmetic}."
    if policy.backend == "gpu":
        return (
            f"{answer} If this engine computes on a CPU, that is the fault: write backend: cpu,"
            " whose budgets are ten times as long (`stepwarden doctor` looks at its vLLM)."
        )
    return answer


def _batch(times: Times) -> str:
    policy, need = times.worker.policy, times.need
    return (
        f"The largest is max_num_seqs: {policy.max_num_seqs}: budget {need.arithmetic}; hard cap"
        f" {need.cap:g} s. The batch of the step that was cut off stands in the event of its death"
        " (num_seqs), or in vLLM's log as `Running: N reqs`."
    )


def _first(times: Times, fired: int | None, case: str) -> str:
    need = times.need
    if case == TOO_SHORT and fired is not None:
        fact, _ = below_budget(times.worker, need, fired)
        return f"vLLM, and too early: {fired} s is {fact}. It ended a step that was not even late."
    if case == BETWEEN:
        return (
            f"vLLM, after {fired} s: the step was late (budget {need.budget:g} s), and stepwarden"
            f" would have let it work up to its hard cap, {need.cap:g} s, while its CPU moves."
        )
    if case == UNREADABLE:
        return "Nobody can say: the value is no whole number of seconds."
    return (
        f"stepwarden: {fired} s is at or above hard cap + grace, {need.timeout} s, so a watched"
        " worker is DEAD by stepwarden before vLLM gives up. If vLLM fired all the same, the"
        " process had another value (Ray or a container did not pass it on, an older life), or"
        " its agent was not there."
    )


def _slow_or_hung(worker: WorkerConfig, seen: Any) -> str:
    policy = worker.policy
    answer = (
        f"`stepwarden events --worker {worker.name} --kind transition,retry,false_alarm`: a verdict"
        " that says working, or a false_alarm, means slow: a longer budget cures it. One that says"
        f" not working (below {policy.busy_cpu:g} % of a core over {policy.window:g} s) means hung:"
        " no budget cures it. py-spy dump --pid PID of the rank while it hangs; on a GPU dmesg |"
        " grep -i xid, and NCCL's log."
    )
    if seen is not None and seen.false_alarms:
        answer += f" In its present life {seen.false_alarms} late steps ended by themselves: slow."
    return answer


def _change(times: Times, fired: int | None, case: str) -> Iterator[str]:
    worker, need, step = times.worker, times.need, times.step
    mended = step.seconds is not None and step.seconds >= need.timeout
    if case != OURS_FIRST and mended:
        yield f"stepwarden restart {worker.name}: the next life gets {step.text} s, which suffices"
        return
    if case == TOO_SHORT and fired is not None:
        _, remedies = below_budget(worker, need, fired)
        yield raise_to(need, VLLM_STEP_TIMEOUT)
        yield from reversed(remedies[:-1])
    elif case in (BETWEEN, UNREADABLE):
        yield raise_to(need, VLLM_STEP_TIMEOUT)
    if worker.policy.agent != AGENT_REQUIRED:
        yield "agent: required, so that stepwarden sets vLLM's time-outs above its own"
    if case == OURS_FIRST:
        yield "see that the value reaches every process: tr '\\0' '\\n' < /proc/PID/environ"
        yield "a hang: find where it stands (py-spy), not a longer time-out"
    yield (
        f"slow steps: a longer budget for backend {worker.policy.backend} (stepwarden explain"
        f" --worker {worker.name} --config FILE), or a smaller max_num_seqs"
    )


def _seen(subject: Subject, name: str) -> Any:
    answer = subject.daemon.answer
    workers = () if answer is None else answer.workers
    return next((worker for worker in workers if worker.name == name), None)
