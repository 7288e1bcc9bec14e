"""Which addresses may be served without TLS: loopback ones, by whatever name."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.config import ConfigError
from stepwarden.config.effective import effective_yaml
from stepwarden.config.loader import load_text
from stepwarden.exposure import ACCEPTED, ListenSettings, TlsFiles, exposed, is_loopback

LOOPBACK = [
    "127.0.0.1",
    "127.9.8.7",
    "::1",
    "[::1]",
    "0:0:0:0:0:0:0:1",
    "::ffff:127.0.0.1",
    "localhost",
    "LOCALHOST",
    "localhost.",
    "engine.localhost",
    "ip6-localhost",
]
REACHABLE = [
    "0.0.0.0",
    "::",
    "[::]",
    "10.0.0.1",
    "::ffff:10.0.0.1",
    "::ffff:0.0.0.0",
    "fe80::1%eth0",
    "notlocalhost",
    "localhost.example.com",
    "127.0.0.1.example.com",
    "node7",
    "",
]


@pytest.mark.parametrize("host", LOOPBACK)
def test_nobody_else_reaches_the_loopback(host: str) -> None:
    assert is_loopback(host)
    assert exposed([host], tls=False, insecure=False) is False


@pytest.mark.parametrize("host", REACHABLE)
def test_everything_else_needs_tls_or_the_word(host: str) -> None:
    assert not is_loopback(host)
    assert exposed(["::1", host or "x"], tls=False, insecure=False)
    assert exposed([host], tls=True, insecure=False) is False
    assert exposed([host], tls=False, insecure=True) is False


WORKER = "workers: {w: {backend: gpu, command: [a]}}\n"


def errors(section: str) -> dict[str, tuple[str, str, str]]:
    with pytest.raises(ConfigError) as caught:
        load_text(f"supervisor: {section}\n{WORKER}", Path("c.yaml"), {})
    found = [p for p in caught.value.problems if p.severity == "error"]
    return {p.path: (p.message, p.accepted, p.suggestion) for p in found}


@pytest.mark.parametrize("address", ["0.0.0.0:1", "[::]:1", "10.1.2.3:1", "node7:1"])
@pytest.mark.parametrize("service", ["health", "agents"])
def test_the_check_of_a_file_refuses_what_is_not_safe(service: str, address: str) -> None:
    found = errors(f'{{{service}: {{listen: ["127.0.0.1:9", "{address}"]}}}}')
    message, accepted, _ = found[f"supervisor.{service}.listen[1]"]
    assert f"other hosts can reach {address}" in message
    assert accepted == ACCEPTED
    for word in ("insecure: true", "tls: {cert: /c, key: /k}"):
        load_text(
            f'supervisor: {{{service}: {{listen: ["{address}"], {word}}}}}\n{WORKER}', Path("c"), {}
        )


def test_the_keys_of_tls_are_checked() -> None:
    assert "cert is missing" in errors("{health: {tls: {key: /k}}}")["supervisor.health.tls"][0]
    assert "supervisor.agents.tls.key" in errors("{agents: {tls: {cert: /c, key: k}}}")
    both = "{health: {tls: {cert: /c, key: /k}, insecure: true}}"
    assert "means nothing beside tls" in errors(both)["supervisor.health.insecure"][0]


def test_the_former_key_is_led_to_the_new_one() -> None:
    found = errors('{agent_listen: ["127.0.0.1:1"]}')["supervisor.agent_listen"]
    assert found[0] == "unknown key"
    assert found[2] == "supervisor.agents.listen"


def test_the_effective_file_says_the_same() -> None:
    text = (
        'supervisor: {agents: {listen: ["0.0.0.0:7"], tls: {cert: /c, key: /k, client_ca: /a}},'
        ' health: {listen: ["[::]:8"], insecure: true}}\n' + WORKER
    )
    config = load_text(text, Path("c.yaml"), {})
    files = TlsFiles(Path("/c"), Path("/k"), Path("/a"))
    assert config.supervisor.agents == ListenSettings(("0.0.0.0:7",), files)
    assert config.supervisor.health == ListenSettings(("[::]:8",), None, True)
    again = load_text(effective_yaml(config), Path("c.yaml"), {})
    assert again.supervisor == config.supervisor
