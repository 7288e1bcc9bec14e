"""What /proc tells of the daemon, or of ourselves in its place. Nothing here raises."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

CAPABILITIES = {"CAP_DAC_OVERRIDE": 1, "CAP_KILL": 5, "CAP_SETUID": 7, "CAP_SYS_PTRACE": 19}
"""Those that a daemon has a use for, with their bits."""

UNLIMITED = None
_TITLES = {"nofile": "Max open files", "nproc": "Max processes", "memlock": "Max locked memory"}


def text_of(path: Path | str) -> str | None:
    """What a small file holds, without blanks at its ends; None where it cannot be read."""
    try:
        return Path(path).read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def status_of(process: str) -> dict[str, str]:
    """The lines of /proc/PID/status by name; {} where they cannot be read."""
    lines = (text_of(f"/proc/{process}/status") or "").splitlines()
    pairs = (line.partition(":") for line in lines)
    return {name: value.strip() for name, _, value in pairs}


def uid_of(process: str) -> int | None:
    """Its effective user id; None where nobody can tell."""
    words = status_of(process).get("Uid", "").split()
    return int(words[1]) if len(words) > 1 else None


def capabilities_of(process: str) -> frozenset[str] | None:
    """Which of CAPABILITIES it has in effect; None where nobody can tell."""
    mask = status_of(process).get("CapEff", "")
    if not mask:
        return None
    bits = int(mask, 16)
    return frozenset(name for name, bit in CAPABILITIES.items() if bits >> bit & 1)


def limits_of(process: str) -> dict[str, tuple[int | None, int | None]]:
    """Soft and hard limit by the names of the file (nofile, nproc, memlock); None: unlimited."""
    found = {}
    lines = (text_of(f"/proc/{process}/limits") or "").splitlines()
    for name, title in _TITLES.items():
        for line in lines:
            if line.startswith(title):
                soft, hard = line[len(title) :].split()[:2]
                found[name] = (_limit(soft), _limit(hard))
    return found


def environment_of(process: str) -> Mapping[str, str] | None:
    """The environment it was started with; None where it may not be read, or was blanked."""
    try:
        raw = Path(f"/proc/{process}/environ").read_bytes()
    except OSError:
        return None
    pairs = (os.fsdecode(entry).partition("=") for entry in raw.split(b"\0") if b"=" in entry)
    return {name: value for name, _, value in pairs} or None


def _limit(text: str) -> int | None:
    return UNLIMITED if text == "unlimited" else int(text)
