"""Looks at a worker's Prometheus page: how far it has come, and whether there is work."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.core.progress_seen import ProgressSeen, progressed
from stepwarden.edge.dial import fault
from stepwarden.edge.http_get import HttpFault, HttpGetter, HttpUrl
from stepwarden.edge.periodic import Periodic
from stepwarden.edge.prometheus_text import sums

MOST_BYTES = 4 * 1024 * 1024
"""A page that is larger is not taken."""

LOOK_SECONDS = 5.0
"""One look may take so long; a page that is made by a busy interpreter takes its time."""


@dataclass(frozen=True, slots=True)
class ProgressTarget:
    """Where to look, the progress counters, and the gauges that are above 0 while there is work."""

    url: HttpUrl
    counter: tuple[str, ...]
    work: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CounterSample:
    """One look at `at` (monotonic seconds, when the answer was there).

    `counter`: the sum of the progress counters, `work`: of the gauges of present work; None where
    it could not be learnt, and `text` then says why ("": nothing is wrong).
    """

    at: float
    counter: float | None = None
    work: float | None = None
    text: str = ""


class ProgressCounter:
    """Makes one look after the other, a new connection each time."""

    def __init__(self, target: ProgressTarget, clock: Clock, timeout: float = LOOK_SECONDS) -> None:
        self._target = target
        self._clock = clock
        self._timeout = timeout
        self._http = HttpGetter(clock)

    async def look(self) -> CounterSample:
        """One sample; never raises for a fault of the worker."""
        deadline = Deadline.after(self._clock.monotonic(), self._timeout)
        url = self._target.url
        where = f"{url.authority}{url.target}"
        try:
            answer = await self._http.get(url, deadline, MOST_BYTES)
        except HttpFault as error:
            return self._nothing(f"{where} {error}")
        except OSError as error:
            return self._nothing(f"{where}: {fault(error)}")
        if answer.status != 200:
            return self._nothing(f"{where} answers {answer.status}")
        return self._sample(answer.body, where)

    def _nothing(self, text: str) -> CounterSample:
        return CounterSample(self._clock.monotonic(), text=text)

    def _sample(self, body: bytes, where: str) -> CounterSample:
        names = (*self._target.counter, *self._target.work)
        found = sums(body, names)
        missing = [name for name in names if name not in found]
        text = f"{where} has no metric named {', '.join(missing)}" if missing else ""
        return CounterSample(
            self._clock.monotonic(),
            _total(found, self._target.counter),
            _total(found, self._target.work),
            text,
        )


class ProgressRunner:
    """Looks each `interval` seconds, and keeps what was `seen`: None before the first look.

    `report` takes a sentence when something new is wrong, once until it changes. `on_sample` is
    called after each look, on the loop.
    """

    def __init__(
        self,
        counter: ProgressCounter,
        interval: float,
        clock: Clock,
        report: Callable[[str], None],
        on_sample: Callable[[], None] | None = None,
    ) -> None:
        self.seen: ProgressSeen | None = None
        self.last_text = ""
        self._counter = counter
        self._report = report
        self._on_sample = on_sample
        self._looks = Periodic(self._look, interval, clock)

    def start(self) -> None:
        """Begin, on the running loop."""
        self._looks.start()

    async def close(self) -> None:
        """Look no more."""
        await self._looks.close()

    async def _look(self) -> bool:
        sample = await self._counter.look()
        self.seen = progressed(self.seen, sample.counter, sample.work, sample.at)
        if sample.text and sample.text != self.last_text:
            self._report(sample.text)
        self.last_text = sample.text
        if self._on_sample is not None:
            self._on_sample()
        return True


def _total(found: dict[str, float], names: Collection[str]) -> float | None:
    values = [found[name] for name in names if name in found]
    return sum(values) if values else None
