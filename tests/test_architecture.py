"""The rules of the house, checked in the source: who may import what, read clocks, subtract times.

Each rule is a small function over the syntax trees of the files, and each has a proof that it
finds what it forbids. ARCHITECTURE.md says why the rules are there.
"""

from __future__ import annotations

import ast
import os
import statistics
import sys
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import stepwarden

ROOT = Path(__file__).resolve().parents[1]
SUPERVISOR = ROOT / "supervisor" / "stepwarden"
CORE = SUPERVISOR / "core"
AGENT = ROOT / "agents" / "stepwarden_agent"
PROTO = ROOT / "proto" / "stepwarden_proto"

# What a decision may be made with: values and arithmetic. Everything else is the world.
CORE_STDLIB = {
    "__future__",
    "abc",
    "bisect",
    "collections",
    "collections.abc",
    "dataclasses",
    "enum",
    "functools",
    "itertools",
    "math",
    "operator",
    "statistics",
    "signal",  # the names of signals, for sentences; see CORE_CALLS
    "types",
    "typing",
}
CORE_OWN = ("stepwarden.core.", "stepwarden_proto.page")
# Names of modules that are pure to import but can act: only these attributes may be used.
CORE_ATTRIBUTES = {"signal": {"Signals"}}
CORE_BUILTINS_FORBIDDEN = {"open", "print", "input", "exec", "eval", "__import__", "breakpoint"}

CLOCK_CALLS = {
    ("time", "time"),
    ("time", "time_ns"),
    ("time", "monotonic"),
    ("time", "monotonic_ns"),
    ("time", "perf_counter"),
    ("time", "perf_counter_ns"),
    ("time", "clock_gettime"),
    ("time", "clock_gettime_ns"),
    ("time", "localtime"),
    ("time", "gmtime"),
    ("datetime", "now"),
    ("datetime", "utcnow"),
    ("datetime", "today"),
    ("date", "today"),
}
# The module that stands for each package that we need at run time.
IMPORTED_AS = {
    "grpcio": "grpc",
    "grpcio-reflection": "grpc_reflection.v1alpha",
    "jeepney": "jeepney",
    "numpy": "numpy",
    "prometheus-client": "prometheus_client",
    "protobuf": "google.protobuf",
    "psutil": "psutil",
    "pydantic": "pydantic",
    "pyyaml": "yaml",
    "structlog": "structlog",
    "textual": "textual.app",
}
INSTANT_NAMES = {"now", "deadline", "at", "begin", "began", "since", "monotonic"}

Finding = tuple[int, str]
Rule = Callable[[ast.Module], Iterator[Finding]]


def sources(*folders: Path) -> list[Path]:
    """Every Python file below, generated stubs left out."""
    found = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    return [path for path in found if "_pb2" not in path.name]


def imports(tree: ast.Module) -> Iterator[Finding]:
    """Each imported module with its line; `from a import b` gives a."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.lineno, "." * node.level + (node.module or "")


def imported_names(tree: ast.Module) -> Iterator[Finding]:
    """As `imports`, and `from a import b` gives a.b as well."""
    yield from imports(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def last_name(node: ast.expr) -> str:
    """`now` for now, x.now and x.now(); "" for what has no name."""
    if isinstance(node, ast.Call):
        return last_name(node.func)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def dotted_calls(tree: ast.Module) -> Iterator[tuple[int, str, str]]:
    """Each `owner.name(...)`, as line, last name of the owner, name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.lineno, last_name(node.func.value), node.func.attr


# The rules


def impure_imports(tree: ast.Module) -> Iterator[Finding]:
    """Core: only values and arithmetic, itself, and the layout of the page."""
    for line, name in imports(tree):
        # The dot makes the package itself and each of its modules look alike.
        own = any(f"{name}.".startswith(prefix.rstrip(".") + ".") for prefix in CORE_OWN)
        if name not in CORE_STDLIB and not own:
            yield line, f"imports {name}"


