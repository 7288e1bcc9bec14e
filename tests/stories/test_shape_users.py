"""Workers that run as somebody else and under limits, and env files, with the real daemon."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.crew import PYTHON, Crew, shell, stub

BACKENDS = {"gpu": {"step": {"base": "1s", "per_seq": "0ms"}}}
SOON = {"delay": "100ms", "jitter": 0, "limit": 20}
root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may run workers as others")
TELL = (
    "import json, os, resource, sys; "
    "known = {'uid': os.getuid(), 'gid': os.getgid(), 'groups': os.getgroups(), 'cwd': os.getcwd(),"
    " 'umask': os.umask(0), 'nice': os.nice(0), 'env': dict(os.environ),"
    " 'nofile': resource.getrlimit(resource.RLIMIT_NOFILE),"
    " 'core': resource.getrlimit(resource.RLIMIT_CORE), 'args': sys.argv[1:]}; "
    "f = open(os.environ['TOLD'] + '.new', 'w'); json.dump(known, f); f.close(); "
    "os.rename(os.environ['TOLD'] + '.new', os.environ['TOLD']); "
)
WAIT = "import time; time.sleep(600)"


def readable() -> str:
    """A Python of our own version that any user may run; ours may lie in somebody's home."""
    version = sys.version_info
    for program in (PYTHON, f"/usr/bin/python{version.major}.{version.minor}"):
        path = Path(program).resolve()
        if path.exists() and all(p.stat().st_mode & stat.S_IXOTH for p in (path, *path.parents)):
            return program
    pytest.skip("no Python that every user may run")


