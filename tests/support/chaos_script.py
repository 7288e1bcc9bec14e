"""What can happen to the worker of `Chaos`, and the script that makes it happen."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from stepwarden.core.burying import buried
from stepwarden.core.commands import command
from stepwarden.core.evidence import (
    EndedStep,
    Exit,
    Lease,
    ProcessId,
    Step,
    Work,
)
from stepwarden.core.lifecycle import LIVE, State
from stepwarden.core.progress_seen import progressed
from stepwarden.daemon import gather

from support.chaos import Chaos
from support.chaos_survival import (
    daemon_ends,
    daemon_is_killed,
    gate_stays_shut,
    hold_next,
    its_group,
    wait_over,
)
from support.chaos_world import (
    BATCHES,
    CPUS,
    EPSILON,
    PHASES,
    POLICIES,
    RANKS,
    STATES,
    Rank,
)


def small_time(world: Chaos, first: int, _: int) -> None:
    world.go(first / 255)


def medium_time(world: Chaos, first: int, _: int) -> None:
    world.go(first / 255 * 4.0)


def long_time(world: Chaos, first: int, _: int) -> None:
    world.go(first / 255 * 40.0)


def look_at_once(world: Chaos, first: int, _: int) -> None:
    """The edge wakes the loop before it is due."""
    world.go(first / 255 * 0.05)
    world.turn()


def late_wake(world: Chaos, first: int, second: int) -> None:
    world.stand_still(first / 255 * (20.0 if second < 40 else 0.9))


def attach(world: Chaos, first: int, second: int) -> None:
    name = RANKS[first % len(RANKS)]
    if world.begun and world.state.lifecycle in LIVE and name not in world.pages.ranks:
        phase = "loading" if second < 100 else "idle"
        rank = Rank(name, world.next_pid(), world.now, phase, page=second % 5 != 0)
        rank.cpu_at = world.now
        world.pages.ranks[name] = rank
        send(world, rank)


def send(world: Chaos, rank: Rank) -> None:
    if world.life is not None and not rank.frozen:
        beat = rank.beat(world.now)
        rank.sent.append(beat)
        gather.take_beat(world.life, beat, world.now)


def beat_of_each(world: Chaos, first: int, second: int) -> None:
    for rank in world.pages.ranks.values():
        send(world, rank)
    del first, second


def stale_beat(world: Chaos, first: int, second: int) -> None:
    """Late, duplicate, out of order, or of a former life's process."""
    rank = world.some_rank(second)
    stale = list(world.old_beats) + (rank.sent[-10:] if rank else [])
    if stale and world.life is not None:
        beat = stale[first % len(stale)]
        memory = world.life.ranks.get(beat.rank)
        known = memory.beats if memory else None
        if known is None or memory is None or known.bye:
            return  # a first beat, or one after a bye, is believed
        gather.take_beat(world.life, beat, world.now)
        if memory.beats is not None:
            assert (memory.beats.step, memory.beats.beat_at) == (known.step, known.beat_at)