def impure_uses(tree: ast.Module) -> Iterator[Finding]:
    """Core: no builtin that touches the world, no acting half of an allowed module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in CORE_BUILTINS_FORBIDDEN:
            yield node.lineno, f"uses {node.id}"
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            allowed = CORE_ATTRIBUTES.get(node.value.id)
            if allowed is not None and node.attr not in allowed:
                yield node.lineno, f"uses {node.value.id}.{node.attr}"
        if isinstance(node, ast.AsyncFunctionDef):
            yield node.lineno, "is asynchronous"


def clock_reads(tree: ast.Module) -> Iterator[Finding]:
    """Outside clock.py: no clock is read, and none is imported by its bare name."""
    for line, owner, name in dotted_calls(tree):
        if (owner, name) in CLOCK_CALLS or (name == "time" and owner.endswith("loop")):
            yield line, f"reads {owner}.{name}()"
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            yield node.lineno, "imports names from time"


def subtracted_instants(tree: ast.Module) -> Iterator[Finding]:
    """Outside core/deadline.py: nothing that is named like an instant is an operand of `-`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
            operands = [node.left, node.right]
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Sub):
            operands = [node.target, node.value]
        else:
            continue
        for name in map(last_name, operands):
            if name in INSTANT_NAMES or name.endswith(("_at", "_since")):
                yield node.lineno, f"subtracts {name}"


def blocking_or_forking(tree: ast.Module) -> Iterator[Finding]:
    """Supervisor: no sleep in a thread, no fork, no subprocess of the standard library."""
    for line, owner, name in dotted_calls(tree):
        if (owner, name) == ("time", "sleep"):
            yield line, "sleeps"
        if owner == "os" and name in {"fork", "forkpty", "system", "popen", "posix_spawn"}:
            yield line, f"uses os.{name}"
        if name in {"create_subprocess_exec", "create_subprocess_shell", "subprocess_exec"}:
            yield line, f"uses {name}"
    for line, module in imported_names(tree):
        if module.split(".")[0] in {"subprocess", "multiprocessing"}:
            yield line, f"imports {module}"


def uses_edge(tree: ast.Module) -> Iterator[Finding]:
    """Core: never imports what touches the world."""
    for line, name in imported_names(tree):
        if name.startswith(("stepwarden.edge", "stepwarden.cli", "stepwarden.daemon")):
            yield line, f"imports {name}"


def foreign_to_the_agent(tree: ast.Module) -> Iterator[Finding]:
    """Agent: the standard library, protobuf, the wire formats and itself; no grpc."""
    for line, name in imported_names(tree):
        top = name.split(".")[0]
        own = top in {"stepwarden_agent", "stepwarden_proto"} and not name.endswith("_pb2_grpc")
        if own or top in sys.stdlib_module_names or name.startswith("google.protobuf"):
            continue
        yield line, f"imports {name}"


def broken(rule: Rule, files: list[Path]) -> list[str]:
    """What a rule finds, one line each."""
    lines = []
    for path in files:
        tree = ast.parse(path.read_text(encoding="utf-8"))
        lines += [f"{path.relative_to(ROOT)}:{line} {text}" for line, text in rule(tree)]
    return lines


# The launcher of workers is the one place that starts processes, and it does so on a small helper
# program of its own; the demo is a program apart, that starts the daemon as an operator would.
STARTS_PROCESSES = {SUPERVISOR / "edge" / "launcher.py"}
DEMO = SUPERVISOR / "demo"


def daemon_sources() -> list[Path]:
    """The supervisor without its demonstration."""
    return [path for path in sources(SUPERVISOR) if DEMO not in path.parents]


@pytest.mark.parametrize("rule", [impure_imports, impure_uses, uses_edge])
def test_core_is_pure(rule: Rule) -> None:
    assert broken(rule, sources(CORE)) == []


def test_only_one_module_reads_clocks() -> None:
    files = [path for path in daemon_sources() if path != SUPERVISOR / "clock.py"]
    assert broken(clock_reads, files) == []


def test_only_one_module_subtracts_instants() -> None:
    files = [path for path in daemon_sources() if path != CORE / "deadline.py"]
    assert broken(subtracted_instants, files) == []


def test_the_daemon_never_sleeps_or_forks() -> None:
    files = [path for path in daemon_sources() if path not in STARTS_PROCESSES]
    assert broken(blocking_or_forking, files) == []


def test_the_agent_brings_nothing_into_the_engine() -> None:
    assert broken(foreign_to_the_agent, sources(AGENT, PROTO)) == []