def told(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


@pytest.fixture
def open_dir(tmp_path: Path) -> Iterator[Path]:
    """A directory that everybody may reach and write to."""
    place = Path("/tmp") / f"sw-open-{os.getpid()}-{tmp_path.name}"
    place.mkdir()
    place.chmod(0o777)
    yield place
    shutil.rmtree(place)


@root
def test_a_worker_runs_as_its_user_with_what_it_was_given_and_nothing_of_ours(
    open_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = pwd.getpwnam("nobody")
    worker = {
        "command": [readable(), "-c", TELL + WAIT, "${WORD} and $${WORD}"],
        "agent": "none",
        "user": "nobody",
        "umask": "0027",
        "nice": 7,
        "limits": {"nofile": 321, "core": 0},
        "cwd": "${PLACE}",
        "env": {"TOLD": str(open_dir / "told"), "WORD": "said ${PLACE}"},
    }
    monkeypatch.setenv("PLACE", str(open_dir))  # of the daemon, and of `check`
    env = {
        "XDG_RUNTIME_DIR": "/run/user/0",
        "LOGNAME": "root",
        "HOME": "/root",
    }
    with Crew({"w": worker}, backends=BACKENDS, env=env) as crew:
        crew.ready()
        crew.wait_status("w", lambda _: (open_dir / "told").exists(), "it has told")
        found = told(open_dir / "told")
        assert (found["uid"], found["gid"]) == (nobody.pw_uid, nobody.pw_gid)
        assert 0 not in found["groups"]
        assert found["cwd"] == str(open_dir)
        assert (found["umask"], found["nice"]) == (0o027, 7)
        assert found["nofile"] == [321, 321]
        assert found["core"] == [0, 0]
        assert found["args"] == [f"said {open_dir} and ${{WORD}}"]
        theirs = found["env"]
        assert theirs["HOME"] == nobody.pw_dir
        assert theirs["USER"] == theirs["LOGNAME"] == "nobody"
        assert "XDG_RUNTIME_DIR" not in theirs


@root
def test_the_agent_of_another_user_attaches_by_a_socket_and_pages_of_its_own(
    open_dir: Path,
) -> None:
    """Its modules lie where it may read them: a user's workers come with their own environment."""
    nobody = pwd.getpwnam("nobody")
    (open_dir / "packages").mkdir()
    for entry in map(Path, sys.path):
        for name in ("stepwarden_agent", "stepwarden_proto", "google"):
            if (entry / name).is_dir() and not (open_dir / "packages" / name).exists():
                shutil.copytree(entry / name, open_dir / "packages" / name)
    engine = (
        "import time; from stepwarden_agent import Agent; agent = Agent.from_env(phase='idle')\n"
        "for _ in range(6000):\n"
        "    with agent.step(1, 1, phase='decode'): time.sleep(0.05)\n"
        "    time.sleep(0.05)\n"
    )
    worker = {
        "command": [readable(), "-c", engine],
        "backend": "gpu",
        "user": "nobody",
        "cwd": str(open_dir),
        "env": {"PYTHONPATH": str(open_dir / "packages")},
        "output": {"mode": "capture"},
    }
    workers = {"theirs": worker, "ours": stub("attach; step 5")}
    with Crew(workers, backends=BACKENDS) as crew:
        crew.directory.chmod(0o711)
        crew.ready()
        crew.wait_status(
            "theirs", lambda s: bool(s.ranks) and s.ranks[0].steps_ended > 3, "steps are seen"
        )
        seen = crew.wait_status(
            "theirs",
            lambda s: s.ranks[0].beat_age_seconds < 5.0 and s.ranks[0].pid == s.pid,
            "beats",
        )
        assert psutil.Process(seen.pid).uids().real == nobody.pw_uid
        socket = crew.directory / "run" / f"agent-{nobody.pw_uid}.sock"
        facts = socket.stat()
        assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (nobody.pw_uid, 0o600)
        ours = (crew.directory / "run" / "agent.sock").stat()
        assert (ours.st_uid, stat.S_IMODE(ours.st_mode)) == (0, 0o600)
        environ = psutil.Process(seen.pid).environ()
        assert environ["STEPWARDEN_TARGET"] == f"unix:{socket}"
        pages = Path(environ["STEPWARDEN_PAGE_DIR"])
        facts = pages.stat()
        assert (facts.st_uid, stat.S_IMODE(facts.st_mode)) == (nobody.pw_uid, 0o700)
        assert stat.S_IMODE(pages.parent.stat().st_mode) == 0o711
        assert not seen.agent_silent
        assert seen.ranks[0].cpu_percent is not None


@root
def test_a_user_that_cannot_come_to_us_or_is_not_there_is_told_of() -> None:
    workers: dict[str, dict[str, Any]] = {
        "far": {"command": [readable(), "-c", WAIT], "backend": "gpu", "user": "nobody"},
        "none": {"command": [readable(), "-c", WAIT], "agent": "none", "user": "no-such-user"},
    }
    for worker in workers.values():
        worker |= {"cwd": "/", "restart": {"delay": "1s", "jitter": 0, "limit": 2}}
    with Crew(workers, backends=BACKENDS) as crew:
        told = crew.wait_event(lambda e: e.kind == "refused", worker="far")
        assert told.sentence.startswith(
            f"user {pwd.getpwnam('nobody').pw_uid} cannot pass {crew.directory} (mode 0700)"
        )
        failed = crew.wait_state("none", "FAILED")
        assert "there is no user 'no-such-user' on this host" in failed.last_death


def test_env_files_are_read_anew_at_each_start_and_what_is_unset_is_told(tmp_path: Path) -> None:
    secrets = tmp_path / "secrets.env"
    secrets.write_text("SECRET=first\n")
    secrets.chmod(0o600)
    worker = shell(
        f'echo "$SECRET" > {tmp_path}/said; exec sleep 600',
        env_file=str(secrets),
        env={"MORE": "x${SECRET}"},
        restart=SOON,
    )
    with Crew({"w": worker}, backends=BACKENDS) as crew:
        crew.ready()
        said = tmp_path / "said"
        crew.wait_status("w", lambda _: said.exists() and said.read_text() == "first\n", "first")
        secrets.write_text("SECRET=second\n")
        crew.cli("restart", "w", "--config", str(crew.config))
        crew.wait_status("w", lambda _: said.read_text() == "second\n", "second")
        assert psutil.Process(crew.status()["w"].pid).environ()["MORE"] == "xsecond"
        secrets.write_text("OTHER=third\n")
        last = crew.events()[-1].id
        crew.cli("restart", "w", "--no-wait", "--config", str(crew.config))
        dead = crew.wait_transition("w", "DEAD", after=last)
        assert dead.cause == "spawn"
        assert "the variable SECRET is not set" in dead.sentence
        assert "workers.w.env.MORE" in dead.sentence
        secrets.unlink()
        dead = crew.wait_event(lambda e: e.to_state == "DEAD" and str(secrets) in e.sentence)
        assert "No such file" in dead.sentence
        secrets.write_text("SECRET=last\n")
        crew.wait_transition("w", "HEALTHY", after=dead.id)
