"""The shapes of the example deployments, scaled down, with real processes."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.crew import PYTHON, Crew, living
from support.daemon import free_port
from support.waiting import wait_for

PROGRAM = str(Path(__file__).parents[1] / "support" / "page_server.py")
DEFAULTS: dict[str, Any] = {
    "agent": "optional",
    "heartbeat": {"timeout": "10s"},
    "startup": {"budget": "500s"},
    "retry": {"window": "10s"},
    "stop": {"signal": "TERM", "grace": "10s"},
    "restart": {"on": "any_exit", "limit": 3, "within": "10m", "delay": "300ms"},
    "output": {"mode": "inherit"},
}
BACKENDS = {"gguf": {"step": {"rows": {1: "2s", 8: "6s"}}}}


def server(name: str, port: int) -> str:
    place = f"${{MODELS_DIR}}/{name}"
    return f"{shlex.quote(PYTHON)} -I -S {shlex.quote(PROGRAM)} {port} {place}"


def processes_of(crew: Crew, name: str) -> list[int]:
    main = psutil.Process(crew.status()[name].pid)
    return [main.pid, *(child.pid for child in main.children(recursive=True))]


def test_d4_shells_with_exec_and_tee_and_one_that_is_started_by_hand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELS_DIR", str(tmp_path / "models"))  # of the daemon, and of `check`
    for name in ("coder", "embed", "vision"):
        (tmp_path / "models" / name).mkdir(parents=True)
        for page in ("listen", "health"):
            (tmp_path / "models" / name / page).touch()
    coder, embed, vision = (free_port() for _ in range(3))
    log = tmp_path / "embed.log"
    health = "http://127.0.0.1:{}/health"
    workers: dict[str, Any] = {
        "coder-7b": {
            "backend": "gguf",
            "shell": f"CUDA_VISIBLE_DEVICES=0 exec {server('coder', coder)}",
            "ready": {"http": health.format(coder)},
        },
        "embed-cpu": {
            "backend": "cpu",
            "shell": f"{{ echo starts; {server('embed', embed)}; }} 2>&1 | tee -a {log}",
            "step": {"rows": {1: "10s", 32: "120s", 512: "900s"}},
            "nice": 5,
            "ready": {"http": health.format(embed)},
        },
        "vision-lab": {
            "backend": "gguf",
            "autostart": False,
            "command": [PYTHON, PROGRAM, str(vision), "${MODELS_DIR}/vision"],
            "env": {"CUDA_VISIBLE_DEVICES": "1"},
            "step": {"rows": {1: "8s"}},
            "restart": {"on": "never"},
            "ready": {"http": health.format(vision)},
        },
    }
    with Crew(workers, backends=BACKENDS, defaults=DEFAULTS) as crew:
        crew.ready("coder-7b", "embed-cpu")
        seen = crew.status()
        assert seen["vision-lab"].state == "STOPPED"
        assert crew.health("ready") == "SERVING", "what waits for its operator is not required"
        coder_process = psutil.Process(seen["coder-7b"].pid)
        assert PROGRAM in coder_process.cmdline(), "exec: no shell stands before it"
        assert coder_process.environ()["CUDA_VISIBLE_DEVICES"] == "0"
        assert log.read_text() == "starts\n"

        tree = processes_of(crew, "embed-cpu")
        assert len(tree) >= 3
        assert all(psutil.Process(pid).nice() == 5 for pid in tree)
        server_of_embed = next(p for p in tree if PROGRAM in psutil.Process(p).cmdline())
        psutil.Process(server_of_embed).kill()
        dead = crew.wait_transition("embed-cpu", "DEAD")
        crew.wait_transition("embed-cpu", "HEALTHY", after=dead.id)
        assert living(tree) == []
        assert log.read_text().count("starts") == 2

        assert crew.cli("start", "vision-lab", "--config", str(crew.config)).returncode == 0
        psutil.Process(crew.status()["vision-lab"].pid).kill()
        crew.wait_transition("vision-lab", "DEAD")
        crew.wait_state("vision-lab", "STOPPED")

        tree = processes_of(crew, "embed-cpu")
        assert crew.cli("stop", "embed-cpu", "--config", str(crew.config)).returncode == 0
        wait_for(lambda: living(tree) == [], what="shell, server and tee are gone")
