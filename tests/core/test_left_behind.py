"""A worker whose former life was left behind by a daemon that died."""

from __future__ import annotations

from dataclasses import replace

import pytest
from stepwarden.core.action import EndTree, Spawn
from stepwarden.core.burying import buried
from stepwarden.core.commands import command
from stepwarden.core.evidence import ProcessId
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.resume import Found, resume

POLICY = WorkerPolicy("w")
NOBODY: frozenset[ProcessId] = frozenset()
STUCK = frozenset({ProcessId(77, 1)})


def test_what_is_left_behind_is_ended_before_a_life_begins() -> None:
    first = resume(POLICY, 100.0, found=Found.REST)
    assert first.state.lifecycle is State.STOPPING
    assert first.actions == [EndTree(0)]
    assert [event.incarnation for event in first.events] == [""]  # it was never told
    then = buried(first.state, POLICY, NOBODY, 103.0, 0.0)
    assert then.state.lifecycle is State.STARTING
    assert then.actions == [Spawn(1)]
    assert then.state.spawned_at == 103.0


def test_nothing_is_started_beside_what_cannot_be_killed() -> None:
    first = resume(POLICY, 100.0, found=Found.REST)
    stuck = buried(first.state, POLICY, STUCK, 120.0, 0.0)
    assert stuck.state.lifecycle is State.FAILED
    assert stuck.actions == []
    assert command(stuck.state, "start", 121.0).refusal is not None
    freed = buried(stuck.state, POLICY, NOBODY, 150.0, 0.0)
    assert freed.state.lifecycle is State.RESTARTING


@pytest.mark.parametrize("word", ["stop", "start"])
def test_the_operator_has_the_last_word_meanwhile(word: str) -> None:
    first = resume(replace(POLICY, autostart=word == "stop"), 100.0, found=Found.REST)
    told = command(first.state, word, 101.0)
    then = buried(told.state, POLICY, NOBODY, 103.0, 0.0)
    assert then.state.lifecycle is (State.STOPPED if word == "stop" else State.STARTING)


def test_without_autostart_it_is_stopped_afterwards() -> None:
    policy = replace(POLICY, autostart=False)
    first = resume(policy, 100.0, found=Found.REST)
    assert buried(first.state, policy, NOBODY, 103.0, 0.0).state.lifecycle is State.STOPPED


@pytest.mark.parametrize("left_behind", [True, False])
def test_the_count_of_lives_goes_on_over_a_restart_of_the_daemon(left_behind: bool) -> None:
    first = resume(POLICY, 100.0, found=Found.REST if left_behind else Found.NOTHING, incarnation=7)
    if left_behind:
        assert (first.events[0].incarnation, first.actions) == ("7", [EndTree(7)])
        first = buried(first.state, POLICY, NOBODY, 103.0, 0.0)
    assert first.actions == [Spawn(8)]
    assert first.events[-1].incarnation == "8"


def test_where_no_life_is_known_of_none_is_named() -> None:
    assert resume(POLICY, 100.0, found=Found.REST).events[0].incarnation == ""
