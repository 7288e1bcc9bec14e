"""The demo's transformer computes what a transformer computes."""

from __future__ import annotations

import numpy as np
import pytest
from stepwarden.demo.model import Cache, Ints, Model, Shape, greedy

SHAPE = Shape(vocabulary=97, width=32, layers=2, heads=4, kv_heads=2, hidden=48, context=24)
TOLERANCE = 1e-4


@pytest.fixture(scope="module")
def model() -> Model:
    return Model(SHAPE, seed=7)


def prompts(batch: int, length: int) -> Ints:
    return np.random.default_rng(3).integers(0, SHAPE.vocabulary, (batch, length))


def zeros(batch: int) -> Ints:
    return np.zeros(batch, dtype=np.int64)


def test_decode_with_cache_equals_full_recompute(model: Model) -> None:
    tokens = prompts(3, 10)
    cache, slots = Cache(SHAPE, 3), np.arange(3)
    model.forward(tokens[:, :6], zeros(3), slots, cache)
    for known in range(6, 10):
        step = model.forward(tokens[:, known : known + 1], zeros(3) + known, slots, cache)
        whole = model.forward(tokens[:, : known + 1], zeros(3), slots, Cache(SHAPE, 3))
        np.testing.assert_allclose(step, whole, atol=TOLERANCE)


def test_a_batch_equals_one_by_one_at_different_lengths(model: Model) -> None:
    lengths = [2, 9, 5]
    cache, slots = Cache(SHAPE, 4), np.array([3, 0, 2])
    for slot, length in zip(slots, lengths, strict=True):
        model.forward(prompts(1, length), zeros(1), np.array([slot]), cache)
    together = model.forward(np.array([[5], [6], [7]]), np.array(lengths), slots, cache)
    for row, length in enumerate(lengths):
        alone = np.append(prompts(1, length), [[5 + row]], axis=1)
        expected = model.forward(alone, zeros(1), np.array([0]), Cache(SHAPE, 1))
        np.testing.assert_allclose(together[row : row + 1], expected, atol=TOLERANCE)


def test_later_tokens_do_not_change_earlier_keys(model: Model) -> None:
    first, second = prompts(1, 8), prompts(1, 8)
    second[0, -1] = (second[0, -1] + 1) % SHAPE.vocabulary
    caches = Cache(SHAPE, 1), Cache(SHAPE, 1)
    logits = [
        model.forward(tokens, zeros(1), zeros(1), cache)
        for tokens, cache in zip((first, second), caches, strict=True)
    ]
    np.testing.assert_array_equal(caches[0].keys[..., :7, :], caches[1].keys[..., :7, :])
    assert not np.allclose(logits[0], logits[1])


def test_positions_matter(model: Model) -> None:
    ordered = model.forward(np.array([[1, 2, 3]]), zeros(1), zeros(1), Cache(SHAPE, 1))
    swapped = model.forward(np.array([[2, 1, 3]]), zeros(1), zeros(1), Cache(SHAPE, 1))
    assert not np.allclose(ordered, swapped)


def test_same_seed_gives_the_same_model() -> None:
    tokens = prompts(2, 4)
    logits = [
        Model(SHAPE, seed).forward(tokens, zeros(2), np.arange(2), Cache(SHAPE, 2))
        for seed in (1, 1, 2)
    ]
    np.testing.assert_array_equal(logits[0], logits[1])
    assert not np.allclose(logits[0], logits[2])
    assert np.isfinite(logits[0]).all()


def test_greedy_takes_the_largest() -> None:
    assert greedy(np.array([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]], dtype=np.float32)).tolist() == [1, 0]
