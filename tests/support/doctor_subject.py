"""What the checks of `doctor` look at in tests: a real file, and no daemon."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stepwarden.config import Config, load
from stepwarden.doctor.finding import Finding, Level
from stepwarden.doctor.subject import Daemon, Subject

NONE = Daemon(silence="no daemon")
VLLM = "engine: vllm, backend: cpu, max_num_seqs: 64, command: [vllm, serve]"


def subject(
    directory: Path, *workers: str, supervisor: str = "", environment: dict[str, str] | None = None
) -> Subject:
    """A file with these workers, each the inside of a flow mapping, and no daemon."""
    path = directory / "c.yaml"
    where = f"runtime_dir: {directory}/run, state_dir: {directory}/state"
    lines = [f"supervisor: {{{where}{supervisor}}}", "workers:"]
    lines += [f"  w{n}: {{{text}}}" for n, text in enumerate(workers or ("command: [a]",))]
    path.write_text("\n".join(lines) + "\n")
    config: Config = load(path, environment or {})
    every = tuple(config.workers.values())
    return Subject(config.supervisor, every, config, NONE, environment or {})


def worst(findings: Iterable[Finding]) -> Finding:
    order = [Level.PROBLEM, Level.WARNING, Level.UNKNOWN, Level.OK]
    found = min(findings, key=lambda finding: order.index(finding.level))
    assert found.advice or found.level in (Level.OK, Level.UNKNOWN), found
    return found
