"""A recording judged again: the same by the same rules, and what other rules would have changed."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from stepwarden import core
from stepwarden.core.budget import Formula
from stepwarden.core.calls import CALLS
from stepwarden.core.event import Kind
from stepwarden.core.evidence import WorkerEvidence
from stepwarden.core.policy import RestartPolicy, WorkerPolicy
from stepwarden.core.worker import Outcome
from stepwarden.replay.codec import UnreadableError
from stepwarden.replay.compare import Sort, differences, marks
from stepwarden.replay.lines import Head, Record, Writer, read
from stepwarden.replay.play import Played, play
from support.chaos import Chaos
from support.chaos_script import play as play_script
from support.fake_world import World, attach_at

HEAD = Head("run", "1", 1.75e9, 1000.0)
RESTART = RestartPolicy(delay=2.0, jitter=0.0, limit=3)


def policy(base: float) -> WorkerPolicy:
    step = Formula(base, 0.0, maximum=600.0)
    return WorkerPolicy("w", step=step, window=10.0, restart=RESTART, first_step=1.0)


class Recorded(World):
    """A world of which each call into the core is recorded."""

    def __init__(self, rules: WorkerPolicy, on_spawn: Callable[[World], None]) -> None:
        self.writer = Writer()
        self.lines = self.writer.begin(HEAD)
        super().__init__(rules, on_spawn)

    def _take(self, outcome: Outcome) -> None:
        self.lines += self.writer.write(outcome.state, outcome.call, outcome.events)
        super()._take(outcome)

    @property
    def records(self) -> list[Record]:
        return list(read(self.lines))


def slow_then_hung() -> Recorded:
    """At 10 s a step of 25 s that computes; at 60 s one that hangs for ever."""
    world = Recorded(policy(20.0), attach_at(0.5, phase="idle", percent=0.0))
    world.step(10.0, 25.0, 8)
    world.at(10.0, lambda: world.rank().use_cpu(90.0))
    world.at(36.0, lambda: world.rank().use_cpu(0.0))
    world.at(60.0, lambda: world.rank().begin(8))
    world.run(150.0)
    return world


def sorts(played: Played | None) -> list[tuple[Sort, float]]:
    assert played is not None
    return [(mark.sort, round(mark.at - 1000.0)) for mark in marks(played.happened)]


def test_the_same_rules_give_the_same() -> None:
    world = slow_then_hung()
    own, other = play(world.records, None)
    assert own.unlike == []
    assert other is None
    assert [told.event for told in own.happened] == [event for _, event in world.history[1:]]
    assert sorts(own) == [
        (Sort.ALARM, 30),
        (Sort.ALARM, 80),
        (Sort.DEATH, 90),
        (Sort.RESTART, 92),
    ]


def test_the_same_rules_from_a_file_change_nothing() -> None:
    own, other = play(slow_then_hung().records, {"w": policy(20.0)})
    assert other is not None
    assert differences(marks(own.happened), marks(other.happened)) == []


def test_larger_budgets_alarm_later_and_a_death_that_was_is_no_more() -> None:
    """The hung step is not dead by then; the recording ends with its end."""
    own, other = play(slow_then_hung().records, {"w": policy(26.0)})
    found = differences(marks(own.happened), marks(other.happened if other else []))
    changes = [
        (
            (one.before or one.after).sort,  # type: ignore[union-attr]
            one.before is not None,
            one.after is not None,
        )
        for one in found
    ]
    assert changes == [
        (Sort.ALARM, True, False),  # the slow step is well within 26 s
        (Sort.ALARM, True, True),  # the hung one is late at 86 s
        (Sort.DEATH, True, False),  # and not yet judged when the recorded life ended
        (Sort.RESTART, True, False),
    ]
    assert sorts(other) == [(Sort.ALARM, 86)]


def test_smaller_budgets_kill_earlier_and_the_next_life_is_judged_again() -> None:
    """What is recorded of a life after its death by the other rules says nothing."""
    world = Recorded(policy(20.0), attach_at(0.5, phase="idle", percent=0.0))
    world.at(20.0, lambda: world.rank().begin(8))
    world.at(39.0, lambda: world.rank().end(1))  # by 20 s it was never late
    world.at(60.0, lambda: world.rank().begin(8))  # hangs, dead at 90 s, again at 92 s
    world.at(100.0, lambda: world.rank().begin(8))
    world.run(140.0)
    own, other = play(world.records, {"w": policy(1.0)})
    assert own.unlike == []
    assert sorts(own)[:3] == [(Sort.ALARM, 80), (Sort.DEATH, 90), (Sort.RESTART, 92)]
    told = sorts(other)
    # The loop of then looked once a second, and not where these rules would have had it look.
    assert told == [
        (Sort.ALARM, 22),
        (Sort.DEATH, 32),
        (Sort.RESTART, 92),
        (Sort.ALARM, 102),
        (Sort.DEATH, 112),
        (Sort.RESTART, 134),
    ]


def test_one_that_gave_up_stays_so_until_the_operator_starts_it() -> None:
    world = Recorded(policy(20.0), attach_at(0.5, phase="idle", percent=0.0))
    world.at(20.0, lambda: world.rank().begin(8))
    world.exit(80.0, code=1)
    world.run(120.0)
    impatient = replace(policy(1.0), restart=replace(RESTART, limit=1))
    _, other = play(world.records, {"w": impatient})
    assert sorts(other) == [(Sort.ALARM, 22), (Sort.DEATH, 32)]


def test_each_daemon_of_a_recording_begins_afresh_and_has_its_own_time() -> None:
    """The second one runs after a boot: its monotonic clock begins anew, the other rules too."""
    lines: list[str] = []
    for run, wall in (("one", 1.75e9), ("two", 1.75e9 + 86_400.0)):
        world = slow_then_hung()
        lines += Writer().begin(Head(run, "1", wall, 1000.0)) + world.lines[1:]
    own, other = play(read(lines), {"w": policy(26.0)})
    assert own.unlike == []
    assert other is not None
    alarms = [mark for mark in marks(own.happened) if mark.sort is Sort.ALARM]
    assert [round((mark.wall or 0.0) - 1.75e9) for mark in alarms] == [30, 80, 86_430, 86_480]
    assert sorts(other) == [(Sort.ALARM, 86)] * 2


def test_a_state_that_no_call_explains_is_told() -> None:
    world = slow_then_hung()
    # A daemon that changed a state behind the core's back would write this line.
    middle = len(world.lines) // 4
    state = replace(world.state, deaths=7)
    lines = [*world.lines[:middle], *Writer().write(state, None, ()), *world.lines[middle:]]
    own, _ = play(read(lines), None)
    assert "recorded with another" in own.unlike[0]


def test_other_events_than_recorded_are_told() -> None:
    world = slow_then_hung()
    lines = [line.replace("nothing is late", "something is late") for line in world.lines]
    assert lines != world.lines
    own, _ = play(read(lines), None)
    assert own.unlike


def test_a_call_that_is_not_known_is_refused() -> None:
    lines = [line.replace('"f":"advance"', '"f":"promote"') for line in slow_then_hung().lines]
    with pytest.raises(UnreadableError, match="unknown call 'promote'"):
        play(read(lines), None)


class RecordedChaos(Chaos):
    """The world of the property tests, of which each call into the core is recorded."""

    def __init__(self, *, attached: bool) -> None:
        self.writer = Writer()
        self.lines = self.writer.begin(HEAD)
        super().__init__(attached=attached)

    def take(self, outcome: Outcome, seen: WorkerEvidence | None = None) -> None:
        if outcome.call is None:  # another daemon begins
            self.writer = Writer()
            self.lines += self.writer.begin(replace(HEAD, run=f"run {len(self.lines)}"))
        self.lines += self.writer.write(outcome.state, outcome.call, outcome.events)
        super().take(outcome, seen)


@pytest.mark.parametrize("seed", range(20))
def test_any_weather_is_judged_the_same_again(seed: int) -> None:
    """The scripts of the property tests: exits, pauses, commands, leases, burials, adoptions."""

    world = RecordedChaos(attached=seed % 7 == 6)
    script = bytes((seed * 7919 + place * 104729) % 251 for place in range(1200))
    play_script(world, script)
    own, _ = play(read(world.lines), None)
    assert own.calls > 100
    assert own.unlike == []
    kinds = {told.event.kind for told in own.happened}
    assert Kind.TRANSITION in kinds


def test_each_recorded_function_names_all_that_it_takes_in_its_order() -> None:
    """The names stand in its decorator; with wrong ones a recording would hold wrong things."""
    told = {}
    for module in Path(core.__path__[0]).glob("*.py"):
        for node in ast.parse(module.read_text(encoding="utf-8")).body:
            for made in getattr(node, "decorator_list", ()):
                if isinstance(made, ast.Call) and ast.unparse(made.func) == "recorded":
                    assert isinstance(node, ast.FunctionDef)
                    told[node.name] = [ast.literal_eval(name) for name in made.args]
    assert told.keys() == CALLS.keys() - {"advance"}
    for name, names in told.items():
        assert names == list(inspect.signature(CALLS[name]).parameters)[1:], name
