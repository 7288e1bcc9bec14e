"""Whether stacks of workers can be captured here: is py-spy there, and may we read their memory?

py-spy is an optional program of its own, never imported: it reads another process's memory, and
what it may not read it says. All that is known beforehand is told at the start, not at night.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROGRAM = "py-spy"
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")
CAP_SYS_PTRACE = 19

INSTALL = "pip install 'stepwarden[forensics]' beside the daemon"

SCOPES = {
    1: "only of its own descendants",
    2: "only with CAP_SYS_PTRACE",
    3: "of nobody, until the next boot",
}
"""What yama lets a process read, by its ptrace_scope."""


@dataclass(frozen=True, slots=True)
class Tracing:
    """What there is. `py_spy` None: nowhere. `scope` None: no yama. `capable`: CAP_SYS_PTRACE.

    `capable` None: it cannot be read.
    """

    py_spy: str | None = None
    scope: int | None = None
    capable: bool | None = None

    @property
    def refusal(self) -> str:
        """Why nobody's stack can be captured, and what to do; "" where somebody's can."""
        if self.py_spy is None:
            return f"{PROGRAM} is not installed; {INSTALL}"
        if self.scope == 3:
            return "kernel.yama.ptrace_scope is 3: boot without it"
        if self.scope in SCOPES and not self.capable:
            return (
                f"kernel.yama.ptrace_scope is {self.scope} and the daemon lacks CAP_SYS_PTRACE:"
                " give it that (root has it), or set the scope to 0"
            )
        return ""

    def refused(self, others: Sequence[str]) -> str:
        """Why stacks cannot be captured; `others`: workers that run as another user than we."""
        if self.refusal or self.capable or not others:
            return self.refusal
        named = ", ".join(others)
        return f"without CAP_SYS_PTRACE those of other users ({named}) cannot be read"


def find_tracing(process: str = "self") -> Tracing:
    """Look. `process`: whose rights, below /proc. Reads small files of /proc and PATH."""
    return Tracing(find_py_spy(), _scope(), _capable(process))


def find_py_spy() -> str | None:
    """py-spy beside our interpreter, else in PATH; None: nowhere."""
    beside = os.path.join(os.path.dirname(os.path.abspath(sys.executable)), PROGRAM)
    return beside if os.access(beside, os.X_OK) and os.path.isfile(beside) else _in_path()


def _in_path() -> str | None:
    found = shutil.which(PROGRAM)
    return None if found is None else os.path.abspath(found)


def _scope() -> int | None:
    try:
        text = YAMA.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return int(text) if text.isdigit() else None


def _capable(process: str) -> bool | None:
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    for line in status.splitlines():
        name, _, value = line.partition(":")
        if name == "CapEff":
            return bool(int(value.strip(), 16) >> CAP_SYS_PTRACE & 1)
    return None
