"""tools/check_vllm_hooks.py tells a present hook from a missing and from a changed one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "check_vllm_hooks.py"


@pytest.fixture(scope="module")
def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_vllm_hooks", TOOL)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(root: Path, module: str, text: str) -> None:
    path = root / (module.replace(".", "/") + ".py")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_present_missing_and_changed(tool: ModuleType, tmp_path: Path) -> None:
    write(
        tmp_path,
        "vllm.v1.worker.worker_base",
        "class WorkerWrapperBase:\n    def init_device(self): ...\n"
        "class WorkerBase:\n    def execute_model(self, batch): ...\n",
    )
    rows = tool.check(tmp_path)
    assert rows["WorkerWrapperBase.init_device"] == "yes"
    assert rows["WorkerBase.execute_model"] == "(self, batch)"
    assert rows["WorkerBase.sample_tokens"] == "no"
    assert rows["SchedulerOutput.num_scheduled_tokens"] == "no"


def test_a_method_may_come_from_a_base_in_the_same_module(tool: ModuleType, tmp_path: Path) -> None:
    write(
        tmp_path,
        "vllm.v1.engine.core",
        "class EngineCore:\n    def _process_input_queue(self): ...\n"
        "class EngineCoreProc(EngineCore):\n"
        "    def __init__(self):\n        self.shutdown_state = 1\n",
    )
    rows = tool.check(tmp_path)
    assert rows["EngineCoreProc._process_input_queue"] == "yes"
    assert rows["EngineCoreProc.shutdown_state (optional)"] == "yes"


def test_only_what_the_plugin_needs_is_bad(tool: ModuleType) -> None:
    assert tool.is_bad("WorkerBase.execute_model", "no")
    assert tool.is_bad("WorkerBase.execute_model", "(self, batch)")
    assert not tool.is_bad("WorkerBase.execute_model", "yes")
    assert not tool.is_bad("EngineCoreProc.shutdown_state (optional)", "no")
