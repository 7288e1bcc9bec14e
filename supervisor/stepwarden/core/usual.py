"""What a step of its size usually takes, learned from the steps that ended.

Size is the number of scheduled tokens. Sizes share a row up to the next power of two, and each row
keeps a running mean. Odd steps must not spoil it: one step counts for at most `CREDIT` times what
is usual, one beyond `HUNG` times for nothing; but the third in a row beyond `CREDIT` is a new
regime (another clock, another neighbour on the host) and is learned as it is.

Beside the rows stands one factor, `slow`: by how much the last few steps were slower than usual. It
follows within some eight steps, long before the means do.

The numbers were chosen on step traces of a real engine; docs/judgement.md shows what they do.
"""

from __future__ import annotations

from dataclasses import dataclass

ROWS = 18
"""Rows for 1, 2, 4 ... 131072 tokens; whatever is larger shares the last one."""
MEMORY = 32
"""A mean follows with this many steps."""
CREDIT = 2.0
HUNG = 10.0
REGIME_STEPS = 3
SLOW_MEMORY = 8
SLOW_MAX = 4.0


@dataclass(frozen=True, slots=True)
class Row:
    """What is known of one row: mean seconds of a step, from how many."""

    mean: float
    steps: int


@dataclass(frozen=True, slots=True)
class Guess:
    """What a step of some size should take: seconds, and the grounds for people.

    `steps`: how many steps of its own row are behind it; 0: reasoned from other rows.
    """

    seconds: float
    steps: int
    grounds: str


@dataclass(frozen=True, slots=True)
class Usual:
    """All that was learned of one worker's steps. A value: `learn` gives the next one.

    `slow` is held within 1 and `SLOW_MAX`. `over` counts the last steps in a row that took more
    than `CREDIT` times their usual time; `lived`: steps that ended in this life.
    """

    rows: tuple[Row | None, ...] = (None,) * ROWS
    slow: float = 1.0
    over: int = 0
    lived: int = 0

    def new_life(self) -> Usual:
        """What holds for the next incarnation: the rows, and none of the moods of this one."""
        return Usual(self.rows)

    def learn(self, num_tokens: int, seconds: float, before: int | None = None) -> Usual:
        """Take in one ended step. The first of a life teaches nothing (graph capture, JIT).

        A size below 1 counts as 1; a time that is not above 0 is passed over. `before`: how many
        steps this life had before it, for one who is not shown every step; None: `lived`.
        """
        lived = 1 + (self.lived if before is None else before)
        if lived == 1 or not seconds > 0.0:
            return Usual(self.rows, self.slow, self.over, lived)
        place = row_of(num_tokens)
        guess = self._seconds(place)
        if guess is None:
            return Usual(self._with_step(place, seconds), self.slow, 0, lived)
        over = self.over + 1 if seconds > CREDIT * guess else 0
        counted = seconds
        if over and over < REGIME_STEPS:
            if seconds > HUNG * guess:
                return Usual(self.rows, self.slow, over, lived)
            counted = CREDIT * guess
        slow = self._slower(seconds / guess)
        return Usual(self._with_step(place, counted), slow, over, lived)

    def guess(self, num_tokens: int) -> Guess | None:
        """What a step of this size usually takes; None where nothing has been learned at all."""
        place = row_of(num_tokens)
        seconds, row = self._seconds(place), self.rows[place]
        if seconds is None:
            return None
        if row is not None:
            grounds = f"usual {seconds:.3g} s of {row.steps} steps up to {size_of(place)} tokens"
            return Guess(seconds, row.steps, grounds)
        return Guess(seconds, 0, f"about {seconds:.3g} s, reasoned from steps of other sizes")

    def _seconds(self, place: int) -> float | None:
        row = self.rows[place]
        return self._reasoned(place) if row is None else row.mean

    def _reasoned(self, place: int) -> float | None:
        """For a row never seen: as its smaller neighbour by size, at most as the bigger one."""
        below = [(i, row.mean) for i in range(place) if (row := self.rows[i]) is not None]
        above = [row.mean for row in self.rows[place + 1 :] if row is not None]
        if not below:
            return above[0] if above else None
        nearest, mean = below[-1]
        by_size = mean * float(2 ** (place - nearest))
        return max(mean, min([by_size, *above[:1]]))

    def _slower(self, ratio: float) -> float:
        slow = self.slow + (min(ratio, SLOW_MAX) - self.slow) / SLOW_MEMORY
        return min(max(slow, 1.0), SLOW_MAX)

    def _with_step(self, place: int, seconds: float) -> tuple[Row | None, ...]:
        """The rows, with a step of so many seconds in one of them."""
        rows = list(self.rows)
        before = rows[place]
        if before is None:
            rows[place] = Row(seconds, 1)
        else:
            steps = before.steps + 1
            mean = before.mean + (seconds - before.mean) / min(steps, MEMORY)
            rows[place] = Row(mean, steps)
        return tuple(rows)


def row_of(num_tokens: int) -> int:
    """The row of a size: 0 for one token, then one for each power of two."""
    return min(max(num_tokens - 1, 0).bit_length(), ROWS - 1)


def size_of(place: int) -> int:
    """The largest size of a row, in tokens."""
    return 1 << place
