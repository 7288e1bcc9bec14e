"""Two configurations are compared by what they mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.config import Config
from stepwarden.config.difference import (
    NEXT_START_KEYS,
    PROCESS_KEYS,
    When,
    difference,
    differing_marks,
    effect_of,
    process_marks,
)
from stepwarden.config.effective import effective_yaml
from stepwarden.config.loader import load_text
from stepwarden.config.model import WorkerSection
from stepwarden.config.sections import keys_of

PATH = Path("/etc/stepwarden.yaml")
BASE: dict[str, Any] = {
    "supervisor": {"runtime_dir": "/run/x", "state_dir": "/var/lib/x"},
    "backends": {"flat": {"step": {"base": 2, "per_seq": 0, "max": "30s"}}},
    "defaults": {"stop": {"grace": "30s"}},
    "groups": {"pair": {"members": ["a", "b"]}},
    "workers": {
        "a": {"command": ["serve", "--key", "s3cret"], "env": {"TOKEN": "s3cret"}},
        "b": {"shell": "serve b", "agent": "none"},
        "c": {"command": ["c"], "backend": "flat", "retry": {"window": "20s"}},
        "d": {"attach": {"expect_user": "root"}},
    },
}


def config(tree: dict[str, Any]) -> Config:
    return load_text(yaml.safe_dump(tree, sort_keys=False), PATH, {})


def changed(tree: Any, path: tuple[str, ...], value: Any) -> Any:
    """`tree` with another value at `path`; None takes the key away."""
    copy = dict(tree)
    if len(path) > 1:
        copy[path[0]] = changed(tree.get(path[0], {}), path[1:], value)
    elif value is None:
        copy.pop(path[0])
    else:
        copy[path[0]] = value
    return copy


def keys(found: Any) -> dict[str, list[str]]:
    return {name: [change.key for change in changes] for name, changes in found.items()}


def test_o_reld_3_d_the_same_meaning_written_otherwise_is_no_difference() -> None:
    one = config(BASE)
    other = load_text(
        """
# another order, other quotes, other units
workers:
  d: {attach: {expect_user: "root"}}
  c:
    retry: {window: 20000ms}
    backend: 'flat'
    command: ["c"]
  b: {agent: none, shell: 'serve b'}
  a:
    env: {TOKEN: s3cret}
    command:
      - serve
      - "--key"
      - s3cret
