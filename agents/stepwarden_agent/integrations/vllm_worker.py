"""A worker rank of vLLM: reports its phases while it starts, then each of its steps.

vLLM has two model runners and many worker classes, but every call to a worker goes through an
attribute of its instance. So only `WorkerWrapperBase.init_device` is wrapped on a class, and the
rest on the instance that it has just made ready.
"""

from __future__ import annotations

import sys
from typing import Any

from stepwarden_agent import Agent
from stepwarden_agent.integrations import vllm_hooks as hooks
from stepwarden_agent.integrations.vllm_hooks import Function, Maker, log
from stepwarden_agent.integrations.vllm_steps import StepReporter

_REPORTER = "_stepwarden"  # attribute of the worker
_RELOAD_LEASE_SECONDS = 600.0


def install() -> None:
    """Wrap `init_device`; where it is missing say so once and leave the engine untouched."""
    absent = hooks.missing(hooks.WORKER_HOOKS)
    if absent:
        log.warning("stepwarden: steps are not reported, this vLLM has no %s", ", ".join(absent))
        return
    hooks.wrap_method(hooks.INIT_DEVICE, _init_device)


def begin_quietly(worker: Any) -> None:
    """Make the agent of this worker, once, in phase loading; never raises."""
    try:
        if getattr(worker, _REPORTER, None) is None:
            setattr(worker, _REPORTER, WorkerReporter(worker))
    except Exception as error:
        log.warning("stepwarden: steps are not reported: %r", error)


def attach_quietly(worker: Any) -> None:
    """Start reporting the phases and steps of this worker, once; never raises."""
    begin_quietly(worker)
    try:
        reporter = getattr(worker, _REPORTER, None)
        if reporter is not None:
            reporter.attach(worker)
    except Exception as error:
        log.warning("stepwarden: steps are not reported: %r", error)


def rank_name(worker: Any) -> str:
    """`rank0`, `rank1`, ...: unique in the whole tree.

    vLLM counts ranks anew in each data parallel engine, so those before ours are added.
    """
    config = worker.parallel_config
    before = int(getattr(config, "data_parallel_index", 0)) * int(config.world_size)
    return f"rank{before + int(worker.rank)}"


def _init_device(original: Function) -> Function:
    def init_device(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The agent comes first, because a device that does not come up is a hang as well.
        begin_quietly(self.worker)
        result = original(self, *args, **kwargs)
        attach_quietly(self.worker)
        return result

    return init_device


def _tell_about(agent: Agent, worker: Any) -> None:
    """Which vLLM and which model; what this version does not tell is left out."""
    try:
        model = getattr(worker, "model_config", None)
        agent.about(
            engine="vllm",
            engine_version=getattr(sys.modules.get("vllm"), "__version__", ""),
            model=getattr(model, "model", ""),
            dtype=str(getattr(model, "dtype", "")).removeprefix("torch."),
        )
    except Exception as error:  # its steps are reported all the same
        log.debug("stepwarden: what runs here is not known: %r", error)


def _answers(worker: Any) -> bool:
    """True where the engine core asks this rank for the output of a step.

    That is the first tensor parallel rank of the last pipeline stage. The others' outputs are
    dropped unread, and older versions hold the last one until the next step comes.
    """
    config = worker.parallel_config
    last_stage = int(config.tensor_parallel_size)
    last_stage *= int(getattr(config, "prefill_context_parallel_size", 1))
    return int(worker.rank) == int(config.world_size) - last_stage


class WorkerReporter:
    """The phases of one worker: which startup method runs, and when it is up."""

    def __init__(self, worker: Any) -> None:
        self._name = rank_name(worker)
        self._agent = Agent.from_env(rank=self._name, phase="loading", bye_at_exit=False)
        _tell_about(self._agent, worker)
        self._steps = StepReporter(self._agent, _answers(worker), self._come_up)
        self._attached = False
        self._up = False

    def attach(self, worker: Any) -> None:
        """Wrap the methods of this worker; a second time changes nothing."""
        if self._attached:
            return
        self._attached = True
        if not hooks.wrap_instance(worker, hooks.EXECUTE.method, self._steps.execute_model):
            log.warning("stepwarden: steps are not reported, no %s", hooks.EXECUTE)
            self._agent.close()
            return
        hooks.wrap_instance(worker, hooks.SAMPLE.method, self._steps.sample_tokens)
        hooks.wrap_instance(worker, hooks.WORKER_SHUTDOWN.method, self._shutdown)
        for name in hooks.STARTUP_PHASES:
            hooks.wrap_instance(worker, name, self._startup(name))
        log.info("stepwarden: reporting as %s", self._name)

    def _startup(self, name: str) -> Maker:
        def make(original: Function) -> Function:
            def method(*args: Any, **kwargs: Any) -> Any:
                if self._up:  # a reload in service, not a start
                    with self._agent.lease(name, _RELOAD_LEASE_SECONDS):
                        return original(*args, **kwargs)
                return self._start(name, original, args, kwargs)

            return method

        return make

    def _shutdown(self, original: Function) -> Function:
        def shutdown(*args: Any, **kwargs: Any) -> Any:
            self._agent.close()
            return original(*args, **kwargs)

        return shutdown

    def _start(self, name: str, original: Function, args: Any, kwargs: Any) -> Any:
        self._agent.phase(hooks.STARTUP_PHASES[name])
        with self._steps.paused():  # warm-up runs steps of its own
            result = original(*args, **kwargs)
        if name == hooks.LAST_STARTUP_METHOD:
            self._come_up()
        return result

    def _come_up(self) -> None:
        if not self._up:
            self._up = True
            self._agent.phase("idle")
