"""Which places of vLLM the plugin wraps, and how a wrapper is put there without harm.

The names are the same in 0.16, 0.20, 0.24, 0.28, 0.32 and 0.33; `tools/check_vllm_hooks.py` reads
this table and compares it with the source of those versions.
"""

from __future__ import annotations

import functools
import importlib
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

log: Final = logging.getLogger("vllm.stepwarden")  # below vLLM's own logger, so in its format

_MARK: Final = "__stepwarden__"

Function = Callable[..., Any]
Maker = Callable[[Function], Function]


@dataclass(frozen=True, slots=True)
class Hook:
    """A method of a class in vLLM that the plugin wraps or calls.

    `parameters` are the names that must be among the method's parameters, because a wrapper reads
    them or because their order tells what is passed.
    """

    module: str
    owner: str
    method: str
    parameters: tuple[str, ...] = ("self",)

    def __str__(self) -> str:
        return f"{self.module}.{self.owner}.{self.method}"

    def owner_class(self) -> Any:
        """The class in the running vLLM; ImportError or AttributeError where there is none."""
        return getattr(importlib.import_module(self.module), self.owner)


_WORKER_BASE: Final = "vllm.v1.worker.worker_base"
_CORE: Final = "vllm.v1.engine.core"

INIT_DEVICE: Final = Hook(_WORKER_BASE, "WorkerWrapperBase", "init_device")
EXECUTOR_INIT: Final = Hook(
    "vllm.v1.executor.abstract", "Executor", "__init__", ("self", "vllm_config")
)
ADD_REQUEST: Final = Hook(_CORE, "EngineCore", "add_request", ("self", "request"))
CORE_SHUTDOWN: Final = Hook(_CORE, "EngineCore", "shutdown")
LOOP_TURN: Final = Hook(_CORE, "EngineCoreProc", "_process_input_queue")

WORKER_HOOKS: Final = (INIT_DEVICE,)
CORE_HOOKS: Final = (EXECUTOR_INIT, ADD_REQUEST, CORE_SHUTDOWN, LOOP_TURN)

# Wrapped on the worker's instance, whatever its class; the base class shows the signatures.
EXECUTE: Final = Hook(_WORKER_BASE, "WorkerBase", "execute_model", ("self", "scheduler_output"))
SAMPLE: Final = Hook(_WORKER_BASE, "WorkerBase", "sample_tokens", ("self", "grammar_output"))
WORKER_SHUTDOWN: Final = Hook(_WORKER_BASE, "WorkerBase", "shutdown")
INSTANCE_HOOKS: Final = (EXECUTE, SAMPLE, WORKER_SHUTDOWN)

# Only called or watched, never replaced on a class of vLLM's at the start.
UNFINISHED: Final = Hook(
    "vllm.v1.core.sched.interface", "SchedulerInterface", "get_num_unfinished_requests"
)
GET_OUTPUT: Final = Hook("vllm.v1.outputs", "AsyncModelRunnerOutput", "get_output")
USED_HOOKS: Final = (UNFINISHED, GET_OUTPUT)

STARTUP_PHASES: Final = {
    "load_model": "loading",
    "determine_available_memory": "compiling",
    "initialize_from_config": "warmup",
    "compile_or_warm_up_model": "warmup",
}
"""Methods of the worker that belong to its start, and the phase each one is."""

LAST_STARTUP_METHOD: Final = "compile_or_warm_up_model"

FIELDS: Final = {
    ("vllm.v1.core.sched.output", "SchedulerOutput"): (
        "num_scheduled_tokens",
        "total_num_scheduled_tokens",
        "scheduled_new_reqs",
        "scheduled_cached_reqs",
    ),
    ("vllm.v1.core.sched.output", "CachedRequestData"): ("num_output_tokens",),
    ("vllm.config.parallel", "ParallelConfig"): (
        "world_size",
        "tensor_parallel_size",
        "data_parallel_index",
    ),
}
"""Fields that are read, by the class that has them; without one, steps are not reported."""

OPTIONAL_FIELDS: Final = {
    ("vllm.v1.core.sched.output", "CachedRequestData"): ("resumed_req_ids",),
    ("vllm.config.parallel", "ParallelConfig"): ("prefill_context_parallel_size",),
    ("vllm.v1.engine.core", "EngineCoreProc"): ("shutdown_state",),
    ("vllm.config.model", "ModelConfig"): ("model", "dtype"),
}
"""Fields that are read where they are there."""


def missing(hooks: Iterable[Hook]) -> list[str]:
    """Names of the hooks that this vLLM does not have."""
    return [str(hook) for hook in hooks if not _present(hook)]


def wrap_method(hook: Hook, make: Maker) -> None:
    """Replace a method of a class by `make(method)`; a second time changes nothing."""
    owner = hook.owner_class()
    original = getattr(owner, hook.method)
    if not getattr(original, _MARK, False):
        setattr(owner, hook.method, _marked(original, make))


def wrap_instance(instance: Any, name: str, make: Maker) -> bool:
    """Replace a method on one object only; False where the object has no such method."""
    original = getattr(instance, name, None)
    if not callable(original):
        return False
    if not getattr(original, _MARK, False):
        setattr(instance, name, _marked(original, make))
    return True


def _marked(original: Function, make: Maker) -> Function:
    wrapper = functools.wraps(original)(make(original))
    setattr(wrapper, _MARK, True)
    return wrapper


def _present(hook: Hook) -> bool:
    try:
        return callable(getattr(hook.owner_class(), hook.method))
    except (ImportError, AttributeError):
        return False
