"""What holds in any weather: random interleavings of everything that can happen to a worker.

The invariants are in support/chaos.py, next to the model that they are checked against. The
scripts are drawn by Hypothesis, so that a failure is shrunk to the events that matter (zeros in a
script do nothing), and the same ones are drawn in each run. `make soak` plays others: some that
are the same each time, so that it tells of the change, and as many new ones, so that each run hunts
on new ground. It prints where the new ones begin; STEPWARDEN_SEED plays those again.
"""

from __future__ import annotations

import os
import random
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st
from support.chaos import Chaos
from support.chaos_script import WHAT, play

EVENTS = 100_000
SCRIPT_BYTES = 1200
EXAMPLES = 280
SEEDS_TO_SOAK = 1_250  # each time; about 40 s of one core
FIXED_SEED = 20_000


def readable(script: bytes) -> str:
    """What a script says, for the report of a failure."""
    triples = (script[place : place + 3] for place in range(0, len(script) - 2, 3))
    return "\n".join(
        f"{WHAT[code % len(WHAT)].__name__} {first} {second}"
        for code, first, second in triples
        if code
    )


def test_the_invariants_hold_through_100_000_events(capsys: pytest.CaptureFixture[str]) -> None:
    happened: Counter[str] = Counter()
    told: Counter[str] = Counter()
    turns = 0

    @settings(
        max_examples=EXAMPLES,
        derandomize=True,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.binary(min_size=SCRIPT_BYTES, max_size=SCRIPT_BYTES), st.integers(0, 6))
    def run(script: bytes, shape: int) -> None:
        nonlocal turns
        world = Chaos(attached=shape == 6)
        try:
            play(world, script)
        except Exception:
            note(readable(script))
            raise
        happened.update(world.counts)
        told.update(world.seen_events)
        turns += world.turns

    run()
    events = sum(happened.values())
    with capsys.disabled():
        print(f"\n{events} events, {turns} turns of the loop, {sum(told.values())} told")
    assert events >= EVENTS
    check_variety(happened, told)


def check_variety(happened: Counter[str], told: Counter[str]) -> None:
    """The weather was rough enough: everything happened, and every verdict was reached."""
    assert set(happened) == {each.__name__ for each in WHAT}
    for cause in ("step", "startup", "heartbeat", "lease", "scheduler", "drain", "progress"):
        assert told[f"transition UNHEALTHY {cause}"]
        assert told[f"transition DEAD {cause}"]
        assert told[f"retry  {cause}"]
        assert told[f"false_alarm  {cause}"]
    for cause in ("exit", "rank_exit", "spawn"):
        assert told[f"transition DEAD {cause}"]
    assert told["transition FAILED gate"]
    assert told["transition FAILED platform"]
    assert told["adopted_unseen"]
    assert told["transition ADOPTED"] > 200
    assert told["transition FAILED unkillable"]
    assert told["transition RESTARTING unkillable"]
    assert sum(number for what, number in told.items() if what.startswith("transition FAILED")) > 50


def soak(first: int) -> int:
    """Play the scripts of the seeds from `first` on; how many events that were."""
    events = 0
    for seed in range(first, first + SEEDS_TO_SOAK):
        world = Chaos(attached=seed % 7 == 6)
        try:
            play(world, random.Random(seed).randbytes(SCRIPT_BYTES))
        except Exception as error:
            error.add_note(f"repeat it with STEPWARDEN_SEED={seed}")
            raise
        events += world.events
    return events


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_invariants_hold_through_scripts_that_stay_the_same() -> None:
    assert soak(FIXED_SEED) > 400_000


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_the_invariants_hold_through_scripts_that_nobody_has_played(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = os.environ.get("STEPWARDEN_SEED")
    first = int(told) if told else random.SystemRandom().randrange(2**32)
    with capsys.disabled():
        print(f"\n{SEEDS_TO_SOAK} new scripts: STEPWARDEN_SEED={first} plays them again")
    soak(first)