def begin_step(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and not rank.frozen and not rank.bye and len(rank.open) < 3:
        rank.begun += 1
        batch = BATCHES[second % len(BATCHES)]
        rank.open.append(Step(rank.begun, world.now, batch, None, "decode"))


def end_step(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and rank.open and not rank.frozen:
        step = rank.open.pop(0 if second < 200 else -1)
        rank.ended.append(EndedStep(step.number, world.now - step.begin))


def whole_steps(world: Chaos, first: int, second: int) -> None:
    """Healthy work: a few steps, each within its budget, with beats between."""
    for _ in range(1 + first % 4):
        for number in range(len(RANKS)):
            begin_step(world, number, second)
        world.go(0.2)
        for number in range(len(RANKS)):
            end_step(world, number, 0)
        beat_of_each(world, 0, 0)


def freeze(world: Chaos, first: int, _: int) -> None:
    rank = world.some_rank(first)
    if rank:
        rank.frozen = True


def thaw(world: Chaos, first: int, second: int) -> None:
    for rank in world.pages.ranks.values():
        rank.frozen = False
    beat_of_each(world, first, second)


def change_phase(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and not rank.frozen:
        change_to(rank, PHASES[second % len(PHASES)], world.now)


def change_to(rank: Rank, phase: str, now: float) -> None:
    if phase != rank.phase:
        rank.phase, rank.phase_since = phase, now


def all_loaded(world: Chaos, first: int, second: int) -> None:
    for rank in world.pages.ranks.values():
        change_to(rank, "idle", world.now)
    beat_of_each(world, first, second)


def change_cpu(world: Chaos, first: int, second: int) -> None:
    for rank in world.pages.ranks.values():
        rank.burn(world.now)
        rank.percent = CPUS[first % len(CPUS)]
        rank.state = STATES[second % len(STATES)] if second > 200 else "R"


def lease_or_give_back(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank is None or rank.frozen:
        return
    had = world.leased.setdefault(rank.name, [])
    if rank.lease is not None:
        if had:  # else it was never shown to the daemon of today
            had[-1] = replace(rank.lease, end=world.now)
        rank.lease = None
        send(world, rank)
    elif not had or had[-1].begin < world.now:
        before = world.deadlines()
        rank.lease = Lease("swap", world.now, second / 4.0)
        had.append(rank.lease)
        send(world, rank)
        after = world.deadlines()
        for key in before.keys() & after.keys():
            if key[1] in {"heartbeat", "lease"}:  # these begin anew
                continue
            assert after[key] >= before[key] - EPSILON, "a lease brought a deadline nearer"


def queue_work(world: Chaos, first: int, _: int) -> None:
    rank = world.pages.ranks.get("core")
    if rank is not None and not rank.frozen:
        had = rank.work
        since = had.since if had and had.unfinished else world.now
        rank.work = Work(first % 4, since, first, world.now)


def say_bye(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and second < 60:
        rank.bye = True
        rank.open.clear()
        send(world, rank)


def hide_page(world: Chaos, first: int, _: int) -> None:
    rank = world.some_rank(first)
    if rank:
        rank.page = not rank.page


def lose_rank(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and world.life and rank.name in world.life.ranks and second < 80:
        world.life.ranks[rank.name].lost = True
        world.turn()


def main_ends(world: Chaos, first: int, second: int) -> None:
    life = world.life
    if life and world.begun and world.state.lifecycle in LIVE and second < 120:
        life.exit = Exit(code=first) if first % 3 else Exit(signal=1 + first % 31)
        world.turn()


def spawn_fails(world: Chaos, _: int, second: int) -> None:
    life = world.life
    if life and world.state.lifecycle is State.STARTING and second < 60 and not world.attached:
        life.main, life.spawn_error = None, "exec: no such file"
        world.turn()


def operator(world: Chaos, first: int, second: int) -> None:
    word = ("start", "restart", "start", "stop")[first % 4]
    if second > 150 and word != "start":
        return
    outcome = command(world.state, word, world.now)
    if outcome.refusal is None:
        world.wanted = word != "stop"
        world.given_up = world.given_up and word == "stop"
        world.died = world.died and word == "stop"
        if world.state.lifecycle not in LIVE or word == "restart":
            world.streak, world.deaths = 0, []
    else:
        assert world.state.leftovers
    world.take(outcome)


def new_policy(world: Chaos, first: int, second: int) -> None:
    policy = POLICIES[first % len(POLICIES)] if second < 128 else POLICIES[0]
    world.policy = replace(policy, attached=world.attached)
    world.turn()


def burial(world: Chaos, first: int, _: int) -> None:
    """The edge reports on a tree: ended, or all but something that cannot be killed."""
    if world.burial_since is not None:
        stuck = first < 25
        world.bury(frozenset({ProcessId(77, 7)} if stuck else ()))
    elif world.state.leftovers and first > 128:
        world.bury(frozenset())


def stray_report(world: Chaos, first: int, second: int) -> None:
    """A report of a burial that nobody waits for changes nothing."""
    if world.burial_since is None and not world.state.leftovers:
        outcome = buried(world.state, world.policy, frozenset(), world.now, 0.0)
        assert outcome.state == world.state
        assert not outcome.actions
    del first, second


def scrape(world: Chaos, first: int, second: int) -> None:
    """Its own counters are read: they move or stand, with work or without, or say nothing."""
    before = world.outside.progress
    counter = 0.0 if before is None or before.counter is None else before.counter
    if world.begun:
        shown = None if first < 20 else counter + first % 2
        work = None if first < 20 else float(second % 3)
        world.outside.progress = progressed(before, shown, work, world.now)
        world.outside.idle = second > 100


def probe_passes(world: Chaos, _: int, __: int) -> None:
    world.outside.probe_ok = world.begun


def with_beats(world: Chaos, seconds: float) -> None:
    """Time passes, and nothing is silent."""
    for _ in range(int(seconds * 2)):
        beat_of_each(world, 0, 0)
        world.go(0.5)


def requests_wait(world: Chaos, first: int, second: int) -> None:
    """An engine core has work, and no step begins for a while."""
    core = world.pages.ranks.get("core")
    if core is None or core.frozen or not world.state.ready:
        return
    for rank in world.pages.ranks.values():
        while rank.open and not rank.frozen:
            end_step(world, sorted(world.pages.ranks).index(rank.name), 0)
    all_loaded(world, 0, 0)
    core.work = Work(3, world.now, 1, world.now)
    with_beats(world, 6.0 + first / 64)
    if second > 80:
        core.work = Work(0, world.now, 1, world.now)
        with_beats(world, 1.0)


def drains(world: Chaos, first: int, second: int) -> None:
    rank = world.some_rank(first)
    if rank and not rank.frozen and world.state.ready:
        change_to(rank, "draining", world.now)
        with_beats(world, 4.0 + first / 64)
        if second > 80:
            change_to(rank, "idle", world.now)
            with_beats(world, 1.0)


def counter_stands(world: Chaos, first: int, second: int) -> None:
    """With work present; under the policy that looks at it."""
    if world.state.ready and world.begun:
        world.policy = replace(POLICIES[-1], attached=world.attached)
        scrape(world, 102, 1 if second < 150 else 101)
        with_beats(world, 3.0 + first / 64)
        scrape(world, 101, 1)
        with_beats(world, 1.0)


Happening = Callable[[Chaos, int, int], None]

_WEIGHTS: tuple[tuple[Happening, int], ...] = (
    (small_time, 6),
    (medium_time, 6),
    (long_time, 1),
    (look_at_once, 3),
    (late_wake, 2),
    (attach, 8),
    (beat_of_each, 10),
    (stale_beat, 5),
    (begin_step, 8),
    (end_step, 7),
    (whole_steps, 5),
    (freeze, 1),
    (thaw, 3),
    (change_phase, 1),
    (all_loaded, 4),
    (change_cpu, 2),
    (lease_or_give_back, 2),
    (queue_work, 2),
    (say_bye, 1),
    (hide_page, 1),
    (lose_rank, 1),
    (main_ends, 1),
    (spawn_fails, 1),
    (operator, 3),
    (new_policy, 2),
    (burial, 8),
    (stray_report, 1),
    (wait_over, 6),
    (hold_next, 1),
    (gate_stays_shut, 1),
    (scrape, 2),
    (probe_passes, 2),
    (requests_wait, 1),
    (drains, 1),
    (counter_stands, 1),
    (its_group, 1),
    (daemon_is_killed, 1),
    (daemon_ends, 1),
)


def _mixed() -> tuple[Happening, ...]:
    table = [happening for happening, weight in _WEIGHTS for _ in range(weight)]
    # Neighbouring codes should mean different things, the same ones in each run.
    random.Random(2).shuffle(table)
    return tuple(table)


WHAT = _mixed()


def play(world: Chaos, script: bytes) -> None:
    """Three bytes an event: which, and two numbers. Zeros do nothing."""
    for place in range(0, len(script) - 2, 3):
        code, first, second = script[place : place + 3]
        if code:
            happen = WHAT[code % len(WHAT)]
            world.events += 1
            world.counts[happen.__name__] = world.counts.get(happen.__name__, 0) + 1
            happen(world, first, second)