groups: {pair: {members: [a, b], on_dead: restart_group}}
defaults: {stop: {grace: 0.5m}}
backends: {flat: {step: {max: 0.5m, per_seq: 0s, base: 2s}}}
supervisor: {state_dir: "/var/lib/x", runtime_dir: /run/x}
""",
        PATH,
        {},
    )
    assert difference(one, other).nothing
    assert difference(one, load_text(effective_yaml(one), PATH, {})).nothing


@pytest.mark.parametrize(
    ("path", "value", "expected", "effect"),
    [
        (("workers", "c", "retry", "window"), "9s", {"c": ["retry.window"]}, When.NOW),
        (
            ("backends", "flat", "step", "base"),
            3,
            {"c": ["step.base"]},
            When.NOW,
        ),
        (
            ("defaults", "stop", "grace"),
            "9s",
            {name: ["stop.grace"] for name in "abcd"},
            When.NOW,
        ),
        (("workers", "c", "command"), ["d"], {"c": ["command"]}, When.RESTART),
        (("workers", "c", "env"), {"A": "1"}, {"c": ["env.A"]}, When.RESTART),
        (("workers", "a", "env", "TOKEN"), "other", {"a": ["env.TOKEN"]}, When.RESTART),
        (("workers", "c", "user"), "nobody", {"c": ["user"]}, When.RESTART),
        (("workers", "c", "cwd"), "/tmp", {"c": ["cwd"]}, When.RESTART),
        (("workers", "d", "attach", "expect_user"), "nobody", {"d": ["attach.expect_user"]}, None),
        (("workers", "c", "heartbeat"), {"interval": "2s"}, {"c": ["heartbeat.interval"]}, None),
        (("workers", "c", "needs"), ["d"], {"c": ["needs"]}, When.NEXT_START),
        (("workers", "c", "autostart"), False, {"c": ["autostart"]}, When.NEXT_START),
    ],
)
def test_one_edit_is_named_for_each_whom_it_touches(
    path: tuple[str, ...], value: Any, expected: dict[str, list[str]], effect: When | None
) -> None:
    found = difference(config(BASE), config(changed(BASE, path, value)))
    assert keys(found.changed) == expected
    others = (found.added, found.removed, found.settings, found.refused, found.groups)
    assert not any(others)
    if effect is not None:
        assert {c.effect for changes in found.changed.values() for c in changes} == {effect}


def test_workers_and_groups_that_come_and_go() -> None:
    new = changed(changed(BASE, ("workers", "c"), None), ("workers", "e"), {"command": ["e"]})
    new = changed(new, ("groups", "pair", "restart"), {"limit": 9})
    found = difference(config(BASE), config(new))
    assert (found.added, found.removed) == (("e",), ("c",))
    assert keys(found.groups) == {"pair": ["restart.limit"]}
    assert not found.changed, "the members have the budget of their group, told once"
    gone = difference(config(BASE), config(changed(BASE, ("groups",), None)))
    assert "members" in keys(gone.groups)["pair"]


@pytest.mark.parametrize(
    ("key", "value", "live"),
    [
        ("log", {"level": "debug"}, True),
        ("on_exit", "leave", True),
        ("stop_limit", "200s", True),
        ("reload", {"restart": "ask"}, True),
        ("state_dir", "/var/lib/y", False),
        ("health", {"listen": []}, False),
        ("health", {"ready": {"at_least": 1}}, True),
        ("socket_mode", "0660", False),
        ("runner", "spawn", False),
    ],
)
def test_settings_of_the_daemon_hold_at_once_or_need_its_restart(
    key: str, value: Any, live: bool
) -> None:
    found = difference(config(BASE), config(changed(BASE, ("supervisor", key), value)))
    assert bool(found.settings) == live
    assert bool(found.refused) == (not live)


def test_secrets_are_never_shown_and_numbers_are() -> None:
    new = changed(BASE, ("workers", "a"), {"command": ["serve", "n3w"], "env": {"TOKEN": "n3w"}})
    new = changed(new, ("workers", "c", "retry", "window"), "9s")
    found = difference(config(BASE), config(new))
    text = " ".join(str(change) for changes in found.changed.values() for change in changes)
    assert text == "command env.TOKEN retry.window 20 -> 9"


def test_what_a_process_got_is_compared_as_it_is_written() -> None:
    tree = changed(BASE, ("workers", "c", "command"), ["c", "${HOST}"])
    text = yaml.safe_dump(tree)
    one, other = (load_text(text, PATH, {"HOST": host}) for host in ("x", "y"))
    assert difference(one, other).nothing
    wanted = config(changed(BASE, ("workers", "c", "env"), {"B": "1"}))
    had = process_marks(one.workers["c"])
    assert differing_marks(had, process_marks(wanted.workers["c"])) == ("command", "env")
    assert differing_marks(had, process_marks(other.workers["c"])) == ()


def test_every_key_of_a_worker_has_an_effect() -> None:
    """A key that is added later is thought about: it holds at once unless it is listed."""
    assert {*PROCESS_KEYS, *NEXT_START_KEYS} <= set(keys_of(WorkerSection))
    at_once = set(keys_of(WorkerSection)) - PROCESS_KEYS - NEXT_START_KEYS
    assert at_once == {
        "agent",
        "backend",
        "busy_factor",
        "drain",
        "heartbeat",
        "learn",
        "learn_floor",
        "lease_cap",
        "max_num_batched_tokens",
        "max_num_seqs",
        "mode",
        "progress",
        "ready",
        "restart",
        "retry",
        "startup",
        "step",
        "stop",
    }
    assert effect_of("output.path") is When.RESTART
    assert effect_of("output.keep") is When.NEXT_START


EDITS = st.lists(
    st.sampled_from(
        [
            (("workers", "a", "max_num_seqs"), 9),
            (("workers", "b", "retry"), {"busy_cpu": 9}),
            (("workers", "c", "command"), ["other"]),
            (("workers", "c", "env"), {"A": "1"}),
            (("workers", "c"), None),
            (("workers", "e"), {"command": ["e"]}),
            (("defaults", "restart"), {"limit": 9}),
            (("groups",), None),
            (("supervisor", "on_exit"), "leave"),
        ]
    ),
    unique_by=lambda edit: edit[0][:2],
    max_size=4,
)


@given(EDITS)
def test_there_and_back_differ_in_the_same_keys(edits: list[tuple[tuple[str, ...], Any]]) -> None:
    tree = BASE
    for path, value in edits:
        tree = changed(tree, path, value)
    one, other = config(BASE), config(tree)
    there, back = difference(one, other), difference(other, one)
    assert there.nothing == back.nothing == (not edits)
    assert (set(there.added), set(there.removed)) == (set(back.removed), set(back.added))
    assert {n: set(k) for n, k in keys(there.changed).items()} == {
        n: set(k) for n, k in keys(back.changed).items()
    }
    assert difference(other, config(tree)).nothing
