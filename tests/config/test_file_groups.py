"""Groups and needs: names that are there, and an order in which everything can start."""

from __future__ import annotations

import pytest
from support.loading import errors, loaded, warnings


def text(groups: str = "", **needs: str) -> str:
    """Workers a, b, c; `needs` by the name of the worker."""
    lines = "".join(
        f"  {name}: {{backend: cpu, command: [x], needs: [{needs.get(name, '')}]}}\n"
        for name in "abc"
    )
    return f"{groups}\nworkers:\n{lines}"


@pytest.mark.parametrize(
    ("written", "path", "words"),
    [
        (text(a="bb"), "workers.a.needs[0]", 'no worker "bb" (did you mean b? accepted: a, b, c)'),
        (text(a="a"), "workers.a.needs[0]", "worker a needs itself"),
        (text(a="b, b"), "workers.a.needs[1]", "b is written twice"),
        (text(a="b", b="a"), "workers.a.needs", "could ever start: a -> b -> a"),
        (text(a="b", b="c", c="a"), "workers.a.needs", "a -> b -> c -> a"),
        (text("groups: {g: {members: [a, d]}}"), "groups.g.members[1]", 'no worker "d"'),
        (text("groups: {g: {members: [a, a]}}"), "groups.g.members[1]", "is written here too"),
        (
            text("groups: {g: {members: [a, b]}, h: {members: [c, a]}}"),
            "groups.h.members[1]",
            "is written in group g too",
        ),
        (
            text("groups: {g: {members: [a, b]}}", a="b"),
            "workers.a.needs[0]",
            "b comes after a in group g",
        ),
        (
            text("groups: {g: {members: [a, b]}}", a="c", c="b"),
            "workers.a.needs",
            "a -> c -> b -> a",
        ),
        (text("groups: {g: {members: []}}"), "groups.g.members", "at least one"),
        (text("groups: {g: {on_dead: restart_group}}"), "groups.g", "the key members is missing"),
        (
            text("groups: {g: {members: [a], member: b}}"),
            "groups.g.member",
            "did you mean members?",
        ),
        (
            text("groups: {g: {members: [a], on_dead: restart_all}}"),
            "groups.g.on_dead",
            "restart_member, restart_group, restart_rest",
        ),
        (
            text("groups: {g: {members: [a], restart: {on: never}}}"),
            "groups.g.restart.on",
            "unknown key",
        ),
        (
            "groups: {g: {members: [a]}}\n"
            "workers: {a: {backend: cpu, command: [x], restart: {limit: 3}}}",
            "workers.a.restart.limit",
            "groups.NAME.restart",
        ),
    ],
)
def test_what_could_never_start_is_an_error(written: str, path: str, words: str) -> None:
    found = errors(written)
    assert list(found) == [path]
    assert words in found[path]


def test_two_circles_are_told_apart() -> None:
    found = errors(text(a="b", b="a, c", c="b"))
    assert "a -> b -> a" in found["workers.a.needs"]
    assert "b -> c -> b" in found["workers.b.needs"]


def test_a_shared_need_is_no_circle() -> None:
    config = loaded(text("groups: {g: {members: [a, b]}}", b="a, c", a="c"))
    assert config.workers["b"].needs == ("a", "c")
    assert config.warnings == ()


def test_a_worker_that_was_refused_is_still_there_for_others() -> None:
    written = "workers: {a: {backend: cpu, comand: [x]}, b: {command: [x], needs: [a]}}"
    assert list(errors(written)) == ["workers.a.comand"]


def test_needing_what_an_operator_has_to_start_is_a_warning() -> None:
    written = "workers: {a: {backend: cpu, command: [x], autostart: false},"
    written += " b: {backend: cpu, command: [x], needs: [a]}}"
    assert "waits for an operator" in warnings(written)["workers.b.needs[0]"]


def test_a_chain_of_a_thousand_is_followed() -> None:
    lines = "".join(
        f"  w{n}: {{backend: cpu, command: [x], needs: [w{(n + 1) % 1000}]}}\n" for n in range(1000)
    )
    (message,) = errors(f"workers:\n{lines}").values()
    assert "none of these could ever start: w0 -> w1 -> w2 -> " in message
    assert "... (accepted: " in message  # a line of 10 000 characters would help nobody
