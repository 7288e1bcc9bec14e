"""The tests here need the real vLLM; without it they are skipped with the reason."""

from __future__ import annotations

import pytest
from support import vllm_server


@pytest.fixture(scope="session", autouse=True)
def _engine() -> None:
    reason = vllm_server.absent()
    if reason is not None:
        pytest.skip(reason)
