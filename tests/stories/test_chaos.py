"""The daemon is killed again and again; the processes on the host are right after each time.

STEPWARDEN_SEED repeats a story as far as its plan goes; when things happen is the machine's.
"""

from __future__ import annotations

import os
import random
import time

import pytest
from stepwarden.replay.files import files_of, records_of
from stepwarden.replay.play import play
from support.survival import Survival, variations
from support.troupe import Troupe
from support.waiting import wait_for

PLAN = (
    "hit",
    "hit at start",
    "hit",
    "full",
    "trees die while it is down",
    "hit",
    "trees die",
    "hit",
    "hit at start",
    "still",
)


CGROUPS = pytest.mark.parametrize("hidden", [False, True], ids=["cgroups", "no-cgroups"])


@CGROUPS
@pytest.mark.timeout(300)
def test_chaos_ten_rounds(hidden: bool) -> None:
    """Each kind of mischief at least once."""
    live_through(10, hidden)


@CGROUPS
@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_chaos_a_hundred_rounds(hidden: bool) -> None:
    """O-PROC-2..6, O-STATE-1..3 all at once, for a long time: two hundred rounds in all."""
    live_through(100, hidden)


def live_through(rounds: int, hidden: bool) -> None:
    seed = int(os.environ.get("STEPWARDEN_SEED") or random.SystemRandom().randrange(1 << 31))
    print(f"STEPWARDEN_SEED={seed}")
    began = time.monotonic()
    with Troupe(hide_cgroups=hidden) as troupe:
        survival = Survival(troupe, seed)
        kinds = variations(survival)
        troupe.post_bystanders()
        survival.settle()
        survival.check()
        for count in range(rounds):
            kind = PLAN[count % len(PLAN)]
            kind = kind if kind in kinds else "hit"
            survival.done = [f"round {count}: {kind}"]
            try:
                kinds[kind]()
                survival.settle()
                survival.check()
            finally:
                print(f"{time.monotonic() - began:6.1f} s  {'; '.join(survival.done)}")
        judge_again(troupe)


def judge_again(troupe: Troupe) -> None:
    """What all these daemons recorded, as far as the disk took it, gives the same verdicts."""

    def judged() -> int:
        own, _ = play(records_of(files_of(troupe.state())), None)
        assert own.unlike == []
        return own.calls

    # Most daemons live for a second or two, and lose the last one; this one goes on.
    wait_for(lambda: judged() > 20, 60, "the last daemon records nothing")
