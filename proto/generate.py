"""Make the gRPC stubs anew, in an environment that holds only what toolchain.txt pins.

Run it as ``python proto/generate.py``; with ``--check`` it writes nothing and exits 1 when the
committed stubs are not what the .proto files give.
"""

from __future__ import annotations

import argparse
import filecmp
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

HERE = Path(__file__).resolve().parent
PACKAGE = HERE / "stepwarden_proto" / "v1"
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


def toolchain(folder: Path) -> Path:
    """Create the pinned generator environment in `folder`; returns its Python."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pins = str(HERE / "toolchain.txt")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "-r", pins], check=True)
    return python


def generate(python: Path, out: Path) -> None:
    """Write the stubs of every .proto file below `out`."""
    sources = [str(path.relative_to(HERE)) for path in sorted(PACKAGE.glob("*.proto"))]
    command = [str(python), "-m", "grpc_tools.protoc", f"-I{HERE}"]
    command += [f"--{kind}_out={out}" for kind in ("python", "pyi", "grpc_python")]
    subprocess.run([*command, *sources], check=True, cwd=HERE)


def stale(out: Path) -> list[str]:
    """Names of committed stubs that differ from those below `out`."""
    made = out / "stepwarden_proto" / "v1"
    names = [path.name for path in made.iterdir() if path.name.endswith(SUFFIXES)]
    _, differing, missing = filecmp.cmpfiles(made, PACKAGE, names, shallow=False)
    return sorted(differing + missing)


def main() -> int:
    """Generate, or compare with --check."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--python", type=Path, help="an environment that already has the pins")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        python = options.python or toolchain(Path(scratch) / "env")
        if not options.check:
            generate(python, HERE)
            return 0
        generate(python, Path(scratch))
        names = stale(Path(scratch))
        for name in names:
            print(f"proto: {name} is not what the .proto file gives; run python proto/generate.py")
        return 1 if names else 0


if __name__ == "__main__":
    sys.exit(main())
