"""The keys of learning: what is accepted, who inherits them, and where they mean nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.config import Config
from stepwarden.config.effective import effective_yaml
from stepwarden.config.loader import load_text
from stepwarden.config.problems import ConfigError

PATH = Path("/etc/stepwarden.yaml")


def config(text: str) -> Config:
    return load_text(text, PATH, {})


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(text)
    return str(caught.value)


def test_it_observes_as_shipped_and_a_worker_may_say_otherwise() -> None:
    found = config(
        "defaults: {learn: on, learn_floor: 20s}\n"
        "workers: {a: {command: [a]}, b: {command: [b], learn: 'off', learn_floor: 500ms}}"
    )
    a, b = found.workers["a"].policy, found.workers["b"].policy
    assert (a.learn, a.learn_floor) == ("on", 20.0)
    assert (b.learn, b.learn_floor) == ("off", 0.5)
    plain = config("workers: {a: {command: [a]}}").workers["a"].policy
    assert (plain.learn, plain.learn_floor) == ("observe", 10.0)


def test_what_check_prints_loads_again() -> None:
    found = config("workers: {a: {command: [a], learn: on}}")
    assert config(effective_yaml(found)).workers["a"].policy == found.workers["a"].policy


@pytest.mark.parametrize("value", ["true", "yes", "enabled", "ON", "[on]", "{mode: on}", "~"])
def test_any_other_word_is_refused_with_those_that_are_accepted(value: str) -> None:
    told = refusal(f"workers: {{a: {{command: [a], learn: {value}}}}}")
    assert "workers.a.learn" in told
    assert "off, observe, on" in told


@pytest.mark.parametrize("value", ["0", "-1s", "nan", "2d", '"10"'])
def test_a_floor_that_is_none_is_refused(value: str) -> None:
    assert "workers.a.learn_floor" in refusal(
        f"workers: {{a: {{command: [a], learn_floor: {value}}}}}"
    )


@pytest.mark.parametrize("key", ["learn: on", "learn_floor: 20s"])
def test_without_an_agent_there_is_nothing_to_learn_from(key: str) -> None:
    assert "means nothing without an agent" in refusal(
        f"workers: {{a: {{command: [a], agent: none, {key}}}}}"
    )
    shared = config(f"defaults: {{{key}}}\nworkers: {{a: {{command: [a], agent: none}}}}")
    assert shared.workers["a"].policy.learn == "observe"
