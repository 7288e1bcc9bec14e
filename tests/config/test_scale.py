"""A thousand workers are checked quickly, and looking up a socket needs no pydantic."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
import yaml
from stepwarden.config import ConfigError, load
from stepwarden.config.sockets import DEFAULT_RUNTIME_DIR, find_admin_socket

T = TypeVar("T")

WORKER = """\
  worker-{n}:
    backend: cpu
    engine: vllm
    agent: required
    max_num_seqs: 64
    command: [vllm, serve, google/gemma, --max-num-seqs, "64", --port, "{n}"]
    env: {{VLLM_CPU_KVCACHE_SPACE: "8", OMP_NUM_THREADS: "1"}}
    startup: {{budget: 20m}}
    restart: {{within: 4h, limit: 3}}
    step: {{base: 100s}}
"""

RICH = (
    WORKER
    + """\
    env_file: ${{SECRETS}}
    user: root
    limits: {{nofile: 1048576, memlock: unlimited}}
    cwd: ${{BASE}}
    pre_start: {{command: [clear, "${{BASE}}", "{n}"]}}
    ready: {{http: "http://127.0.0.1:8000/health"}}
    progress: {{url: "http://127.0.0.1:8000/metrics", counter: a, work: b}}
    release: {{ports: [8000]}}
    needs: [{before}]
    output: {{mode: capture}}
"""
)


def _cpu_seconds(work: Callable[[], T]) -> tuple[T, float]:
    """CPU time, since the machine may be shared."""
    begin = time.process_time()
    result = work()
    return result, time.process_time() - begin


@pytest.mark.parametrize("worker", [WORKER, RICH], ids=["plain", "rich"])
def test_a_thousand_workers_cost_little_more_than_their_yaml(worker: str, tmp_path: Path) -> None:
    # Measured: 2.4 and 1.6 times the bare parse by libyaml, which is 0.6 s and 0.9 s.
    secrets = tmp_path / "secrets.env"
    secrets.touch(0o600)
    secrets.write_text("TOKEN=1\n")
    environment = {"SECRETS": str(secrets), "BASE": str(tmp_path)}
    file = tmp_path / "c.yaml"
    lines = [worker.format(n=n, before=f"worker-{n - 1}" if n else "") for n in range(1000)]
    text = "workers:\n" + "".join(lines)
    file.write_text(text)
    bare, reference = _cpu_seconds(lambda: yaml.load(text, yaml.CSafeLoader))
    config, seconds = _cpu_seconds(lambda: load(file, environment, on_this_host=True))
    assert len(config.workers) == len(bare["workers"]) == 1000
    assert config.warnings == ()
    assert seconds < 6 * reference


def test_a_socket_is_found_without_checking_the_rest(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    for text, wanted in {
        "nonsense: 1\n": f"{DEFAULT_RUNTIME_DIR}/admin.sock",
        "supervisor: {runtime_dir: /x/y}\n": "/x/y/admin.sock",
        "supervisor: {runtime_dir: /x/y, admin_socket: /z}\n": "/z",
    }.items():
        file.write_text(text)
        assert find_admin_socket(file) == Path(wanted)


@pytest.mark.parametrize(
    "text", ["", "- a\n", "supervisor: 5\n", "supervisor: {admin_socket: here}\n", "a: [\n"]
)
def test_a_socket_that_cannot_be_found_is_one_line(text: str, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(text)
    if not text:
        assert find_admin_socket(file) == Path(DEFAULT_RUNTIME_DIR) / "admin.sock"
        return
    with pytest.raises(ConfigError) as caught:
        find_admin_socket(file)
    assert "\n" not in str(caught.value)


def test_pydantic_is_imported_only_when_a_file_is_loaded() -> None:
    code = (
        "import sys, stepwarden.config, stepwarden.config.sockets;"
        "sys.exit('pydantic' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
