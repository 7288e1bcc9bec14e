"""The engine core of vLLM: reports how many requests wait or run, and that its loop turns.

With it the supervisor knows "requests wait and no step begins" from idleness. While the core
waits for requests it stands in its input queue; then its beats alone say that it lives.
"""

from __future__ import annotations

import multiprocessing
import sys
from typing import Any

from stepwarden_agent import Agent
from stepwarden_agent.integrations import vllm_hooks as hooks
from stepwarden_agent.integrations.vllm_hooks import Function, log

_RUNNING = "RUNNING"  # name of EngineShutdownState before anybody asked for the end


def install() -> None:
    """Wrap the core's methods; where one is missing say so once and leave the core untouched."""
    absent = hooks.missing(hooks.CORE_HOOKS)
    if absent:
        log.warning(
            "stepwarden: the engine core is not reported, this vLLM has no %s", ", ".join(absent)
        )
        return
    hooks.wrap_method(hooks.EXECUTOR_INIT, _executor_init)
    hooks.wrap_method(hooks.LOOP_TURN, _loop_turn)
    hooks.wrap_method(hooks.ADD_REQUEST, _add_request)
    hooks.wrap_method(hooks.CORE_SHUTDOWN, _shutdown)


class CoreReporter:
    """The engine core of this process: not there, loading, or with its loop begun."""

    def __init__(self) -> None:
        self._agent: Agent | None = None
        self._up = False

    def load(self, config: Any) -> None:
        """The core's executor stands; its caches and scheduler are still to come."""
        if self._agent is None:
            self._agent = Agent.from_env(rank=core_name(config), phase="loading", bye_at_exit=False)

    def turn(self, core: Any) -> None:
        """The loop has come by; reports what there is to do."""
        self.load(core.vllm_config)
        if self._agent is None:
            return
        if not self._up:
            self._up = True
            self._agent.phase("idle")
        self._agent.loop_turn()
        self._agent.work(unfinished=_unfinished(core))

    def accept(self, core: Any) -> None:
        """A request is about to be added: from here on there is work."""
        if self._agent is not None and self._up:
            self._agent.work(unfinished=_unfinished(core) + 1)

    def leave(self, core: Any) -> None:
        """The core tears itself down; says bye where it was asked to."""
        if self._agent is not None and _asked_to_end(core):
            self._agent.close()


_reporter = CoreReporter()


def core_name(config: Any) -> str:
    """`core`, and `core1`, `core2`, ... for further data parallel engines."""
    index = int(getattr(config.parallel_config, "data_parallel_index", 0))
    return f"core{index}" if index else "core"


def _executor_init(original: Function) -> Function:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        # Only after the workers are forked off, so that no thread of ours is among them; and not
        # in a program that runs the engine in its own main process, where no loop will begin.
        if multiprocessing.parent_process() is not None:
            _quietly("load", self.vllm_config)

    return init


def _loop_turn(original: Function) -> Function:
    def process_input_queue(self: Any, *args: Any, **kwargs: Any) -> Any:
        _quietly("turn", self)
        result = original(self, *args, **kwargs)
        _quietly("turn", self)
        return result

    return process_input_queue


def _add_request(original: Function) -> Function:
    def add_request(self: Any, *args: Any, **kwargs: Any) -> Any:
        _quietly("accept", self)
        return original(self, *args, **kwargs)

    return add_request


def _shutdown(original: Function) -> Function:
    def shutdown(self: Any, *args: Any, **kwargs: Any) -> Any:
        _quietly("leave", self)
        return original(self, *args, **kwargs)

    return shutdown


def _quietly(event: str, subject: Any) -> None:
    try:
        getattr(_reporter, event)(subject)
    except Exception as error:
        log.debug("stepwarden: engine core not reported: %r", error)


def _unfinished(core: Any) -> int:
    return int(core.scheduler.get_num_unfinished_requests())


def _asked_to_end(core: Any) -> bool:
    """A signal asked for it; an engine that failed does not say bye."""
    state = getattr(core, "shutdown_state", None)
    if state is not None:
        return getattr(state, "name", "") != _RUNNING
    return isinstance(sys.exc_info()[1], SystemExit)  # versions whose handler only raises it
