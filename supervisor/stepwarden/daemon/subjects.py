"""What a rank runs and where: asked of its agent, its command, and the kernel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import sha256

from stepwarden.config import WorkerConfig
from stepwarden.core.evidence import ProcessId
from stepwarden.core.heartbeat import BeatFacts
from stepwarden.core.subject import Subject, ranges

_MODEL_OPTIONS = ("--model", "--model-path", "--model_path")
_SHORT = ("-m",)
_DTYPE_OPTIONS = ("--dtype",)
_SERVE = "serve"


def subject_of(
    config: WorkerConfig, rank: str, told: BeatFacts, process: ProcessId | None
) -> Subject:
    """For what the times of this rank hold. `process`: in our own pid namespace, where known."""
    argv = config.argv
    return Subject(
        worker=config.name,
        rank=rank,
        model=told.model or model_in(argv),
        engine=told.engine or config.engine or "",
        engine_version=told.engine_version,
        dtype=told.dtype or _option(argv, _DTYPE_OPTIONS),
        backend=config.policy.backend,
        cpus="" if process is None else cpus_of(process),
    )


def model_in(argv: Sequence[str]) -> str:
    """The model that a command line names; one that names none is known by a digest of itself."""
    named = _option(argv, _MODEL_OPTIONS)
    if not named and "python" not in "".join(argv[:1]):  # to a Python it names a module
        named = _option(argv, _SHORT)
    if not named and _SERVE in argv[:-1]:
        following = argv[list(argv).index(_SERVE) + 1]
        named = "" if following.startswith("-") else following
    if named or not argv:
        return named
    digest = sha256("\0".join(argv).encode(errors="replace")).hexdigest()[:12]
    return f"command {digest}"


def cpus_of(process: ProcessId) -> str:
    """On which CPUs it may run; "" where that cannot be seen."""
    try:
        return ranges(frozenset(os.sched_getaffinity(process.pid)))
    except OSError:
        return ""


def _option(argv: Sequence[str], names: Sequence[str]) -> str:
    for position, word in enumerate(argv):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else next(iter(argv[position + 1 : position + 2]), "")
    return ""
