from __future__ import annotations

import signal
from pathlib import Path

from stepwarden.config import load

SAMPLE = """\
supervisor:
  runtime_dir: /run/stepwarden
  state_dir: /var/lib/stepwarden
  health: {listen: ["127.0.0.1:50051"]}
backends:
  gpu: {step: {base: 30s, per_seq: 200ms, max: 30m}}
  cpu: {step: {base: 300s, per_seq: 1s, max: 30m}}
  npu: {step: {rows: {1: 5s, 8: 8s, 64: 40s}, max: 30m}}
defaults:
  heartbeat: {interval: 1s, timeout: 30s}
  startup: {budget: 10m, first_step: 2m}
  retry: {window: 30s, busy_cpu: 5}
  restart: {on: any_exit, delay: 10s, factor: 2, max_delay: 5m, jitter: 0.25, limit: 5,
            within: 30m, stable: 10m}
  stop: {signal: TERM, grace: 30s}
workers:
  gemma-cpu:
    backend: cpu
    engine: vllm
    agent: required             # or optional, none
    max_num_seqs: 64
    command: [vllm, serve, google/gemma, --max-num-seqs, "64"]
    env: {VLLM_CPU_KVCACHE_SPACE: "8"}
"""


def test_the_sample_of_the_design_loads_as_it_is_meant(tmp_path: Path) -> None:
    path = tmp_path / "stepwarden.yaml"
    path.write_text(SAMPLE)
    config = load(path, {})
    worker = config.workers["gemma-cpu"]
    assert config.path == path
    assert [problem.path for problem in config.warnings] == ["backends.npu"]  # nobody uses it
    assert config.supervisor.admin_socket == Path("/run/stepwarden/admin.sock")
    assert config.supervisor.health.addresses == ("127.0.0.1:50051",)
    assert config.backends["npu"].step.budget(9, None).seconds == 40.0
    assert worker.policy.step_budget(16, None).seconds == 316.0
    assert worker.argv == ("vllm", "serve", "google/gemma", "--max-num-seqs", "64")
    assert worker.stop_signal == signal.SIGTERM
    assert worker.env == {"VLLM_CPU_KVCACHE_SPACE": "8"}
