"""`supervisor.health.ready` and `supervisor.loop_limit`: what is taken, refused, and shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.config import Config, ConfigError, load
from stepwarden.config.effective import effective_yaml
from stepwarden.core.ready_rule import ReadyRule

HEAD = "supervisor:\n  health: {{listen: [], ready: {0}}}\nworkers:\n"
WORKERS = "".join(f"  {name}: {{command: [x], backend: cpu}}\n" for name in ("alpha", "beta"))


def loaded(tmp_path: Path, ready: str) -> Config:
    file = tmp_path / "f.yaml"
    file.write_text(HEAD.format(ready) + WORKERS)
    return load(file)


@pytest.mark.parametrize(
    ("ready", "rule"),
    [
        ("all", ReadyRule()),
        ("{at_least: 2}", ReadyRule(2)),
        ("{workers: [beta]}", ReadyRule(None, ("beta",))),
        ("{at_least: 1, workers: [alpha, beta]}", ReadyRule(1, ("alpha", "beta"))),
    ],
)
def test_a_rule_is_read_and_what_holds_loads_again(
    tmp_path: Path, ready: str, rule: ReadyRule
) -> None:
    config = loaded(tmp_path, ready)
    assert config.supervisor.health_ready == rule
    again = tmp_path / "again.yaml"
    again.write_text(effective_yaml(config))
    assert load(again).supervisor == config.supervisor


@pytest.mark.parametrize(
    ("ready", "told"),
    [
        ("some", '2:31: error: supervisor.health.ready: "some" is not known here (accepted: all,'),
        ("[alpha]", "supervisor.health.ready: a list stands here (accepted: all, or a mapping"),
        ("{}", "supervisor.health.ready: is empty"),
        ("{at_least: 3}", "ready.at_least: at_least 3 of 2 can never be (accepted: up to 2"),
        ("{at_least: 2, workers: [beta]}", "at_least 2 of 1 can never be"),
        ("{at_least: 0}", 'ready.at_least: "0" is out of range'),
        ("{workers: []}", "ready.workers: is empty"),
        ("{workers: [bta]}", 'no worker "bta" (did you mean beta? accepted: alpha, beta)'),
        ("{workers: [beta, beta]}", 'ready.workers[1]: worker "beta" is written twice'),
        ("{at_lest: 1}", "unknown key (did you mean at_least? accepted: at_least, workers)"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(tmp_path: Path, ready: str, told: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, ready)
    (line,) = str(caught.value).splitlines()
    assert told in line


def test_a_worker_that_was_refused_itself_is_not_told_of_twice(tmp_path: Path) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(HEAD.format("{workers: [gamma]}") + WORKERS + "  gamma: {command: []}\n")
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert "no worker" not in str(caught.value)


@pytest.mark.parametrize(
    ("written", "seconds"), [("0", 0.0), ("5s", 5.0), ("2m", 120.0), ("4s", None), ("2d", None)]
)
def test_the_limit_of_a_loop_that_stands_still(
    tmp_path: Path, written: str, seconds: float | None
) -> None:
    file = tmp_path / "f.yaml"
    file.write_text(f"supervisor: {{loop_limit: {written}}}\nworkers:\n{WORKERS}")
    if seconds is None:
        with pytest.raises(ConfigError, match="out of range"):
            load(file)
    else:
        assert load(file).supervisor.loop_limit == seconds
