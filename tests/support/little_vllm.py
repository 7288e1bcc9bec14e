"""The shape of vLLM's classes that the plugin wraps, without the engine behind them.

The real one takes a minute to start and runs on one CPU only; this one has tensor parallel
ranks, asynchronous outputs and data parallel engines, each in a few lines.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any


class Output:
    """What a step gave."""


class AsyncOutput:
    """What a step will give when it is asked."""

    def get_output(self) -> Output:
        return Output()


class State(Enum):
    RUNNING = 0
    REQUESTED = 1


def scheduled(
    tokens: dict[str, int], *, new: int = 0, outputs: list[int] | None = None, resumed: int = 0
) -> SimpleNamespace:
    """A scheduler's output: tokens by request, how many are new, output tokens of the others."""
    cached = SimpleNamespace(
        num_output_tokens=outputs if outputs is not None else [1] * (len(tokens) - new),
        resumed_req_ids={f"r{number}" for number in range(resumed)},
    )
    return SimpleNamespace(
        num_scheduled_tokens=tokens,
        total_num_scheduled_tokens=sum(tokens.values()),
        scheduled_new_reqs=[object()] * new,
        scheduled_cached_reqs=cached,
    )


class WorkerBase:
    def execute_model(self, scheduler_output: Any) -> Any:
        raise NotImplementedError

    def sample_tokens(self, grammar_output: Any) -> Any:
        raise NotImplementedError

    def shutdown(self) -> None:
        return None


class Worker(WorkerBase):
    """`answers` are returned by execute_model one after the other; an exception is raised."""

    def __init__(self, rank: int = 0, **parallel: int) -> None:
        self.rank = rank
        sizes = {"world_size": 1, "tensor_parallel_size": 1, "data_parallel_index": 0}
        self.parallel_config = SimpleNamespace(**(sizes | parallel))
        self.answers: list[Any] = []
        self.samples: list[Any] = []
        self.device = False
        self.warm_up_steps: list[Any] = []

    def init_device(self) -> None:
        self.device = True

    def load_model(self) -> str:
        return "loaded"

    def determine_available_memory(self) -> int:
        return 1

    def initialize_from_config(self, config: Any) -> None:
        del config

    def compile_or_warm_up_model(self) -> float:
        for step in self.warm_up_steps:
            self.execute_model(step)
        return 0.5

    def execute_model(self, scheduler_output: Any) -> Any:
        del scheduler_output
        return _next(self.answers)

    def sample_tokens(self, grammar_output: Any) -> Any:
        del grammar_output
        return _next(self.samples)


def _next(answers: list[Any]) -> Any:
    answer = answers.pop(0) if answers else Output()
    if isinstance(answer, BaseException):
        raise answer
    return answer


class Scheduler:
    def __init__(self) -> None:
        self.unfinished = 0

    def get_num_unfinished_requests(self) -> int:
        return self.unfinished


def modules() -> dict[str, ModuleType]:
    """Fresh modules, so that what one test wraps is not wrapped in the next one."""

    class WorkerWrapperBase:
        def __init__(self, worker: Worker) -> None:
            self.worker = worker

        def init_device(self) -> None:
            self.worker.init_device()

    class Executor:
        def __init__(self, vllm_config: Any) -> None:
            self.vllm_config = vllm_config

    class EngineCore:
        def __init__(self, index: int = 0) -> None:
            parallel = SimpleNamespace(data_parallel_index=index)
            self.vllm_config = SimpleNamespace(parallel_config=parallel)
            self.scheduler = Scheduler()

        def add_request(self, request: Any) -> None:
            del request
            self.scheduler.unfinished += 1

        def shutdown(self) -> str:
            return "down"

    class EngineCoreProc(EngineCore):
        def __init__(self, index: int = 0) -> None:
            super().__init__(index)
            self.shutdown_state = State.RUNNING

        def _process_input_queue(self) -> None:
            self.scheduler.unfinished += 2

    return {
        "vllm.v1.worker.worker_base": _module(
            WorkerWrapperBase=WorkerWrapperBase, WorkerBase=WorkerBase
        ),
        "vllm.v1.executor.abstract": _module(Executor=Executor),
        "vllm.v1.engine.core": _module(EngineCore=EngineCore, EngineCoreProc=EngineCoreProc),
    }


def _module(**content: Any) -> ModuleType:
    module = ModuleType("little_vllm")
    vars(module).update(content)
    return module


@contextmanager
def installed() -> Iterator[dict[str, ModuleType]]:
    """`import vllm...` finds the little one inside."""
    little = modules()
    packages = ("vllm", "vllm.v1", "vllm.v1.worker", "vllm.v1.executor", "vllm.v1.engine")
    wanted = {name: _module(__path__=[]) for name in packages} | little
    former = {name: sys.modules.get(name) for name in wanted}
    sys.modules.update(wanted)
    try:
        yield little
    finally:
        for name, module in former.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
