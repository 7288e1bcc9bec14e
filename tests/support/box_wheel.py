"""The built wheel inside a box: an environment that also other users of the box may run."""

from __future__ import annotations

import atexit
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from support import systemd_box

ROOT = Path(__file__).resolve().parents[2]
# One that other users may run too; a Python below /root is out of reach for the service's user.
SYSTEM_PYTHON = "/usr/bin/python3"


def unmet() -> str | None:
    """Why tests with the wheel in a box cannot run here; None where they can."""
    reason = no_box()
    if reason is None and not list(ROOT.glob("dist/stepwarden-*.whl")):
        return "there is no wheel in dist/: make wheel"
    return reason


def no_box() -> str | None:
    """Why tests with a Python in a box cannot run here; None where they can."""
    reason = systemd_box.missing()
    if reason is not None:
        return reason
    modern = "import sys, ensurepip; sys.exit(sys.version_info < (3, 11))"
    if subprocess.run([SYSTEM_PYTHON, "-c", modern], check=False, capture_output=True).returncode:
        return f"{SYSTEM_PYTHON} is older than 3.11 or has no venv"
    return None


def install_wheel(share: Path) -> None:
    """An environment inside the share that holds the built wheel, with the daemon's needs."""
    # Linked from one that is made once: that takes far longer than a boot.
    subprocess.run(["cp", "-al", str(_environment()), str(share / "venv")], check=True)


def install_package(share: Path) -> None:
    """The built wheel alone, and what of its needs is not there yet."""
    (wheel,) = ROOT.glob("dist/stepwarden-*.whl")
    pip = [str(share / "venv/bin/python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, f"{wheel}[daemon]", "grpcio-health-checking"], check=True)


@cache
def _environment() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="box-venv-", dir="/var/tmp"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    folder.chmod(0o755)
    subprocess.run([SYSTEM_PYTHON, "-m", "venv", str(folder / "venv")], check=True)
    install_package(folder)
    return folder / "venv"
