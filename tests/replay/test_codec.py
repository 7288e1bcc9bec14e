"""The core's data goes into a recording and comes back the same."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.core.budget import SHIPPED, Rows
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import CpuSample, ProcessId, RankEvidence, Step, WorkerEvidence
from stepwarden.core.lifecycle import State
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.worker import WorkerState
from stepwarden.replay.codec import (
    UnreadableError,
    data_classes,
    decode,
    encode,
    known_classes,
)
from stepwarden.replay.delta import change, changed

RANK = RankEvidence(
    attached_at=0.1 + 0.2,
    process=ProcessId(7, 8),
    steps=(Step(1, 2.5, 3, None, "decode"), Step(2, 2.75)),
    cpu=CpuSample(3.0, {ProcessId(7, 8): 1.25}, "R"),
)
VALUES = [
    None,
    True,
    1,
    1e-300,
    "text\n\u2028",
    State.HEALTHY,
    (),
    (1, (2, "x")),
    tuple((n, n / 2) for n in range(9)),
    tuple((n, n / 2) for n in range(12)),
    (*((n, n / 2) for n in range(3)), 7, 8, 9),
    frozenset({"b", "a"}),
    {"a": 1, "b": None},
    RANK,
    WorkerEvidence(ranks={"0": RANK}),
    WorkerPolicy("w", step=SHIPPED["cpu"]),
    WorkerPolicy("w", step=Rows(((1, 5.0), (8, 9.0)), beyond=60.0)),
    WorkerState("w", State.DEAD, leftovers=frozenset({ProcessId(1, 2), ProcessId(3, 4)})),
    Deadline.never(),
    Event(Kind.RETRY, "why", "w", "1", data={"age": 1.5, "ruling": None}),
]


def through(value: object) -> object:
    return decode(json.loads(json.dumps(encode(value))))


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_each_value_comes_back_the_same_and_of_its_type(value: object) -> None:
    back = through(value)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize("old", VALUES, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize("new", VALUES, ids=lambda value: type(value).__name__)
def test_any_change_can_be_made_again(old: object, new: object) -> None:
    made = changed(old, json.loads(json.dumps(change(old, new))))
    assert made == new
    assert type(made) is type(new)


RANKS = st.dictionaries(
    st.sampled_from("012"),
    st.builds(
        RankEvidence,
        attached_at=st.floats(0, 9),
        beat_at=st.none() | st.floats(0, 9),
        phase=st.sampled_from(["idle", "decode"]),
        steps=st.lists(st.builds(Step, st.integers(1, 9), st.floats(0, 9)), max_size=2).map(tuple),
    ),
)


@given(RANKS, RANKS)
def test_the_evidence_of_two_turns(
    old: dict[str, RankEvidence], new: dict[str, RankEvidence]
) -> None:
    before, after = WorkerEvidence(ranks=old), WorkerEvidence(ranks=new)
    assert changed(before, json.loads(json.dumps(change(before, after)))) == after


def test_what_has_not_changed_costs_nothing() -> None:
    evidence = WorkerEvidence(ranks={"0": RANK, "1": RANK})
    moved = replace(evidence, ranks={"0": RANK, "1": replace(RANK, beat_at=5.0)})
    assert change(evidence, replace(evidence)) is None
    assert change(evidence, moved) == {
        "~": {"ranks": {"~m": {"1": {"~": {"beat_at": {"=": 5.0}}}}, "gone": []}}
    }


def test_an_entry_that_is_none_is_an_entry() -> None:
    assert changed({}, change({}, {"a": None})) == {"a": None}
    assert changed({"a": None}, change({"a": None}, {})) == {}


@pytest.mark.parametrize(
    ("told", "says"),
    [
        ({"is": "Gizmo"}, "unknown kind 'Gizmo'"),
        ({"is": "Step", "number": 1, "begin": 1.0, "warp": 9}, "knows of warp of a Step"),
        (["E", "State", "ASLEEP"], "unknown State 'ASLEEP'"),
        (["X", 1], "unknown kind 'X'"),
        ([], "empty list"),
    ],
)
def test_what_this_version_does_not_know_is_refused(told: object, says: str) -> None:
    with pytest.raises(UnreadableError, match=says):
        decode(told)


def test_what_the_core_has_no_business_with_cannot_be_recorded() -> None:
    with pytest.raises(TypeError, match="a list cannot be recorded"):
        encode([1])


def test_every_kind_of_the_core_has_a_name_of_its_own() -> None:
    assert known_classes()["WorkerState"] is WorkerState
    names = Counter(kind.__name__ for kind in set(data_classes()))
    assert [name for name, count in names.items() if count > 1] == []
