"""The rules of membership on made-up snapshots."""

from __future__ import annotations

import os

from stepwarden.core.evidence import ProcessId
from stepwarden.edge.family import Family
from stepwarden.edge.process_table import Proc, ProcessTable

MAIN = ProcessId(10, 5)


def proc(pid: int, ppid: int, session: int = 10, start: int = 5, state: str = "S") -> Proc:
    return Proc(pid, ppid, session, start, state, 1, 0.0)


def pids(family: Family, *entries: Proc) -> set[int]:
    table = ProcessTable(entries)
    family.observe(table)
    return {process.pid for process in family.members(table)}


def test_descendants_are_remembered_after_their_parent_is_gone() -> None:
    family = Family(MAIN, "x")
    assert pids(family, proc(10, 1), proc(11, 10), proc(12, 11, 12)) == {10, 11, 12}
    assert pids(family, proc(12, 1, 12), proc(13, 12, 13)) == {12, 13}
    assert pids(family, proc(13, 1, 13)) == {13}


def test_the_session_finds_what_was_never_seen_with_a_parent() -> None:
    family = Family(MAIN, "x")
    assert pids(family, proc(10, 1)) == {10}
    assert pids(family, proc(15, 1)) == {15}
    assert pids(family, proc(15, 1), proc(16, 1)) == {15, 16}


def test_a_session_that_main_does_not_lead_is_nobodys() -> None:
    family = Family(MAIN, "x")
    assert pids(family, proc(10, 1, 3), proc(3, 1, 3), proc(4, 1, 3)) == {10}


def test_a_reused_pid_or_session_is_a_stranger() -> None:
    family = Family(MAIN, "x")
    assert pids(family, proc(10, 1), proc(11, 10)) == {10, 11}
    assert pids(family, proc(10, 1, 10, 99), proc(12, 10), proc(11, 1, 11, 98)) == set()


def test_an_empty_session_is_given_up() -> None:
    family = Family(MAIN, "x")
    assert pids(family, proc(10, 1)) == {10}
    assert pids(family) == set()
    assert pids(family, proc(20, 1)) == set()


def test_barred_ones_and_the_supervisor_are_never_members() -> None:
    me = os.getpid()
    family = Family(MAIN, "x", barred=lambda: {10, 12})
    found = pids(
        family, proc(10, 1), proc(12, 10, 12), proc(13, 12, 12), proc(me, 10), proc(14, me, 14)
    )
    assert found == {10}


def test_zombies_are_known_but_not_members_and_the_gone_are_forgotten() -> None:
    family = Family(MAIN, "x")
    assert pids(family, proc(10, 1), proc(11, 10, state="Z")) == {10}
    assert family.known == {MAIN, ProcessId(11, 5)}
    assert pids(family, proc(10, 1)) == {10}
    assert family.known == {MAIN}


def test_a_session_is_known_by_its_dead_leader_while_a_member_lives_in_it() -> None:
    seen = {ProcessId(11, 5), ProcessId(12, 5)}
    family = Family(MAIN, "x", seen=seen)
    assert pids(family, proc(12, 1, 11), proc(13, 1, 11), proc(14, 1, 14)) == {12, 13}
    # Without one, the number may have been given to strangers while nobody looked.
    family = Family(MAIN, "x", seen=seen)
    assert pids(family, proc(13, 1, 11), proc(14, 1, 10)) == set()


def test_new_members_are_told_once_main_and_those_of_the_journal_never() -> None:
    told: list[frozenset[ProcessId]] = []
    family = Family(MAIN, "x", seen=[ProcessId(11, 5)], on_seen=told.append)
    for _ in range(2):
        pids(family, proc(10, 1), proc(11, 10), proc(12, 11))
    pids(family, proc(10, 1), proc(12, 1), proc(13, 12))
    assert told == [{ProcessId(12, 5)}, {ProcessId(13, 5)}]


def test_those_gone_for_sure_are_told_once_but_not_the_leader_of_a_living_session() -> None:
    """By the leader a later daemon knows whose the session is."""
    gone: list[frozenset[ProcessId]] = []
    family = Family(MAIN, "x", seen=[ProcessId(99, 5)], on_gone=gone.append)
    pids(family, proc(10, 1), proc(11, 10), proc(12, 10, 12), proc(13, 12, 12))
    assert gone == [{ProcessId(99, 5)}]
    for _ in range(2):
        pids(family, proc(10, 1), proc(13, 1, 12))  # 11 and the leader 12 have ended
    assert gone[1:] == [{ProcessId(11, 5)}]
    pids(family, proc(10, 1))
    assert gone[2:] == [{ProcessId(12, 5), ProcessId(13, 5)}]
