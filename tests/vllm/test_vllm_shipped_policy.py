"""The shipped cpu policy on the real vLLM: a large batch of decodes is nothing to speak of."""

from __future__ import annotations

import pytest
from support import vllm_server
from support.daemon import free_port
from support.vllm_daemon import WORKER, supervised
from support.vllm_server import Serving, prompts

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(600)]

BATCH = 64
TOKENS = 48


def test_64_decodes_make_not_one_transition() -> None:
    serving = Serving("mid", free_port(), max_num_seqs=BATCH)
    with supervised(serving) as vllm:
        before = vllm.wait_healthy()
        mark = vllm.last_event()
        answers = vllm.client.start(prompts(BATCH, 16), max_tokens=TOKENS)
        vllm.daemon.wait_status(
            WORKER,
            lambda seen: any(rank.num_seqs == BATCH for rank in seen.ranks),
            f"in a step of {BATCH} sequences",
        )
        assert [answer.result(vllm_server.ANSWER_LIMIT) for answer in answers] == [TOKENS] * BATCH
        assert [event for event in vllm.since(mark) if event.to_state] == []
        assert vllm.status().state == "HEALTHY"
        assert vllm_server.tree(vllm.status().pid) == before
