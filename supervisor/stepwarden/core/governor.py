"""How many workers of this host may die by verdict, and when none may.

A verdict may be wrong, and one that is wrong for one worker is often wrong for all: the host is
starved, its disk stands, we ourselves see badly. Two rules limit what that costs.

    bucket   `deaths` by verdict `within` a time; one comes back each within / deaths seconds.
             Those that were condemned first get the first that comes back.
    freeze   when more than half of at least 3 independent workers have turned suspect within one
             window, the cause is presumed common, and nobody is killed for at most `freeze_max`.
             It ends sooner when no more than half are suspect any more, and another one begins
             no sooner than `freeze_max` after it, so that at most half of all time is frozen.

What counts as independent is a party: the workers of a group are one. Exits are never held up,
for nothing is killed that lives. A death whose hard cap is reached waits like any other, but for
no more than `freeze_max` in all; then it goes, with or without a token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from enum import StrEnum

from stepwarden.core.deadline import Deadline, elapsed

FEWEST_PARTIES = 3
"""Of fewer independent workers, no majority says anything about a common cause."""


class Held(StrEnum):
    """Why a death is held up."""

    FREEZE = "freeze"
    BUCKET = "bucket"


@dataclass(frozen=True, slots=True)
class Refusal:
    """A death is held up now, and why, in words."""

    why: Held
    sentence: str


Leave = Callable[[bool, float], Refusal | None]
"""Asked whether a condemned worker may die: is its hard cap reached, and when. None: it may."""


def always(_capped: bool, _now: float) -> None:
    """The leave of a worker that nobody governs."""


@dataclass(slots=True)
class Asking:
    """Asks for somebody and keeps what was refused."""

    leave: Leave
    refusal: Refusal | None = None

    def __call__(self, capped: bool, now: float) -> Refusal | None:
        """What `leave` says."""
        self.refusal = self.leave(capped, now)
        return self.refusal


@dataclass(frozen=True, slots=True)
class Refused:
    """The leave of a worker that was refused, as a recording has it."""

    refusal: Refusal

    def __call__(self, _capped: bool, _now: float) -> Refusal:
        """The same as then."""
        return self.refusal


@dataclass(frozen=True, slots=True)
class GovernorPolicy:
    """`deaths` by verdict `within` seconds; no freeze is longer than `freeze_max`, 0.0: none is."""

    deaths: int = 10
    within: float = 600.0
    freeze_max: float = 300.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One worker that is there, as the governor sees it.

    `party`: whose lot it shares (its group, else itself). `suspect_since`: when it turned suspect;
    None: it is not. `window`: its retry window, in seconds.
    """

    worker: str
    party: str
    suspect_since: float | None
    window: float


@dataclass(frozen=True, slots=True)
class Waiting:
    """A condemned worker whose death is held up; `paid`: a token is put aside for it."""

    worker: str
    since: float
    paid: bool = False


@dataclass(frozen=True, slots=True)
class Frozen:
    """Kills are frozen from `since`, until `until` at the latest."""

    since: float
    until: float
    suspects: tuple[str, ...]
    parties: int

    def left(self, now: float) -> float:
        """Seconds until it ends at the latest."""
        return elapsed(now, self.until)

    def age(self, now: float) -> float:
        """Seconds since it began."""
        return elapsed(self.since, now)


@dataclass(frozen=True, slots=True)
class Fallen:
    """A worker that was killed by verdict still counts as suspect until its window is over."""

    seen: Seen
    counts_until: float


