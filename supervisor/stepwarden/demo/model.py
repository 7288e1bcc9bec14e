"""A small transformer decoder in numpy: real arithmetic, random weights, exact KV cache.

Embedding, RMSNorm, rotary positions, grouped-query attention over a KV cache, SwiGLU, logits.
Everything is batch-first and in float32. Its text means nothing; the time it takes does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Ints = npt.NDArray[np.int64]

NORM_EPSILON = np.float32(1e-5)
ROTARY_BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a model. `width` is divided among `heads`, which share `kv_heads` evenly."""

    vocabulary: int = 2048
    width: int = 512
    layers: int = 4
    heads: int = 8
    kv_heads: int = 2
    hidden: int = 1408
    context: int = 1024

    @property
    def head_width(self) -> int:
        """Numbers in one head."""
        return self.width // self.heads


class Cache:
    """Keys and values of `slots` sequences. Memory is only touched where tokens are written."""

    def __init__(self, shape: Shape, slots: int) -> None:
        size = (shape.layers, slots, shape.kv_heads, shape.context, shape.head_width)
        self.keys = np.zeros(size, dtype=np.float32)
        self.values = np.zeros(size, dtype=np.float32)


@dataclass(frozen=True, slots=True)
class Layer:
    """The weights of one block."""

    query: Floats
    key: Floats
    value: Floats
    output: Floats
    gate: Floats
    up: Floats
    down: Floats


class Model:
    """Random weights from `seed`; the same seed and shape give the same model anywhere."""

    def __init__(self, shape: Shape, seed: int = 0) -> None:
        self.shape = shape
        random = np.random.default_rng(seed)
        self.embedding = _matrix(random, shape.vocabulary, shape.width)
        self.layers = [_layer(random, shape) for _ in range(shape.layers)]
        self.head = _matrix(random, shape.width, shape.vocabulary)
        self._cos, self._sin = _rotary_tables(shape)

    def forward(self, tokens: Ints, starts: Ints, slots: Ints, cache: Cache) -> Floats:
        """Logits [batch, vocabulary] after the last token of each sequence.

        `tokens` [batch, length] follow the `starts[i]` tokens that slot `slots[i]` of the cache
        already holds; their keys and values are written there.
        """
        positions = starts[:, None] + np.arange(tokens.shape[1])
        x = self.embedding[tokens]
        for index, layer in enumerate(self.layers):
            x = x + self._attention(index, layer, _normed(x), positions, slots, cache)
            x = x + _swiglu(layer, _normed(x))
        logits: Floats = _normed(x[:, -1]) @ self.head
        return logits

    def _attention(
        self, index: int, layer: Layer, x: Floats, positions: Ints, slots: Ints, cache: Cache
    ) -> Floats:
        shape = self.shape
        batch, length, _ = x.shape
        cos, sin = self._cos[positions], self._sin[positions]
        query = _rotated(_split(x @ layer.query, shape.heads), cos, sin)
        key = _rotated(_split(x @ layer.key, shape.kv_heads), cos, sin)
        value = _split(x @ layer.value, shape.kv_heads)
        keys, values = cache.keys[index], cache.values[index]
        keys[slots[:, None], :, positions] = key
        values[slots[:, None], :, positions] = value

        # Queries that share a key head are stacked, so that one product serves them all.
        shared = shape.heads // shape.kv_heads
        query = query.reshape(batch, length, shape.kv_heads, shared, shape.head_width)
        query = query.transpose(0, 2, 3, 1, 4)
        mixed = np.empty_like(query)
        for row, slot in enumerate(slots):  # one at a time: scores of all would not fit in memory
            known = int(positions[row, -1]) + 1
            mixed[row] = _attend(
                query[row], keys[slot, :, :known], values[slot, :, :known], positions[row]
            )
        joined = mixed.transpose(0, 3, 1, 2, 4).reshape(batch, length, shape.width)
        result: Floats = joined @ layer.output
        return result


def _attend(query: Floats, keys: Floats, values: Floats, positions: Ints) -> Floats:
    """One sequence: query [kv, shared, length, head], keys and values [kv, known, head]."""
    kv_heads, shared, length, width = query.shape
    scores = query.reshape(kv_heads, shared * length, width) @ keys.transpose(0, 2, 1)
    scores = scores.reshape(kv_heads, shared, length, -1) * np.float32(width**-0.5)
    if length > 1:
        ahead = np.arange(keys.shape[1]) > positions[:, None]
        scores[:, :, ahead] = -np.inf
    scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
    scores /= scores.sum(axis=-1, keepdims=True)
    mixed: Floats = scores.reshape(kv_heads, shared * length, -1) @ values
    return mixed.reshape(kv_heads, shared, length, width)


def greedy(logits: Floats) -> Ints:
    """The most likely next token of each sequence."""
    chosen: Ints = logits.argmax(axis=-1)
    return chosen


def _swiglu(layer: Layer, x: Floats) -> Floats:
    gate = x @ layer.gate
    gate /= 1 + np.exp(-gate)
    result: Floats = (gate * (x @ layer.up)) @ layer.down
    return result


def _normed(x: Floats) -> Floats:
    scale = np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + NORM_EPSILON)
    result: Floats = x / scale
    return result


def _split(x: Floats, heads: int) -> Floats:
    return x.reshape(*x.shape[:2], heads, -1)


def _rotated(x: Floats, cos: Floats, sin: Floats) -> Floats:
    half = x.shape[-1] // 2
    first, second = x[..., :half], x[..., half:]
    cos, sin = cos[:, :, None], sin[:, :, None]
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=-1)


def _rotary_tables(shape: Shape) -> tuple[Floats, Floats]:
    half = shape.head_width // 2
    rates = ROTARY_BASE ** (-np.arange(half) / half)
    angles = np.arange(shape.context)[:, None] * rates
    return np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)


def _matrix(random: np.random.Generator, rows: int, columns: int) -> Floats:
    return random.standard_normal((rows, columns), dtype=np.float32) * np.float32(rows**-0.5)


def _layer(random: np.random.Generator, shape: Shape) -> Layer:
    kv_width = shape.kv_heads * shape.head_width
    return Layer(
        query=_matrix(random, shape.width, shape.width),
        key=_matrix(random, shape.width, kv_width),
        value=_matrix(random, shape.width, kv_width),
        output=_matrix(random, shape.width, shape.width),
        gate=_matrix(random, shape.width, shape.hidden),
        up=_matrix(random, shape.width, shape.hidden),
        down=_matrix(random, shape.hidden, shape.width),
    )
