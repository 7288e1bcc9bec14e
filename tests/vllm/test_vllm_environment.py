"""What the agent does to the engine's environment: nothing but be there."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from types import ModuleType

import pytest
from support import vllm_server

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(300)]


def tool() -> ModuleType:
    path = vllm_server.ROOT / "tools" / "vllm_env.py"
    spec = importlib.util.spec_from_file_location("vllm_env", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_o_grpc_7_the_engines_own_packages_are_what_they_were() -> None:
    """freeze.txt was written before the agent came."""
    home = vllm_server.home()
    before = (home / "freeze.txt").read_text().splitlines()
    assert tool().freeze(home) == before


def test_o_grpc_7_the_agent_loads_beside_the_engines_own_protobuf() -> None:
    code = (
        "import sys; from stepwarden_proto.v1 import agent_pb2, agent_pb2_grpc;"
        "from stepwarden_agent import Agent; from stepwarden_agent.integrations import vllm;"
        "import google.protobuf as p;"
        "heavy = {'torch', 'vllm', 'psutil', 'pydantic', 'yaml'} & set(sys.modules);"
        "print(p.__version__, sorted(heavy), agent_pb2.Beat(seq=1).seq)"
    )
    python = vllm_server.home() / "venv" / "bin" / "python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    version, rest = done.stdout.strip().split(" ", 1)
    assert int(version.split(".")[0]) >= 5
    assert rest == "[] 1"
    assert sys.executable != str(python)
