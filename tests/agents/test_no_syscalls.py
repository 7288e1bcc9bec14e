"""The hot path makes no system call: strace of the stepping thread shows none."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.agent_process import agent_environment

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


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_twenty_thousand_steps_make_no_system_call(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    # Without -f only the main thread is traced, which is the one that steps.
    done = subprocess.run(
        ["strace", "-o", str(trace), sys.executable, "-c", STEPS],
        env=agent_environment(pages=tmp_path),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if "ptrace" in done.stderr.lower() and not trace.read_text():
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    between = trace.read_text().split("getppid()")[1]
    # A futex hands the interpreter lock to the beat thread now and then; it is not ours.
    calls = [name for name in re.findall(r"^(\w+)\(", between, re.MULTILINE) if name != "futex"]
    assert calls == []
