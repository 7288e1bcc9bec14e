"""O-YAML-2: durations and numbers as people write them: one documented rule at every key."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stepwarden.config import Config, ConfigError
from stepwarden.config.loader import load_text
from stepwarden.config.values import needs_quotes, parse_duration, seconds_text
from stepwarden.core.budget import Formula, Rows

# text as written: seconds, or None where it is refused at a duration key
DURATIONS: dict[str, float | None] = {
    "30": 30.0,
    "2.5": 2.5,
    "30s": 30.0,
    "500ms": 0.5,
    "5m": 300.0,
    "1h30m": 5400.0,
    '"30s"': 30.0,
    "1:30": None,
    "0:45": None,
    "1:2.5": None,
    "12:30:45": None,
    "010": None,
    "08": None,
    "1_000": None,
    "1e3": None,
    "1.0e+3": None,
    "0x1F": None,
    "1,000": None,
    "+5": None,
    "-5": None,
    "0": None,
    '"30"': None,
    "''": None,
    "~": None,
    "": None,
    "null": None,
    "2026-01-02": None,
    "true": None,
    "on": None,
    "30 s": None,
    "5 minutes": None,
    ".inf": None,
    ".nan": None,
    "nan": None,
    "inf": None,
    "1e999": None,
    "9" * 400: None,
    "30S": None,
    "30m1h": None,
    "1m1m": None,
    ".5": None,
    "5.": None,
    "010s": None,
    "\u0663\u0660": None,
    "[30]": None,
    "{a: 30}": None,
    "!!int 30": None,
    "!!str 30s": None,
}
WHOLE: dict[str, int | None] = {
    **{text: None for text in DURATIONS if text not in ("", "~")},
    "30": 30,
    "1": 1,
    "64.0": None,
    "False": None,
}
WORKER = "workers:\n  w:\n    command: [a]\n"
CPU = WORKER + "    backend: cpu\n"
X = WORKER + "    backend: x\n"
DURATION_KEYS = {
    "workers.w.startup.budget": CPU + "    startup:\n      budget: %s\n",
    "workers.w.stop.grace": CPU + "    stop:\n      grace: %s\n",
    "defaults.heartbeat.timeout": "defaults:\n  heartbeat:\n    timeout: %s\n" + CPU,
    "backends.x.step.base": "backends:\n  x:\n    step:\n      base: %s\n" + X,
    "backends.x.step.rows.4": "backends:\n  x:\n    step:\n      rows:\n        4: %s\n" + X,
}


def read(text: str) -> Config:
    return load_text(text, Path("config.yaml"), {})


def value_at(config: Config, path: str) -> float:
    worker = config.workers["w"]
    step = worker.policy.step
    found = {
        "workers.w.startup.budget": worker.policy.startup,
        "workers.w.stop.grace": worker.stop_grace,
        "defaults.heartbeat.timeout": worker.policy.heartbeat_timeout,
        "backends.x.step.base": step.base if isinstance(step, Formula) else 0.0,
        "backends.x.step.rows.4": step.rows[0][1] if isinstance(step, Rows) else 0.0,
    }
    return found[path]


@pytest.mark.parametrize("path", DURATION_KEYS)
@pytest.mark.parametrize("text", DURATIONS)
def test_o_yaml_2_durations_are_taken_or_refused_by_one_rule(text: str, path: str) -> None:
    wanted = DURATIONS[text]
    written = DURATION_KEYS[path] % text
    if wanted is not None:
        assert value_at(read(written), path) == wanted
        return
    with pytest.raises(ConfigError) as caught:
        read(written)
    error = str(caught.value)
    assert error.count("\n") == 0, error
    assert error.startswith("config.yaml:")
    assert path in error
    assert "accepted" in error


@pytest.mark.parametrize("text", WHOLE)
def test_o_yaml_2_whole_numbers_are_taken_or_refused_by_the_same_rule(text: str) -> None:
    written = f"{CPU}    max_num_seqs: {text}\n"
    wanted = WHOLE[text]
    if wanted is not None:
        assert read(written).workers["w"].policy.max_num_seqs == wanted
        return
    with pytest.raises(ConfigError, match=r"workers\.w\.max_num_seqs"):
        read(written)


@pytest.mark.parametrize("text", ["yes", "no", "on", "off", "True", "1", '"true"', "~"])
def test_o_yaml_2_only_true_and_false_are_truth_values(text: str) -> None:
    with pytest.raises(ConfigError, match="accepted: true or false"):
        read(f"workers: {{w: {{command: [a], backend: cpu, autostart: {text}}}}}")


@pytest.mark.parametrize(
    "text", ["8", "010", "1e3", "on", "yes", "1:30", "0x1F", "1_000", "2026-01-02", "null", "1.5"]
)
def test_o_yaml_2_what_yaml_would_change_needs_quotes_where_text_is_wanted(text: str) -> None:
    written = "workers: {w: {command: [a], backend: cpu, env: {KEY: %s}}}"
    with pytest.raises(ConfigError, match="write it in quotes") as caught:
        read(written % text)
    # Environment variables may hold secrets: their values are never shown.
    assert f'"{text}"' not in str(caught.value)
    assert read(written % f'"{text}"').workers["w"].env == {"KEY": text}


def test_o_yaml_2_zero_is_taken_only_where_it_has_a_meaning() -> None:
    text = "workers: {w: {command: [a], backend: cpu, restart: {delay: 0}, lease_cap: 0}}"
    policy = read(text).workers["w"].policy
    assert policy.restart.delay == 0.0
    assert policy.lease_cap == 0.0


@given(st.floats(min_value=0.001, max_value=600_000).map(lambda x: round(x, 3)))
def test_what_we_print_as_a_duration_reads_back_as_the_same(seconds: float) -> None:
    assert parse_duration(seconds_text(seconds)) == pytest.approx(seconds)


@given(st.text(max_size=40))
def test_no_text_makes_the_value_rules_fail(text: str) -> None:
    seconds = parse_duration(text)
    assert seconds is None or seconds >= 0
    assert needs_quotes(text) in (True, False)
