"""Configuration texts as they load, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from stepwarden.config import Config, ConfigError
from stepwarden.config.loader import load_text

RICH = """\
supervisor: {on_exit: leave, runner: spawn, stop_limit: 10m}
backends: {npu: {step: {rows: {1: 5s}}}}
defaults:
  user: inference
  limits: {memlock: unlimited, core: 0}
  output: {mode: capture, max_file: 1GB, keep: 0}
  restart: {limit: 7, delay: 1s, expect_external: 1m}
  heartbeat: {timeout: 20s}
groups:
  pair: {members: [a, b], on_dead: restart_rest, restart: {within: 2h}}
workers:
  a:
    backend: npu
    command: [serve, "${PORT}", "$${X}"]
    runner: systemd
    group: "20"
    umask: "0027"
    nice: -5
    limits: {nofile: 1048576, stack: 8MiB, as: 1.5GiB}
    cwd: ${BASE}/run
    env: {A: "${PORT}", EMPTY: ""}
    pre_start: {command: [clear, "${PORT}"], ignore_failure: true, timeout: 5s}
    stop: {command: [halt, "${A}"], timeout: 40s, signal: INT, grace: 3s}
    ready: {grpc: "127.0.0.1:50052", service: model, interval: 3s, timeout: 4s}
    progress: {url: "http://127.0.0.1:8000/metrics", counter: [x:a, x:b], work: x:c, interval: 2s,
               budget: 90s}
    release: {ports: [8000, 8001], files: [/run/gpu.lock], command: [free, "${PORT}"], limit: 9s}
    drain: 30s
    output: {mode: append, path: "${BASE}/log"}
    restart: {"on": failure}
  b: {backend: cpu, shell: "exec b ${BASE}", agent: none, needs: [a], ready: {command: [ok]}}
  c: {backend: cpu, unit: "c@${PORT}.service", agent: optional, ready: {delay: 5s}}
  d: {backend: cpu, attach: {expect_user: root}, ready: {tcp: "[::1]:80"}, restart: {limit: 2}}
  e: {backend: cpu, command: [e], restart: {"on": never}, ready: {http: "https://h/x", status: 204}}
"""
"""Every key of a worker but those of its steps; needs RICH_ENVIRONMENT."""

RICH_ENVIRONMENT = {"PORT": "8000", "BASE": "/srv"}


def loaded(text: str, environment: Mapping[str, str] | None = None) -> Config:
    """What a text says."""
    return load_text(text, Path("c.yaml"), environment or {})


def errors(text: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every error of a text that cannot be used, by path, as the operator reads it."""
    with pytest.raises(ConfigError) as caught:
        loaded(text, environment)
    return {p.path: str(p) for p in caught.value.problems if p.severity == "error"}


def warnings(text: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every warning of a text that can be used, by path."""
    return {p.path: p.message for p in loaded(text, environment).warnings}
