"""Engine code with an agent in it, and a real agent service that hears it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.agent_process import agent_environment, engine, short_directory
from support.beat_server import BeatServer


@contextmanager
def heard(
    code: str, directory: Path, pages: Path | None = None
) -> Iterator[tuple[BeatServer, subprocess.Popen[str]]]:
    """The service, and the process that runs `code`; its pages lie in `pages`, or `directory`."""
    with short_directory() as folder:
        target = f"unix:{folder}/s"
        environment = agent_environment(target, pages or directory)
        with (
            BeatServer(target, directory / "log") as server,
            engine(code, environment) as process,
        ):
            yield server, process
