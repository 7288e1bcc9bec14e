"""Where a listener serves: one address or a list, and who may reach it."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.config import ConfigError
from stepwarden.config.loader import load_text
from stepwarden.config.settings import SupervisorSettings

WORKER = "workers: {w: {command: [a], backend: cpu}}\n"


def settings(metrics: str) -> SupervisorSettings:
    text = f"supervisor: {{metrics: {metrics}}}\n{WORKER}"
    return load_text(text, Path("c.yaml"), {}).supervisor


@pytest.mark.parametrize(
    ("metrics", "addresses"),
    [
        ("{}", ()),
        ("{listen: []}", ()),
        ('{listen: "127.0.0.1:9464"}', ("127.0.0.1:9464",)),
        ('{listen: ["127.0.0.1:9464", "[::1]:9464"]}', ("127.0.0.1:9464", "[::1]:9464")),
        ('{listen: "0.0.0.0:9464", insecure: true}', ("0.0.0.0:9464",)),
    ],
)
def test_one_address_or_a_list_or_none(metrics: str, addresses: tuple[str, ...]) -> None:
    assert settings(metrics).metrics.addresses == addresses


@pytest.mark.parametrize("listener", ["agents", "health", "metrics"])
@pytest.mark.parametrize("written", ['"127.0.0.1:9464"', '["127.0.0.1:9464"]'])
def test_every_listener_takes_one_address_or_a_list(listener: str, written: str) -> None:
    text = f"supervisor: {{{listener}: {{listen: {written}}}}}\n{WORKER}"
    found = load_text(text, Path("c.yaml"), {}).supervisor
    assert getattr(found, listener).addresses == ("127.0.0.1:9464",)


def test_a_bad_address_of_a_list_is_told_where_it_stands() -> None:
    text = f'supervisor:\n  agents:\n    listen:\n    - "127.0.0.1:1"\n    - nowhere\n{WORKER}'
    with pytest.raises(ConfigError) as refused:
        load_text(text, Path("c.yaml"), {})
    assert "c.yaml:5:7: error: supervisor.agents.listen[1]: " in str(refused.value)


@pytest.mark.parametrize(
    ("metrics", "said"),
    [
        ('{listen: "127.0.0.1"}', "supervisor.metrics.listen"),
        ("{listen: 9464}", "supervisor.metrics.listen"),
        ("{listen: {}}", "or a list of such"),
        ('{listen: "0.0.0.0:9464"}', "other hosts can reach 0.0.0.0:9464"),
        ('{listen: ["127.0.0.1:50051"]}', "is written twice"),
        ('{listen: ["127.0.0.1:1", "127.0.0.1:1"]}', "is written twice"),
        ('{listem: "127.0.0.1:1"}', "listen"),
    ],
)
def test_what_cannot_be_served_is_refused(metrics: str, said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        settings(metrics)
    assert said in str(refused.value)
    assert "c.yaml:1:" in str(refused.value)
