"""Continuous batching changes when work is done, never what comes out."""

from __future__ import annotations

import random
import time

import pytest
from stepwarden.clock import SystemClock
from stepwarden.demo.engine import Engine, Request
from stepwarden.demo.model import Model, Shape
from stepwarden.demo.traffic import PROMPT_TOKENS, Traffic
from stepwarden_agent import Agent

SHAPE = Shape(vocabulary=97, width=32, layers=2, heads=4, kv_heads=2, hidden=48, context=96)


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(SHAPE, seed=7)


def engine_of(model: Model, max_num_seqs: int) -> Engine:
    return Engine(model, Agent.from_env(rank="0"), max_num_seqs, SystemClock())


def finish(engine: Engine) -> None:
    while engine.step():
        pass


def submit_mixed(engine: Engine) -> list[Request]:
    source = random.Random(5)
    requests = []
    for _ in range(9):
        prompt = [source.randrange(SHAPE.vocabulary) for _ in range(source.randrange(1, 12))]
        requests.append(engine.submit(prompt, new_tokens=source.randrange(1, 10)))
    return requests


def test_a_running_batch_gives_what_one_by_one_gives(model: Model) -> None:
    alone, together = engine_of(model, 1), engine_of(model, 4)
    expected, got = submit_mixed(alone), submit_mixed(together)
    finish(alone)
    finish(together)
    assert [request.output for request in got] == [request.output for request in expected]
    assert all(len(request.output) == request.new_tokens for request in got)
    assert all(request.done.is_set() for request in got)
    assert together.counts.steps < alone.counts.steps
    assert together.counts.finished == 9


def test_a_request_joins_while_others_run(model: Model) -> None:
    engine = engine_of(model, 2)
    first = engine.submit([1, 2, 3], new_tokens=8)
    engine.step()
    engine.step()
    second = engine.submit([4], new_tokens=2)
    engine.step()
    assert len(second.output) == 1
    assert not first.done.is_set()
    engine.step()
    assert second.done.is_set()
    assert len(first.output) == 3  # two of its own, one together with the newcomer
    finish(engine)
    assert len(first.output) == 8


def test_never_more_than_max_num_seqs_run(model: Model) -> None:
    engine = engine_of(model, 2)
    requests = engine.submit_all([[1]] * 5, new_tokens=3)
    engine.step()
    assert sum(bool(request.output) for request in requests) == 2
    assert engine.in_flight == 5
    finish(engine)
    assert engine.in_flight == 0


def test_abort_drops_what_waits_and_what_runs(model: Model) -> None:
    engine = engine_of(model, 2)
    requests = engine.submit_all([[1]] * 4, new_tokens=50)
    engine.step()
    engine.abort_all()
    finish(engine)
    assert all(request.done.is_set() for request in requests)
    fresh = engine.submit_all([[1]] * 2, new_tokens=2)
    finish(engine)
    assert all(len(request.output) == 2 for request in fresh)


@pytest.mark.parametrize(("prompt", "new_tokens"), [([], 1), ([1], 0), ([1] * 96, 1)])
def test_impossible_requests_are_refused(model: Model, prompt: list[int], new_tokens: int) -> None:
    with pytest.raises(ValueError, match="token"):
        engine_of(model, 1).submit(prompt, new_tokens)


def test_nothing_to_do_is_no_step(model: Model) -> None:
    engine = engine_of(model, 1)
    assert not engine.step()
    assert engine.counts.steps == 0


def test_traffic_keeps_the_batch_full(model: Model) -> None:
    engine = engine_of(model, 6)
    traffic = Traffic(engine, SHAPE.vocabulary, SHAPE.context, seed=1)
    for batch in (3, 6, 2):
        traffic.load(batch)
        for _ in range(100):
            traffic.keep()
            engine.step()
        traffic.keep()
        assert engine.in_flight == batch
    with pytest.raises(ValueError, match="from 0 to 6, not 7"):
        traffic.load(7)


def test_a_slow_step_is_as_long_as_the_measured_speed_says(model: Model) -> None:
    engine = engine_of(model, 4)
    traffic = Traffic(engine, SHAPE.vocabulary, SHAPE.context, seed=1)
    traffic.load(4)
    with pytest.raises(ValueError, match="measured speed"):
        traffic.slow_step(1.0)
    engine.counts.prompt_rate = 80.0
    assert traffic.slow_step(1.5) == 30
    assert not traffic.slow_step_over()
    engine.step()
    engine.step()
    assert traffic.slow_step_over()
    assert traffic.slow_step(1e-9) == PROMPT_TOKENS


def test_a_step_costs_more_with_a_larger_batch() -> None:
    """The work is real: 64 sequences take clearly longer than one."""
    shape = Shape(context=32, layers=1)
    model = Model(shape)
    engine = Engine(model, Agent.from_env(rank="0"), 64, SystemClock())

    def best(batch: int) -> float:
        engine.submit_all([[1]] * batch, new_tokens=6)
        engine.step()
        times = []
        for _ in range(4):
            begin = time.process_time()
            engine.step()
            times.append(time.process_time() - begin)
        finish(engine)
        return min(times)

    best(64)  # touches the memory
    assert best(64) > 2 * best(1)