def test_modules_stay_small() -> None:
    files = sources(SUPERVISOR, AGENT, PROTO)
    lengths = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in files}
    assert statistics.median(lengths.values()) < 200
    assert {name: length for name, length in lengths.items() if length > 500} == {}


def test_every_module_of_tests_has_a_name_of_its_own() -> None:
    """Two of one name are one module for pytest, which then runs only the first."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []


def test_every_declared_dependency_is_used_and_explained() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["daemon"], *extras["demo"]]
    packages = {requirement.split(">=")[0] for requirement in declared}
    assert packages == set(IMPORTED_AS)
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in sources(SUPERVISOR, AGENT)]
    used = {name for tree in trees for _, name in imported_names(tree)}
    unused = {package for package in packages if IMPORTED_AS[package] not in used}
    assert unused == set()
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8").lower()
    assert {package for package in packages if f"| {package} |" not in text} == set()


@pytest.mark.skipif("STEPWARDEN_TEST_BUILT" not in os.environ, reason="make test sets this")
def test_the_tests_run_on_the_built_package() -> None:
    assert "site-packages" in Path(stepwarden.__file__).parts


@pytest.mark.parametrize(
    ("rule", "code", "expected"),
    [
        (impure_imports, "import time", "imports time"),
        (impure_imports, "from pathlib import Path", "imports pathlib"),
        (impure_imports, "from stepwarden.clock import Clock", "imports stepwarden.clock"),
        (impure_imports, "import stepwarden.corex", "imports stepwarden.corex"),
        (impure_uses, "signal.raise_signal(9)", "uses signal.raise_signal"),
        (impure_uses, "open('x')", "uses open"),
        (impure_uses, "async def f(): ...", "is asynchronous"),
        (uses_edge, "from stepwarden import edge", "imports stepwarden.edge"),
        (clock_reads, "time.monotonic()", "reads time.monotonic()"),
        (clock_reads, "datetime.datetime.now()", "reads datetime.now()"),
        (clock_reads, "self._loop.time()", "reads _loop.time()"),
        (clock_reads, "asyncio.get_running_loop().time()", "reads get_running_loop.time()"),
        (clock_reads, "from time import monotonic", "imports names from time"),
        (subtracted_instants, "now - beat.since", "subtracts now"),
        (subtracted_instants, "x = self.clock.monotonic() - y", "subtracts monotonic"),
        (subtracted_instants, "y - worker.spawned_at", "subtracts spawned_at"),
        (subtracted_instants, "now -= 5", "subtracts now"),
        (blocking_or_forking, "time.sleep(1)", "sleeps"),
        (blocking_or_forking, "os.fork()", "uses os.fork"),
        (blocking_or_forking, "import subprocess", "imports subprocess"),
        (
            blocking_or_forking,
            "asyncio.create_subprocess_exec('x')",
            "uses create_subprocess_exec",
        ),
        (foreign_to_the_agent, "import numpy", "imports numpy"),
        (foreign_to_the_agent, "import grpc", "imports grpc"),
        (
            foreign_to_the_agent,
            "from stepwarden_proto.v1 import agent_pb2_grpc",
            "imports stepwarden_proto.v1.agent_pb2_grpc",
        ),
        (foreign_to_the_agent, "from stepwarden.clock import Clock", "imports stepwarden.clock"),
    ],
)
def test_each_rule_finds_what_it_forbids(rule: Rule, code: str, expected: str) -> None:
    found = [text for _, text in rule(ast.parse(code))]
    assert expected in found


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        (impure_imports, "from stepwarden.core import budget\nfrom stepwarden_proto.page import X"),
        (impure_uses, "signal.Signals(9)"),
        (subtracted_instants, "len(rows) - 1"),
        (subtracted_instants, "elapsed(since, now) - 1.0"),
        (clock_reads, "clock.monotonic()"),
        (
            foreign_to_the_agent,
            "from google.protobuf import json_format\nfrom stepwarden_proto.v1 import agent_pb2",
        ),
    ],
)
def test_each_rule_leaves_the_allowed_alone(rule: Rule, code: str) -> None:
    assert list(rule(ast.parse(code))) == []
