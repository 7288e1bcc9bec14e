"""Programs and directories that a file names and this host does not have, as warnings.

Warnings only: the file may be meant for another host, or the disk may be mounted later.
"""

from __future__ import annotations

import os
import stat

from stepwarden.config.findings import Findings
from stepwarden.config.problems import Path
from stepwarden.config.settings import WorkerConfig
from stepwarden.naming import shown


def check_paths(worker: WorkerConfig, findings: Findings) -> None:
    """Say which absolute paths of a worker cannot be what they have to be."""
    here: Path = ("workers", worker.name)
    program = worker.command[0] if worker.command else ""
    for path, text, wants_directory in (
        ((*here, "command", 0), program, False),
        ((*here, "cwd"), worker.cwd or "", True),
    ):
        wrong = _wrong(text, wants_directory) if text.startswith("/") else ""
        if wrong:
            findings.warning(path, f"{shown(text)} {wrong} on this host")


def _wrong(text: str, wants_directory: bool) -> str:
    """What is wrong with a path; "" where nothing is, or nobody can know."""
    try:
        mode = os.stat(text).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "does not exist"
    except OSError:
        return ""
    if wants_directory:
        return "" if stat.S_ISDIR(mode) else "is not a directory"
    if stat.S_ISDIR(mode):
        return "is a directory, not a program,"
    return "" if mode & 0o111 else "is a file that nobody may execute"
