"""The daemon doubts itself first: time in which its own loop stood still is nobody's fault.

A loop that was stopped, starved, or paused with its whole machine wakes late. The time by which
it is late is kept as a `Pause` and does not count on any clock that was running meanwhile.

Whoever was late a moment ago, or sits on a host that stalls, sees others badly too. How much it
doubts itself is a score from 0 to 8 (the idea is Lifeguard's, of the gossip protocol SWIM): each
bad second adds to it, each few good seconds take one off, and retry windows are longer by it:

    window * (1 + score / 4)        from 1 to 3 times what the file says

It moves no deadline and no hard cap: what is late stays late, and is watched for longer.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from stepwarden.core.deadline import elapsed

LATE_WAKE_SECONDS = 0.5
"""A wake-up later than this is a pause of ours. Below it lies ordinary scheduling noise (measured
up to 0.3 s on two busy cores); above it a worker could be blamed for what we did not see."""

KEPT_PAUSES = 256
"""Pauses are remembered for as long as clocks can run; the oldest beyond this are joined."""

MOST_DOUBT = 8
DOUBT_SHARE = 0.25
"""Each point of the score makes a retry window longer by this share of itself."""

LAG_SECONDS = 0.4
"""A second in which a wake-up came so late is a bad one, even where it is no pause yet."""

MOST_FOR_ONE_PAUSE = 4
"""A pause adds a point for each second that it lasted, and not more than this."""

GOOD_SECONDS = 5.0
"""So many good seconds in a row take one point off."""


@dataclass(frozen=True, slots=True)
class Doubts:
    """What was seen of ourselves and the host over the last second or so.

    `lag`: by how much the latest wake-up came late, in seconds. `pressed`: the host stalls.
    `silence`: most of the workers are silent at the same time.
    """

    lag: float = 0.0
    pressed: bool = False
    silence: bool = False

    @property
    def reasons(self) -> tuple[str, ...]:
        """Why this second was a bad one; () for a good one."""
        told = {
            "our own loop is late": self.lag > LAG_SECONDS,
            "the host is under pressure": self.pressed,
            "most workers are silent at once": self.silence,
        }
        return tuple(text for text, holds in told.items() if holds)


@dataclass(frozen=True, slots=True)
class Pause:
    """From `begin` to `end` (monotonic seconds) the loop did not run."""

    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Awareness:
    """What the loop knows about its own absences, and how much it doubts itself.

    `score`: 0 to 8. `why`: what raised it last. `good_since`: since when all is well; None: it is
    not, or nobody has looked yet.
    """

    pauses: tuple[Pause, ...] = ()
    score: int = 0
    why: tuple[str, ...] = ()
    good_since: float | None = None

    def woke(self, expected: float, now: float) -> Awareness:
        """Note a wake-up that was due at `expected`; a new `Awareness` when it came too late."""
        if elapsed(expected, now) <= LATE_WAKE_SECONDS:
            return self
        kept = (*self.pauses, Pause(expected, now))
        if len(kept) > KEPT_PAUSES:
            # Joining the two oldest excuses the time between them too: lenient, and bounded.
            kept = (Pause(kept[0].begin, kept[1].end), *kept[2:])
        points = min(MOST_FOR_ONE_PAUSE, 1 + int(elapsed(expected, now)))
        return replace(self._doubting(points, ("our own loop stood still",)), pauses=kept)

    def looked(self, doubts: Doubts, now: float) -> Awareness:
        """Take in one more second: a bad one adds a point, some good ones take one off."""
        if doubts.reasons:
            return self._doubting(1, doubts.reasons)
        if self.good_since is None:
            return replace(self, good_since=now)
        if not self.score or elapsed(self.good_since, now) < GOOD_SECONDS:
            return self
        score = self.score - 1
        return replace(self, score=score, why=self.why if score else (), good_since=now)

    def longer(self, window: float) -> float:
        """By how many seconds our doubt makes a retry window longer."""
        return window * DOUBT_SHARE * self.score

    def _doubting(self, points: int, why: tuple[str, ...]) -> Awareness:
        score = min(MOST_DOUBT, self.score + points)
        return replace(self, score=score, why=why, good_since=None)

    def lost(self, since: float, now: float) -> float:
        """Seconds between `since` and `now` in which the loop did not run."""
        if not self.pauses or self.pauses[-1].end <= since:
            return 0.0  # as a rule, and asked of each clock in each turn
        return sum(elapsed(max(since, p.begin), min(now, p.end)) for p in self.pauses)

    def forget_before(self, instant: float) -> Awareness:
        """Drop pauses that ended before `instant`: no clock that runs now can overlap them."""
        kept = tuple(p for p in self.pauses if p.end >= instant)
        return self if len(kept) == len(self.pauses) else replace(self, pauses=kept)
