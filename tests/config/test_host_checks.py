"""What a file names is looked for on this host, where that is asked for."""

from __future__ import annotations

import getpass
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from stepwarden.config import ConfigError
from stepwarden.config.loader import load_text
from stepwarden.config.units import AskUnits, UnitsUnknown
from support.certificates import Authority
from support.loading import errors, loaded

UNITS = "workers: {a: {backend: cpu, unit: a.service}, b: {backend: cpu, unit: b.service}}"


def on_this_host(text: str, ask: AskUnits | None = None) -> dict[str, str]:
    """What is found, errors and warnings, by path."""
    try:
        problems = load_text(text, Path("c"), {}, True, ask).warnings
    except ConfigError as error:
        problems = error.problems
    return {problem.path: str(problem) for problem in problems}


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ("command: [a], user: nobody-of-this-name", "workers.w.user"),
        ("command: [a], group: nobody-of-this-name", "workers.w.group"),
        ("attach: {expect_user: nobody-of-this-name}", "workers.w.attach.expect_user"),
    ],
)
def test_an_account_that_is_not_there_is_an_error(written: str, path: str) -> None:
    text = f"workers: {{w: {{backend: cpu, {written}}}}}"
    found = on_this_host(text)
    assert list(found) == [path]
    assert "error: " in found[path]
    assert 'there is no user "nobody' in found[path] or 'no group "nobody' in found[path]
    assert loaded(text).warnings == ()


def test_accounts_that_are_there_and_numbers_are_taken() -> None:
    here = getpass.getuser()
    assert on_this_host(f"workers: {{w: {{backend: cpu, command: [a], user: {here}}}}}") == {}
    numbers = "workers: {w: {backend: cpu, command: [a], user: 54321, group: 54321}}"
    assert on_this_host(numbers) == {}


def test_an_account_of_the_defaults_is_told_of_there() -> None:
    text = "defaults: {user: nobody-of-this-name}\n"
    text += "workers: {v: {backend: cpu, command: [a]}, w: {backend: cpu, command: [a]}}"
    assert list(on_this_host(text)) == ["defaults.user"]


def test_programs_of_short_commands_are_looked_for(tmp_path: Path) -> None:
    none = tmp_path / "none"
    text = f"""\
defaults: {{stop: {{command: [{none}]}}}}
workers:
  w:
    backend: cpu
    command: [a]
    pre_start: {{command: [{none}]}}
    ready: {{command: [{none}]}}
    release: {{command: [{none}]}}
"""
    assert set(on_this_host(text)) == {
        "defaults.stop.command[0]",
        "workers.w.pre_start.command[0]",
        "workers.w.ready.command[0]",
        "workers.w.release.command[0]",
    }


def test_a_unit_that_cannot_be_a_worker_is_an_error() -> None:
    asked: list[str] = []

    def ask(units: Sequence[str]) -> Mapping[str, str]:
        asked.extend(units)
        return {"a.service": "", "b.service": "unit b.service has Restart=always: two restarters"}

    found = on_this_host(UNITS, ask)
    assert list(found) == ["workers.b.unit"]
    assert "error: " in found["workers.b.unit"]
    assert "Restart=always" in found["workers.b.unit"]
    assert asked == ["a.service", "b.service"], "once for all"


def test_units_that_nobody_can_ask_about_are_a_warning_and_without_units_nobody_is_asked() -> None:
    def ask(_: Sequence[str]) -> Mapping[str, str]:
        raise UnitsUnknown("there is no bus")

    found = on_this_host(UNITS, ask)
    assert list(found) == ["workers.a.unit", "workers.b.unit"]
    assert "warning: " in found["workers.a.unit"]
    assert (
        "could not be checked that its Restart= is no: there is no bus" in found["workers.a.unit"]
    )
    assert on_this_host("workers: {w: {backend: cpu, command: [a]}}", ask) == {}


