"""What vLLM does by itself: the failure that stepwarden is there for."""

from __future__ import annotations

from concurrent.futures import wait
from pathlib import Path

import pytest
from support import vllm_server
from support.daemon import free_port
from support.vllm_server import Serving

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]


def test_its_own_timeout_kills_an_honest_slow_step(tmp_path: Path) -> None:
    """Four long prompts on a healthy CPU worker: the engine ends itself, with exit code 0."""
    serving = Serving("big", free_port(), max_model_len=4096)
    log = tmp_path / "vllm.log"
    with vllm_server.plain(serving, log, VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS="1") as server:
        client = vllm_server.Client(serving)
        answers = client.start(vllm_server.prompts(4, 2000), max_tokens=4)
        code = server.wait(120)
        done, _ = wait(answers, 60)
        client.close()
    text = log.read_text(errors="replace")
    assert code == 0
    assert "RPC call to execute_model timed out" in text
    assert "EngineDeadError" in text
    assert any(answer.exception() is not None for answer in done)
