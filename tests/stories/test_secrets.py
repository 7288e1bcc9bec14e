"""Secrets in env, env files and command lines are in nothing that the program writes or shows."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from stepwarden.config import load
from support.crew import PYTHON, Crew, shell, stub
from support.daemon import free_port

pytestmark = pytest.mark.timeout(180)

MARKS = {
    name: f"s3cr3t-{name}-{os.urandom(8).hex()}" for name in ("env", "file", "argument", "shell")
}
SLEEPS = "import time; time.sleep(1000)"
TOLD = ("--api-key", MARKS["argument"])


def crew_of(directory: Path, port: int) -> Crew:
    """Workers that hold secrets in every place: one lives, others fail in every way."""
    secrets = directory / "secrets.env"
    secrets.touch(0o600)
    secrets.write_text(f"OTHER_TOKEN={MARKS['file']}\n")
    given: dict[str, Any] = {"env": {"HF_TOKEN": MARKS["env"]}, "env_file": str(secrets)}
    failing = {
        **given,
        "agent": "none",
        "backend": "gpu",
        "restart": {"limit": 1, "within": "1h", "delay": "100ms"},
    }
    python = [PYTHON, "-c"]
    workers = {
        "lives": stub(**given, output={"mode": "capture"}),
        "told": {**failing, "command": [*python, SLEEPS, *TOLD]},
        "dies": {**failing, "command": [*python, "raise SystemExit(3)", *TOLD]},
        "missing": {**failing, "command": ["/nowhere/engine", *TOLD]},
        "shell": shell(f"API_KEY={MARKS['shell']} exit 4", **{**failing, "agent": "none"}),
        "unready": {
            **failing,
            "command": [*python, SLEEPS, *TOLD],
            "ready": {"command": [*python, "raise SystemExit(5)", *TOLD]},
            "stop": {"command": ["/nowhere/stop", *TOLD]},
        },
        "before": {
            **failing,
            "command": [*python, SLEEPS],
            "pre_start": {"command": [*python, "raise SystemExit(6)", *TOLD]},
        },
    }
    workers["lives"]["env"]["STUB_SCRIPT"] = "attach; idle"
    return Crew(workers, supervisor=f'  metrics: {{listen: "127.0.0.1:{port}"}}\n')


def found_in(data: bytes) -> list[str]:
    return [name for name, mark in MARKS.items() if mark.encode() in data]


def written(crew: Crew, allowed: set[Path]) -> Iterator[tuple[Path, bytes]]:
    """Every regular file below the daemon's directories, and its log."""
    for path in sorted(crew.directory.rglob("*")):
        if path not in allowed and stat.S_ISREG(path.lstat().st_mode):
            yield path, path.read_bytes()


def test_secrets_are_in_nothing_that_we_write_or_show(tmp_path: Path) -> None:
    port = free_port()
    with crew_of(tmp_path, port) as crew:
        crew.ready("lives", "told")
        for name in ("dies", "missing", "shell", "before"):
            crew.wait_transition(name, "FAILED")
        crew.wait_status("unready", lambda w: "exit" in w.probe, "asked by its probe")
        pid = crew.status()["lives"].pid
        environ = Path(f"/proc/{pid}/environ").read_bytes()
        assert {"env", "file"} <= set(found_in(environ)), "the worker has them, of course"
        names = list(load(crew.config).workers)
        commands = [("status",), ("status", "--json"), ("events",), ("events", "--json")]
        commands += [("status", name) for name in names]
        commands += [("status", name, "--json") for name in names]
        for words in commands:
            shown = crew.cli(*words, "--config", str(crew.config))
            assert found_in((shown.stdout + shown.stderr).encode()) == [], words
        with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as page:
            assert found_in(page.read()) == []
        crew.cli("stop", "unready", "--config", str(crew.config))
        checked = crew.cli("check", "--effective", str(crew.config))
        assert found_in((checked.stdout + checked.stderr).encode()) == []
        assert "use env_file" in checked.stderr
        as_json = crew.cli("check", "--effective", "--json", str(crew.config))
        assert found_in(as_json.stdout.encode()) == []
        everything = crew.cli("check", "--effective", "--secrets", str(crew.config))
        assert set(found_in(everything.stdout.encode())) == {"env", "argument", "shell"}
        assert repr_is_clean(crew.config)
        leaks = {
            str(path): found
            for path, data in written(crew, {crew.config})
            if (found := found_in(data))
        }
        assert leaks == {}


def repr_is_clean(path: Path) -> bool:
    """An exception that shows a configuration shows none of it."""
    return found_in(repr(load(path)).encode()) == []


def test_tokens_lie_where_nobody_else_can_read_them() -> None:
    """The token of a life has to outlive the daemon, in files of its user alone."""
    with Crew({"w": stub()}) as crew:
        crew.ready()
        environ = Path(f"/proc/{crew.status()['w'].pid}/environ").read_bytes()
        token = next(
            part.split(b"=", 1)[1]
            for part in environ.split(b"\0")
            if part.startswith(b"STEPWARDEN_TOKEN=")
        )
        for words in (("status", "--json"), ("status", "w", "--json"), ("events", "--json")):
            shown = crew.cli(*words, "--config", str(crew.config))
            assert token.decode() not in shown.stdout
        assert token not in crew.log.read_bytes()
        holders = [path for path, data in written(crew, set()) if token in data]
        assert holders
        for path in holders:
            private = [path, *path.parents]
            assert any(stat.S_IMODE(one.stat().st_mode) & 0o077 == 0 for one in private[:2]), path
