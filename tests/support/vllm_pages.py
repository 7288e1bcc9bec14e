"""What a page says, and a worker that goes through its start, for the tests of the vLLM plugin."""

from __future__ import annotations

import os
from pathlib import Path
from types import ModuleType

from stepwarden_proto import ring
from stepwarden_proto.page import PHASES, W_PHASE, page_name

from support.little_vllm import Worker

Modules = dict[str, ModuleType]


class Page:
    """What a rank's page says now."""

    def __init__(self, directory: Path, rank: str) -> None:
        self._path = directory / page_name(rank, os.getpid())

    def words(self) -> list[int]:
        return memoryview(self._path.read_bytes()).cast("q").tolist()

    def phase(self) -> str:
        return PHASES[self.words()[W_PHASE]]

    def begun(self) -> int:
        return ring.steps_begun(self.words())

    def open(self) -> list[tuple[int, int, str]]:
        steps = ring.open_steps(self.words())
        return [(step.num_seqs, step.num_tokens, PHASES[step.phase]) for step in steps]


def ready(engine: Modules, worker: Worker) -> Worker:
    """Take a worker through its start, as the engine core does."""
    wrapper = engine["vllm.v1.worker.worker_base"].WorkerWrapperBase(worker)
    wrapper.init_device()
    worker.load_model()
    worker.determine_available_memory()
    worker.initialize_from_config(None)
    worker.compile_or_warm_up_model()
    return worker
