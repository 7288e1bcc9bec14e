"""Fuzzing: many inputs, each made from real ones, and what none of them may do.

    hunt = Hunt(count, first_seed())
    hunt.run(lambda rng: mutated(rng, SAMPLES), try_one)
    hunt.assert_steady()

Input number n is made by `Random(seed + n)` alone, so it can be had again without the others.
"""

from __future__ import annotations

import gc
import os
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random, SystemRandom
from typing import TypeVar

T = TypeVar("T")

IN_SOAK = 100_000
IN_TEST = 500
FIXED_SEED = 20_261_130

MOST_GROWTH = 24 << 20
"""Bytes; what the allocator keeps for itself between two looks stays far below."""

_SETTLED = 0.2  # of the inputs have been tried before memory is looked at for the first time
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def first_seed() -> int:
    """A new one with each run, or STEPWARDEN_SEED."""
    told = os.environ.get("STEPWARDEN_SEED")
    return int(told) if told else SystemRandom().randrange(2**32)


def resident() -> int:
    """Bytes of this process that are in memory now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES


class Hunt:
    """Tries `count` inputs, and remembers what they cost."""

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        self.seed = seed
        self.costs: list[float] = []
        self.slowest: tuple[float, int] = (0.0, 0)
        self._before = 0

    def run(self, make: Callable[[Random], T], try_one: Callable[[T], object]) -> None:
        """Make and try them all. What `try_one` raises says which input it was, and its seed."""
        for number in range(self.count):
            if number == int(self.count * _SETTLED):
                self.look()
            made = make(Random(self.seed + number))
            begin = time.thread_time()
            try:
                try_one(made)
            except Exception as error:
                error.add_note(f"input {number} of STEPWARDEN_SEED={self.seed}: {made!r:.3000}")
                raise
            self.note(time.thread_time() - begin, number)

    def look(self) -> None:
        """What is in memory now is what it may be later too."""
        gc.collect()
        self._before = resident()

    def note(self, seconds: float, number: int) -> None:
        """One input has cost so much."""
        self.costs.append(seconds)
        self.slowest = max(self.slowest, (seconds, number))

    def assert_steady(self, least: float = 0.5) -> None:
        """No growth, and no input that took longer than `least` seconds and than most others."""
        gc.collect()
        grown = resident() - self._before
        assert grown < MOST_GROWTH, f"{grown >> 20} MiB more, STEPWARDEN_SEED={self.seed}"
        bound = max(least, 300 * statistics.median(self.costs))
        seconds, number = self.slowest
        assert seconds < bound, f"input {number} of STEPWARDEN_SEED={self.seed}: {seconds:.3f} s"


def mutated(rng: Random, samples: Sequence[bytes], scraps: Sequence[bytes] = ()) -> bytes:
    """One of the samples, changed in one to five places, and now and then two of them in one."""
    data = bytearray(rng.choice(samples))
    if rng.random() < 0.1:
        other = rng.choice(samples)
        data[_place(rng, data) :] = other[_place(rng, other) :]
    for _ in range(rng.choice((1, 1, 2, 3, 5))):
        rng.choice(_CHANGES)(rng, data, scraps)
    return bytes(data)


def _place(rng: Random, data: bytes | bytearray) -> int:
    return rng.randrange(len(data) + 1)


def _stretch(rng: Random, data: bytearray) -> slice:
    begin = _place(rng, data)
    return slice(begin, begin + rng.choice((1, 2, 4, 8, 30, 200)))


def _flip(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def _byte(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    if data:
        data[rng.randrange(len(data))] = rng.choice((0, 1, 9, 10, 32, 0x7F, 0x80, 0xFF))


def _lose(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_stretch(rng, data)]


def _double(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    part = data[_stretch(rng, data)]
    at = _place(rng, data)
    data[at:at] = part * rng.choice((1, 1, 2, 20))


def _cut(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    del data[_place(rng, data) :]


def _noise(rng: Random, data: bytearray, _: Sequence[bytes]) -> None:
    data[_stretch(rng, data)] = rng.randbytes(rng.randrange(1, 12))


def _scrap(rng: Random, data: bytearray, scraps: Sequence[bytes]) -> None:
    if scraps:
        where = _stretch(rng, data) if rng.random() < 0.5 else slice(at := _place(rng, data), at)
        data[where] = rng.choice(scraps)


_CHANGES: Sequence[Callable[[Random, bytearray, Sequence[bytes]], None]] = (
    _flip,
    _byte,
    _lose,
    _double,
    _cut,
    _noise,
    _scrap,
    _scrap,
    _scrap,
)
