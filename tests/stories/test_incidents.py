"""Two workers are late: one hangs in a lock, one computes. The stacks tell which, and are kept."""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stepwarden.edge import bundle
from support.crew import PYTHON, Crew, Event, Section, data
from support.tracing import needs_tracing

pytestmark = [pytest.mark.timeout(180), needs_tracing]

LATE = str(Path(__file__).parents[1] / "support" / "late_worker.py")
FLAT = {"step": {"base": 1, "per_seq": 0, "max": "30s", "hard_cap": 9}}
DEFAULTS = {
    "startup": {"budget": "60s", "first_step": 0},
    "retry": {"window": "4s"},
    "restart": {"on": "never"},
    "stop": {"grace": "1s"},
}
SECRETS = {
    name: f"s3cr3t-{name}-{os.urandom(8).hex()}"
    for name in ("env", "file", "argument", "printed", "inherited", "url")
}


def late(kind: str, **sections: Any) -> Section:
    return {"command": [PYTHON, LATE, kind], "backend": "flat", "env": {}, **sections}


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    directory = tmp_path_factory.mktemp("secrets")
    secrets = directory / "secrets.env"
    secrets.touch(0o600)
    secrets.write_text(f"OTHER_TOKEN={SECRETS['file']}\n")
    hung = late("lock", output={"mode": "capture"}, env_file=str(secrets))
    url = f"http://me:{SECRETS['url']}@127.0.0.1/"
    hung["command"] += ["--api-key", SECRETS["argument"], f"--hub={url}"]
    hung["env"] = {"HF_TOKEN": SECRETS["env"], "SAYS": f"token={SECRETS['printed']}"}
    workers = {"hung": hung, "slow": late("loop")}
    inherited = {"OUR_SECRET": SECRETS["inherited"]}
    top: dict[str, Any] = {"backends": {"flat": FLAT}, "defaults": DEFAULTS}
    with Crew(workers, env=inherited, **top) as crew:
        crew.wait_transition("hung", "STOPPED")
        crew.wait_transition("slow", "STOPPED")
        for worker in workers:
            crew.wait_event(is_kept_death, worker=worker)
        yield crew


def is_kept_death(event: Event) -> bool:
    return event.kind == "incident" and "-dead-" in event.data_json


def kept(crew: Crew, worker: str, kind: str) -> bundle.Bundle:
    directory = crew.directory / "state" / "incidents"
    names = [name for name in bundle.names(directory) if f"-{worker}-" in name and kind in name]
    assert len(names) == 1, bundle.names(directory)
    return bundle.read_bundle(directory, names[0])


def member(found: bundle.Bundle, name: str) -> Any:
    return json.loads(found.members[name])


def test_a_worker_that_hangs_in_a_lock_is_wedged_and_its_death_says_where(crew: Crew) -> None:
    death = next(e for e in crew.events("hung") if e.to_state == "DEAD")
    assert data(death)["stacks"] == "wedged"
    assert "take_the_lock_twice" in death.sentence
    found = kept(crew, "hung", "-dead-")
    assert member(found, "diff.json")["0"]["place"] == "wedged"
    one, two = (
        next(t for t in member(found, name)["ranks"]["0"]["threads"] if t["main"])
        for name in ("stacks-first.json", "stacks-last.json")
    )
    assert one["frames"] == two["frames"]
    assert "take_the_lock_twice" in one["frames"][0]


def test_a_worker_that_computes_is_moving_and_is_given_its_windows(crew: Crew) -> None:
    retries = [e for e in crew.events("slow") if e.kind == "retry"]
    assert retries
    assert data(retries[0])["stacks"] == "moving"
    # Its CPU alone would not tell it from one that spins.
    assert data(retries[0])["diagnosis"] == "slow"
    # In which function both looks met it is chance: the loop, or one that it calls.
    assert re.search(r"moves within \w+ \(late_worker\.py:", retries[0].sentence)
    assert member(kept(crew, "slow", "-dead-"), "diff.json")["0"]["place"] == "moving"


def test_a_bundle_tells_all_there_is(crew: Crew) -> None:
    found = kept(crew, "hung", "-dead-")
    assert found.faults == ()
    before = kept(crew, "hung", "-unhealthy-")
    assert found.summary.head["follows"] == before.summary.id
    event = next(e for e in crew.events("hung") if is_kept_death(e))
    assert data(event)["seal"] == found.summary.seal
    states = [e.get("to_state") for e in member(found, "events.json")]
    assert "UNHEALTHY" in states
    assert "DEAD" in states
    assert member(found, "budgets.json")[0]["arithmetic"]
    assert member(found, "timeline.json")["ranks"]["0"]
    assert member(found, "config.json")["workers"]["hung"]["step"]["base"] == 1
    assert member(found, "versions.json")["stepwarden"]
    assert member(found, "proc-first.json")["0"][0]["state"]
    assert found.members["output.txt"].startswith(b"says")


def test_a_bundle_is_for_the_owner_alone(crew: Crew) -> None:
    directory = crew.directory / "state" / "incidents"
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    for path in directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert not path.name.startswith(".")


def test_no_secret_is_in_any_bundle(crew: Crew) -> None:
    directory = crew.directory / "state" / "incidents"
    for name in bundle.names(directory):
        found = bundle.read_bundle(directory, name)
        parts = {**found.members, "head": json.dumps(dict(found.summary.head)).encode()}
        for part, raw in parts.items():
            leaked = [key for key, secret in SECRETS.items() if secret.encode() in raw]
            assert not leaked, (name, part)


def test_the_command_asks_the_daemon(crew: Crew) -> None:
    config = ("--config", str(crew.config))
    listed = json.loads(crew.cli("incidents", "--worker", "hung", "--json", *config).stdout)
    assert [one["kind"] for one in listed] == ["unhealthy", "dead"]
    told = crew.cli("incidents", "show", listed[1]["id"], *config)
    assert told.returncode == 0
    assert "take_the_lock_twice" in told.stdout
    exported = crew.cli("incidents", "export", listed[1]["id"], "out.tar.gz", *config)
    assert exported.returncode == 0
    file = crew.directory / "state" / "incidents" / f"{listed[1]['id']}.tar.gz"
    assert (crew.directory / "out.tar.gz").read_bytes() == file.read_bytes()
    unknown = crew.cli("incidents", "show", "nothing", *config)
    assert (unknown.returncode, unknown.stdout) == (4, "")
