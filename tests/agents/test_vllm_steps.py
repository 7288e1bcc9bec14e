"""Where a step of vLLM begins and what ends it, against the shape of vLLM's classes."""

from __future__ import annotations

import gc
import threading
from pathlib import Path
from typing import Any

import pytest
from stepwarden_agent.integrations import vllm
from support.little_vllm import AsyncOutput, Output, Worker, scheduled
from support.vllm_pages import Modules, Page, ready


@pytest.mark.parametrize(
    ("step", "shape"),
    [
        (scheduled({"a": 7, "b": 1}, new=1), (2, 8, "prefill")),
        (scheduled({"a": 512}, outputs=[0]), (1, 512, "prefill")),
        (scheduled({"a": 40}, outputs=[9], resumed=1), (1, 40, "prefill")),
        (scheduled({"a": 1, "b": 1, "c": 1}), (3, 3, "decode")),
    ],
)
def test_the_shape_of_a_step(
    engine: Modules, pages: Path, step: Any, shape: tuple[int, int, str]
) -> None:
    vllm.register()
    worker = Worker()
    page = Page(pages, "rank0")
    seen: list[Any] = []
    vars(worker).update(
        execute_model=lambda _: seen.append(page.open()),
        sample_tokens=lambda _: seen.append(page.open()),
    )
    ready(engine, worker)
    worker.execute_model(step)
    worker.sample_tokens(None)
    assert seen == [[shape], [shape]]
    assert Page(pages, "rank0").open() == []


def test_a_step_of_no_tokens_is_not_one(engine: Modules, pages: Path) -> None:
    vllm.register()
    worker = ready(engine, Worker())
    worker.execute_model(scheduled({}))
    assert Page(pages, "rank0").begun() == 0


def test_none_from_execute_model_leaves_the_step_to_sample_tokens(
    engine: Modules, pages: Path
) -> None:
    vllm.register()
    worker = ready(engine, Worker())
    worker.answers = [None]
    assert worker.execute_model(scheduler_output=scheduled({"a": 1})) is None
    assert len(Page(pages, "rank0").open()) == 1
    assert isinstance(worker.sample_tokens(None), Output)
    assert Page(pages, "rank0").open() == []


def test_a_step_whose_sampling_never_came_ends_with_the_next_one(
    engine: Modules, pages: Path
) -> None:
    vllm.register()
    worker = ready(engine, Worker())
    worker.answers = [None, None]
    worker.execute_model(scheduled({"a": 1}))
    worker.execute_model(scheduled({"a": 1, "b": 1}))
    assert Page(pages, "rank0").open() == [(2, 2, "decode")]


@pytest.mark.parametrize("error", [RuntimeError("no memory"), KeyboardInterrupt()])
def test_an_exception_of_the_engine_passes_unchanged_and_ends_the_step(
    engine: Modules, pages: Path, error: BaseException
) -> None:
    vllm.register()
    worker = ready(engine, Worker())
    worker.answers = [error, None]
    worker.samples = [error]
    with pytest.raises(type(error)) as first:
        worker.execute_model(scheduled({"a": 1}))
    worker.execute_model(scheduled({"a": 1}))
    with pytest.raises(type(error)) as second:
        worker.sample_tokens(None)
    assert first.value is error
    assert second.value is error
    assert Page(pages, "rank0").open() == []


def test_an_asynchronous_output_ends_its_step_when_it_is_read_on_another_thread(
    engine: Modules, pages: Path
) -> None:
    vllm.register()
    worker = ready(engine, Worker())
    worker.answers = [AsyncOutput(), None]
    worker.samples = [AsyncOutput()]
    first = worker.execute_model(scheduled({"a": 1}))
    worker.execute_model(scheduled({"a": 1, "b": 1}))
    second = worker.sample_tokens(None)
    assert [step[0] for step in Page(pages, "rank0").open()] == [1, 2]
    for output in (first, second):
        assert isinstance(output, AsyncOutput)
        read = output.get_output  # as the executors do: bound here, called there
        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
    assert Page(pages, "rank0").open() == []


def test_an_output_that_is_dropped_unread_ends_its_step(engine: Modules, pages: Path) -> None:
    vllm.register()
    worker = ready(engine, Worker())
    worker.answers = [AsyncOutput()]
    output = worker.execute_model(scheduled({"a": 1}))
    assert len(Page(pages, "rank0").open()) == 1
    del output
    gc.collect()
    assert Page(pages, "rank0").open() == []


def test_an_output_that_fails_to_be_read_ends_its_step(engine: Modules, pages: Path) -> None:
    class Failing(AsyncOutput):
        def get_output(self) -> Output:
            raise RuntimeError("device lost")

    vllm.register()
    worker = ready(engine, Worker())
    worker.answers = [Failing()]
    output = worker.execute_model(scheduled({"a": 1}))
    with pytest.raises(RuntimeError, match="device lost"):
        output.get_output()
    assert Page(pages, "rank0").open() == []


def test_an_output_that_takes_no_attribute_ends_its_step_at_once(
    engine: Modules, pages: Path
) -> None:
    class Slotted:
        __slots__ = ()

        def get_output(self) -> Output:
            return Output()

    vllm.register()
    worker = ready(engine, Worker())
    worker.answers = [Slotted()]
    worker.execute_model(scheduled({"a": 1}))
    assert Page(pages, "rank0").open() == []


def test_a_rank_whose_output_nobody_reads_ends_its_step_when_the_call_returns(
    engine: Modules, pages: Path
) -> None:
    """Older versions hold the last output of such a rank until the next step: no hang, idle."""
    vllm.register()
    worker = ready(engine, Worker(rank=1, world_size=2, tensor_parallel_size=2))
    worker.answers = [AsyncOutput()]
    held = worker.execute_model(scheduled({"a": 1}))
    assert held is not None
    assert Page(pages, "rank1").begun() == 1
    assert Page(pages, "rank1").open() == []