@dataclass(frozen=True, slots=True)
class Governor:
    """What the governor remembers. `tokens` as of `filled_at`; `rests_until`: no freeze before."""

    policy: GovernorPolicy
    tokens: float
    filled_at: float
    frozen: Frozen | None = None
    rests_until: float = 0.0
    waiting: tuple[Waiting, ...] = ()
    fallen: tuple[Fallen, ...] = ()
    seen: tuple[Seen, ...] = ()

    def looked(self, seen: Iterable[Seen], now: float) -> Governor:
        """Take in who is there and who is suspect; freeze, or end a freeze."""
        known = tuple(seen)
        suspects = {each.worker for each in known if each.suspect_since is not None}
        kept = tuple(one for one in self.waiting if one.worker in suspects)
        back = sum(one.paid for one in self.waiting if one.worker not in suspects)
        fallen = tuple(one for one in self.fallen if not Deadline(one.counts_until).passed(now))
        full = float(self.policy.deaths)
        after = replace(
            self,
            tokens=min(full, self.tokens + back),
            waiting=kept,
            fallen=fallen,
            seen=known,
        )
        return after._filled(now)._thawed(now)._froze(now)

    def asked(self, worker: str, capped: bool, now: float) -> tuple[Governor, Held | None]:
        """May this condemned worker die now? None: yes, and it is counted.

        `capped`: its hard cap is reached.
        """
        after = self._filled(now)
        mine = next((one for one in after.waiting if one.worker == worker), None)
        overdue = mine is not None and elapsed(mine.since, now) >= self.policy.freeze_max
        paid = mine is not None and mine.paid
        if capped and overdue:
            return after._let_die(worker, paid, now), None
        if after.frozen is not None:
            return after._queued(worker, now), Held.FREEZE
        if paid or after.tokens >= 1.0:
            return after._let_die(worker, paid, now), None
        return after._queued(worker, now), Held.BUCKET

    def wait(self, worker: str, now: float) -> float:
        """Seconds until a death that is held up may be had at the latest, as things are now."""
        ends = [0.0 if self.frozen is None else elapsed(now, self.frozen.until)]
        unpaid = [one.worker for one in self.waiting if not one.paid]
        if worker in unpaid:
            lacking = max(0.0, unpaid.index(worker) + 1 - self.tokens)
            ends.append(lacking * self._seconds_each)
        return max(ends)

    def reconfigured(self, policy: GovernorPolicy, now: float) -> Governor:
        """Other numbers hold from now on; a freeze is shortened where they say so."""
        if policy == self.policy:
            return self
        after = self._filled(now)
        spent = max(0.0, self.policy.deaths - after.tokens)
        tokens = max(0.0, policy.deaths - spent)
        frozen = after.frozen
        if frozen is not None:
            until = min(frozen.until, frozen.since + policy.freeze_max)
            frozen = replace(frozen, until=until)
        return replace(after, policy=policy, tokens=tokens, frozen=frozen)

    @property
    def _seconds_each(self) -> float:
        return self.policy.within / self.policy.deaths

    def _filled(self, now: float) -> Governor:
        """Put back what time has earned, and put it aside for those who have waited longest."""
        earned = elapsed(self.filled_at, now) / self._seconds_each
        tokens = min(float(self.policy.deaths), self.tokens + earned)
        waiting = []
        for one in self.waiting:
            pays = not one.paid and tokens >= 1.0
            tokens -= pays
            waiting.append(replace(one, paid=True) if pays else one)
        return replace(self, tokens=tokens, filled_at=now, waiting=tuple(waiting))

    def _queued(self, worker: str, now: float) -> Governor:
        if any(one.worker == worker for one in self.waiting):
            return self
        return replace(self, waiting=(*self.waiting, Waiting(worker, now)))

    def _let_die(self, worker: str, paid: bool, now: float) -> Governor:
        waiting = tuple(one for one in self.waiting if one.worker != worker)
        fallen = self.fallen
        for each in self.seen:
            if each.worker == worker and each.suspect_since is not None:
                fallen = (*fallen, Fallen(each, max(now, each.suspect_since + each.window)))
        tokens = self.tokens if paid else max(0.0, self.tokens - 1.0)
        return replace(self, waiting=waiting, fallen=fallen, tokens=tokens)

    def _thawed(self, now: float) -> Governor:
        if self.frozen is None:
            return self
        parties, suspects = self._counted(None)
        if not Deadline(self.frozen.until).passed(now) and _most(suspects, parties):
            return self
        return replace(self, frozen=None, rests_until=now + self.policy.freeze_max)

    def _froze(self, now: float) -> Governor:
        longest = self.policy.freeze_max
        if self.frozen is not None or longest <= 0.0 or now < self.rests_until:
            return self
        parties, suspects = self._counted(now)
        if parties < FEWEST_PARTIES or not _most(suspects, parties):
            return self
        return replace(self, frozen=Frozen(now, now + longest, suspects, parties))

    def _counted(self, within_window_at: float | None) -> tuple[int, tuple[str, ...]]:
        """How many parties there are, and which are suspect, in the order of the workers.

        `within_window_at`: only those that turned suspect less than a window of theirs before then.
        """
        there = [*self.seen, *(one.seen for one in self.fallen)]
        suspects: dict[str, None] = {}
        for each in there:
            since = each.suspect_since
            if since is None:
                continue
            if within_window_at is None or elapsed(since, within_window_at) <= each.window:
                suspects[each.party] = None
        return len({each.party for each in there}), tuple(suspects)


def new_governor(policy: GovernorPolicy, now: float) -> Governor:
    """One that has seen nothing yet, with a full bucket."""
    return Governor(policy, float(policy.deaths), now)


def _most(suspects: tuple[str, ...], parties: int) -> bool:
    return 2 * len(suspects) > parties
