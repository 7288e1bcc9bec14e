"""What happens to the worker of `Chaos` from outside: waits, its group, the ends of the daemon.

A daemon that was killed leaves its last note, or the one before it where the newest was lost; the
host tells what there is of the worker, and `resume` has to make the right thing of both.
"""

from __future__ import annotations

from dataclasses import replace

from stepwarden.core.awareness import Awareness
from stepwarden.core.commands import end_with_daemon, give_up, regroup
from stepwarden.core.evidence import Exit, ProcessId
from stepwarden.core.lifecycle import ENDING, LIVE, State
from stepwarden.core.resume import Found, resume
from stepwarden.core.worker import WorkerState

from support.chaos import Chaos
from support.chaos_daemon import Note, Outside, check_resumed, stays_failed
from support.chaos_world import Pages


def wait_over(world: Chaos, _: int, second: int) -> None:
    """What a start waited for is there; or its platform has started it, in time or too late."""
    life, outside = world.life, world.outside
    failed = world.state.lifecycle is State.FAILED and world.state.cause == "platform"
    if life is None or not outside.held or outside.shut or second > 200:
        return
    if world.state.lifecycle is State.STARTING or failed:
        life.main = ProcessId(world.next_pid(), 1)
        outside.held, outside.began_at = "", world.now
        world.started_from = world.now
        world.begun_by_platform = failed
        world.turn()


def hold_next(world: Chaos, first: int, _: int) -> None:
    world.hold_next = first > 100


def gate_stays_shut(world: Chaos, _: int, second: int) -> None:
    if world.outside.held and world.state.lifecycle is State.STARTING and second < 100:
        world.outside.shut = "port 8000 is taken"
        world.turn()


def its_group(world: Chaos, first: int, second: int) -> None:
    """Another member has died, or the budget of the group is spent."""
    if 60 < second < 220:
        return
    if second <= 60:
        world.take(regroup(world.state, world.now, "with its group"))
        return
    state = world.state
    meant = LIVE | ENDING | {State.RESTARTING}
    if (state.lifecycle in meant or state.leftovers) and not state.stop_wanted:
        world.given_up = True
    world.take(give_up(state, world.now, "its group gave up"))
    del first


def daemon_is_killed(world: Chaos, first: int, second: int) -> None:
    """Its worker lives on, ends meanwhile, or is found half ended."""
    seconds = first / 255 * 30.0
    next_daemon(world, seconds, what_is_found(world, second), lost=first % 4 == 0)
    life = world.life
    if world.state.lifecycle is State.ADOPTED and life is not None and second % 16 == 0:
        life.exit = Exit()
        world.turn()


def what_is_found(world: Chaos, number: int) -> Found:
    state = world.state
    if world.attached and world.outside.held and world.life is not None:
        # Its invitation lies there, and is on record.
        return Found.LIFE if state.lifecycle in LIVE else Found.REST
    if not world.begun or (number % 8 == 1 and not state.leftovers):
        return Found.NOTHING
    return Found.REST if state.leftovers or number % 8 == 2 else Found.LIFE


def daemon_ends(world: Chaos, first: int, second: int) -> None:
    """It takes its worker with it, as far as it comes."""
    if second < 128:
        return
    world.take(end_with_daemon(world.state, world.now))
    world.ending = True
    world.go(0.3)
    if world.burial_since is not None and second > 150:
        world.bury(frozenset({ProcessId(77, 7)} if second > 230 else ()))
    daemon_is_killed(world, first, second)


def next_daemon(world: Chaos, seconds: float, found: Found, *, lost: bool) -> None:
    """The daemon is gone, and another one starts; `lost`: the newest note with it."""
    note = world.notes.last[0 if lost else -1]
    lost = note is not world.notes.last[-1]
    life, highest = world.life, world.state.incarnation if world.begun else 0
    forget(world, note, found, seconds)
    kept = note.kept()
    world.state = WorkerState("w", incarnation=max(highest, kept.incarnation))
    world.state = replace(world.state, deaths=kept.deaths, false_alarms=kept.false_alarms)
    spread = (world.events % 21 - 10) / 10.0
    outcome = resume(world.policy, world.now, kept, found, incarnation=highest, spread=spread)
    started_since = highest > kept.incarnation
    check_resumed(outcome.state, kept, found, lost=lost, younger=started_since)
    assert lost or (outcome.state.wish != "down") == world.wanted
    world.wanted = outcome.state.wish != "down"
    world.died = world.died and not started_since
    world.given_up = not started_since and (world.given_up or stays_failed(kept))
    if found is Found.NOTHING:
        world.life = None
    elif life is not None:
        world.life = replace(life, ranks={})
        world.first_ready = None if started_since else world.first_ready
    if any(event.to_state == "RESTARTING" for event in outcome.events):
        world.check_restart_budget(world.state, outcome)
    world.take(outcome)


def forget(world: Chaos, note: Note, found: Found, seconds: float) -> None:
    """What the daemon knew is gone with it, but for its notes; time passes meanwhile."""
    world.move(world.now + seconds)
    world.expected = world.now
    world.awareness, world.pauses = Awareness(), []
    world.known, world.opened = {}, set()
    world.burial_since, world.ending, world.hold_next = None, False, False
    if note is not world.notes.last[-1]:
        world.wanted, world.given_up, world.died = note.wanted, note.given_up, note.died
    world.streak, world.deaths = note.streak, list(note.deaths)
    world.first_ready = note.first_ready
    world.tree_alive = found is not Found.NOTHING
    world.adopted_at = world.back_at = world.started_from = world.now
    leased = frozenset(rank.name for rank in world.pages.ranks.values() if rank.lease)
    world.outside = replace(world.outside, progress=None, began_at=None, leased=leased)
    shown = [rank for rank in world.pages.ranks.values() if rank.page]
    world.leased = {rank.name: [rank.lease] for rank in shown if rank.lease is not None}
    if found is Found.NOTHING:
        world.pages, world.outside = Pages(), Outside()
