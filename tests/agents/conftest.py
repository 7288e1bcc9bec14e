"""Fixtures for the tests of the vLLM plugin."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
import stepwarden_agent.agent as agent_module
from stepwarden_agent.integrations import vllm_core
from stepwarden_proto.page import ENV_PAGE_DIR, ENV_WORKER
from support import little_vllm
from support.vllm_pages import Modules


@pytest.fixture
def engine() -> Iterator[Modules]:
    with little_vllm.installed() as modules:
        yield modules


@pytest.fixture
def pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> Iterator[Path]:
    tmp_path.chmod(0o700)
    monkeypatch.setenv(ENV_WORKER, "w")
    monkeypatch.setenv(ENV_PAGE_DIR, str(tmp_path))
    monkeypatch.setattr(vllm_core, "_reporter", vllm_core.CoreReporter())
    caplog.set_level(logging.INFO, "vllm.stepwarden")
    yield tmp_path
    for agent in agent_module._agents.values():
        agent.close()
    agent_module._agents.clear()
