"""The hot path makes no system call: strace of the stepping thread shows none."""

from __future__ import annotations

from pathlib import Path

from support.agent_process import agent_environment
from support.system_calls import needs_strace, system_calls

STEPS = """
import os
from stepwarden_agent import Agent
agent = Agent.from_env()
begin, end = agent.begin, agent.end
for _ in range(100):
    end(begin(4, 100, "decode"))
os.getppid()
for _ in range(20_000):
    end(begin(4, 100, "decode"))
os.getppid()
os._exit(0)
"""


@needs_strace
def test_twenty_thousand_steps_make_no_system_call(tmp_path: Path) -> None:
    _, steps, _ = system_calls(STEPS, agent_environment(pages=tmp_path), tmp_path / "trace")
    assert steps == []