def test_the_unit_that_runs_this_very_process_is_no_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "workers: {w: {backend: cpu, unit: mine.service}}"
    real = Path.read_text

    def read(path: Path, *arguments: str) -> str:
        if str(path) == "/proc/self/cgroup":
            return "0::/system.slice/mine.service\n"
        return real(path, *arguments)

    monkeypatch.setattr(Path, "read_text", read)
    assert "own unit" in errors(text, {"SYSTEMD_EXEC_PID": str(os.getpid())})["workers.w.unit"]
    assert loaded(text, {"SYSTEMD_EXEC_PID": "1"}).warnings == ()


def test_certificates_are_looked_for_and_keys_are_private(tmp_path: Path) -> None:
    key = tmp_path / "server.key"
    key.touch()
    key.chmod(0o644)
    text = (
        f"supervisor: {{agents: {{listen: ['10.0.0.1:1'], tls: {{cert: {tmp_path}/no.crt,"
        f" key: {key}, client_ca: {tmp_path}}}}}}}\n"
        "workers: {w: {backend: cpu, command: [a]}}"
    )
    found = on_this_host(text)
    assert "error: " in found["supervisor.agents.tls.cert"]
    assert "cannot be read: No such file" in found["supervisor.agents.tls.cert"]
    assert "is not a regular file" in found["supervisor.agents.tls.client_ca"]
    assert "every user of this host can read" in found["supervisor.agents.tls.key"]
    assert "(mode 0644)" in found["supervisor.agents.tls.key"]
    key.chmod(0o640)
    assert "holds no private key in PEM" in on_this_host(text)["supervisor.agents.tls.key"]
    assert loaded(text).warnings == ()


def tls_of_two_pairs(tmp_path: Path) -> str:
    """A listener whose key belongs to another certificate."""
    authority = Authority(tmp_path)
    cert, own_key = authority.issue("one")
    _, key = authority.issue("two")
    for private in (own_key, key):
        private.chmod(0o600)
    return (
        f"supervisor: {{health: {{listen: '127.0.0.1:1', tls: {{cert: {cert}, key: {key}}}}}}}\n"
        "workers: {w: {backend: cpu, command: [/bin/true]}}"
    )


def test_a_key_of_another_certificate_is_an_error(tmp_path: Path) -> None:
    text = tls_of_two_pairs(tmp_path)
    (error,) = on_this_host(text).values()
    assert "error: supervisor.health.tls.key: " in error
    assert "cannot be used: the key belongs to another certificate" in error
    assert on_this_host(text.replace("two.key", "one.key")) == {}


def test_a_certificate_that_has_expired_is_told_of(tmp_path: Path) -> None:
    text = tls_of_two_pairs(tmp_path).replace("two.key", "one.key")
    Authority(tmp_path).issue("one", expired=True)[1].chmod(0o600)
    (warning,) = on_this_host(text).values()
    assert "warning: supervisor.health.tls.cert: the certificate in " in warning
    assert "has expired: clients refuse it" in warning


def test_tls_files_of_a_listener_that_listens_nowhere_are_not_asked_for(tmp_path: Path) -> None:
    text = tls_of_two_pairs(tmp_path).replace("'127.0.0.1:1'", "[]")
    assert list(on_this_host(text)) == ["supervisor.health.tls"]


def test_an_env_file_that_everybody_can_read_is_told_of(tmp_path: Path) -> None:
    secrets = tmp_path / "s.env"
    secrets.write_text("A=1\n")
    text = f"workers: {{w: {{backend: cpu, command: [a], env_file: {secrets}}}}}"
    secrets.chmod(0o604)
    assert "every user of this host can read" in on_this_host(text)["workers.w.env_file"]
    secrets.chmod(0o600)
    assert on_this_host(text) == {}


@pytest.mark.parametrize(
    "written",
    ["command: [a, --api-key, S3]", "command: [a, '--token=S3']", "shell: 'A_TOKEN=S3 exec a'"],
)
def test_a_secret_on_a_command_line_is_told_of_and_not_shown(written: str) -> None:
    (warning,) = loaded(f"workers: {{w: {{backend: cpu, {written}}}}}").warnings
    assert warning.path == f"workers.w.{written.partition(':')[0]}"
    assert "every user of this host can read command lines; use env_file" in warning.message
    assert "S3" not in str(warning)
