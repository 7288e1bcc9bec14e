"""Counters and histograms of one worker: counted by the loop, read by whoever scrapes.

The loop counts in place and freezes once a second. What is frozen never changes, so another
thread may read it for as long as it likes; and what did not change since is the same object, whose
text is made once. That makes a page of tens of thousands of lines cheap.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field


def escaped(value: str) -> str:
    """A label's value as the text format writes it."""
    return value.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def labelled(**labels: str) -> str:
    """Labels as the text format writes them, without the braces."""
    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items())


def bounds_text(bounds: Iterable[float]) -> tuple[str, ...]:
    """The label `le` of each bucket, the last one included."""
    return (*(f"{bound:g}" for bound in bounds), "+Inf")


@dataclass(slots=True)
class FrozenCounts:
    """Some counters of one family."""

    items: tuple[tuple[str, float], ...]
    _text: str = field(default="", compare=False)

    def text(self, name: str) -> str:
        """Their lines."""
        if not self._text:
            self._text = "".join(f"{name}{{{labels}}} {value}\n" for labels, value in self.items)
        return self._text


class Counts:
    """Counters by their labels. `known`: labels that are shown with 0 from the start."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._counts: dict[str, float] = dict.fromkeys(known, 0)
        self._frozen: FrozenCounts | None = None

    def add(self, labels: str, number: float = 1) -> None:
        """Count."""
        self._counts[labels] = self._counts.get(labels, 0) + number
        self._frozen = None

    def freeze(self) -> FrozenCounts:
        """What was counted so far."""
        if self._frozen is None:
            self._frozen = FrozenCounts(tuple(self._counts.items()))
        return self._frozen


@dataclass(slots=True)
class FrozenHistogram:
    """One histogram. `counts`: of each bucket alone, the last is +Inf."""

    labels: str
    les: tuple[str, ...]
    counts: tuple[int, ...]
    total: float
    _text: str = field(default="", compare=False)

    def cumulative(self) -> list[tuple[str, int]]:
        """Bound and count of everything up to it."""
        found, so_far = [], 0
        for le, count in zip(self.les, self.counts, strict=True):
            so_far += count
            found.append((le, so_far))
        return found

    def text(self, name: str) -> str:
        """Its lines."""
        if not self._text:
            buckets = self.cumulative()
            lines = [f'{name}_bucket{{{self.labels},le="{le}"}} {n}\n' for le, n in buckets]
            lines.append(f"{name}_sum{{{self.labels}}} {self.total!r}\n")
            lines.append(f"{name}_count{{{self.labels}}} {buckets[-1][1]}\n")
            self._text = "".join(lines)
        return self._text


class Histogram:
    """Counts values by size."""

    def __init__(self, bounds: tuple[float, ...], labels: str = "") -> None:
        self._bounds = bounds
        self._les = bounds_text(bounds)
        self._labels = labels
        self._counts = [0] * len(self._les)
        self._total = 0.0
        self._frozen: FrozenHistogram | None = None

    def observe(self, value: float) -> None:
        """Count one value."""
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value
        self._frozen = None

    def freeze(self) -> FrozenHistogram:
        """What was counted so far."""
        if self._frozen is None:
            counts = tuple(self._counts)
            self._frozen = FrozenHistogram(self._labels, self._les, counts, self._total)
        return self._frozen


@dataclass(frozen=True, slots=True)
class FrozenHistograms:
    """Some histograms of one family."""

    items: tuple[FrozenHistogram, ...]

    def text(self, name: str) -> str:
        """Their lines."""
        return "".join([each.text(name) for each in self.items])


class Histograms:
    """Histograms by their labels. `known`: labels that are shown empty from the start."""

    def __init__(self, bounds: tuple[float, ...], known: Iterable[str] = ()) -> None:
        self._bounds = bounds
        self._known = {labels: Histogram(bounds, labels) for labels in known}
        self._frozen: FrozenHistograms | None = None

    def observe(self, labels: str, value: float) -> None:
        """Count one value."""
        found = self._known.get(labels)
        if found is None:
            found = self._known[labels] = Histogram(self._bounds, labels)
        found.observe(value)
        self._frozen = None

    def freeze(self) -> FrozenHistograms:
        """What was counted so far."""
        if self._frozen is None:
            self._frozen = FrozenHistograms(tuple(each.freeze() for each in self._known.values()))
        return self._frozen


Frozen = FrozenCounts | FrozenHistograms
Tally = Counts | Histograms
