"""Which system calls a thread makes, as strace tells it."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

STRACE = shutil.which("strace")

needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed")


def system_calls(code: str, environment: Mapping[str, str], trace: Path) -> list[list[str]]:
    """Names of the calls of the main thread of `code`, in pieces that its `getppid` part.

    A futex hands the interpreter lock to another thread now and then, and is left out. Skips the
    test where strace may not trace.
    """
    # Without -f only the main thread is traced.
    done = subprocess.run(
        [str(STRACE), "-o", str(trace), sys.executable, "-c", code],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    if "ptrace" in done.stderr.lower() and not trace.read_text():
        pytest.skip(f"strace may not trace here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    pieces = trace.read_text().split("getppid()")
    return [
        [name for name in re.findall(r"^(\w+)\(", piece, re.MULTILINE) if name != "futex"]
        for piece in pieces
    ]
