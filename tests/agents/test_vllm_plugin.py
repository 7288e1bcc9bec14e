"""The vLLM plugin against the shape of vLLM's classes; tests/vllm has the real engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from stepwarden_agent import Agent
from stepwarden_agent.integrations import vllm, vllm_core, vllm_hooks
from stepwarden_proto.page import (
    W_CLOSED,
    W_LEASE_NS,
    W_LOOP_TURNS,
    W_UNFINISHED,
    page_name,
)
from support import little_vllm
from support.little_vllm import Output, Worker, scheduled
from support.vllm_pages import Modules, Page, ready


def test_without_a_supervisor_nothing_is_touched(engine: Modules) -> None:
    original = engine["vllm.v1.worker.worker_base"].WorkerWrapperBase.init_device
    vllm.register()
    assert engine["vllm.v1.worker.worker_base"].WorkerWrapperBase.init_device is original


def test_registering_makes_no_contact_and_a_second_time_changes_nothing(
    engine: Modules, pages: Path
) -> None:
    vllm.register()
    wrapped = engine["vllm.v1.engine.core"].EngineCoreProc._process_input_queue
    vllm.register()
    assert engine["vllm.v1.engine.core"].EngineCoreProc._process_input_queue is wrapped
    assert list(pages.iterdir()) == []


def test_the_process_that_inspects_model_classes_is_left_alone(
    engine: Modules, pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del pages
    main = ModuleType("__main__")
    main.__spec__ = type("Spec", (), {"name": "vllm.model_executor.models.registry"})()
    monkeypatch.setitem(sys.modules, "__main__", main)
    original = engine["vllm.v1.worker.worker_base"].WorkerWrapperBase.init_device
    vllm.register()
    assert engine["vllm.v1.worker.worker_base"].WorkerWrapperBase.init_device is original


def test_a_missing_hook_is_named_once_and_the_engine_left_as_it_is(
    engine: Modules, pages: Path, caplog: pytest.LogCaptureFixture
) -> None:
    del pages
    core = engine["vllm.v1.engine.core"]
    del core.EngineCoreProc._process_input_queue
    before = core.EngineCore.add_request
    vllm.register()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 1
    assert "EngineCoreProc._process_input_queue" in lines[0]
    assert core.EngineCore.add_request is before


def test_the_phases_of_a_start(engine: Modules, pages: Path) -> None:
    vllm.register()
    worker = Worker()
    page = Page(pages, "rank0")
    seen = []

    def look(name: str, answer: Any) -> Any:
        def method(*_: Any) -> Any:
            seen.append((name, page.phase()))
            return answer

        return method

    for name in ("init_device", *vllm_hooks.STARTUP_PHASES):
        setattr(worker, name, look(name, name))
    ready(engine, worker)
    assert seen == [
        ("init_device", "loading"),
        ("load_model", "loading"),
        ("determine_available_memory", "compiling"),
        ("initialize_from_config", "warmup"),
        ("compile_or_warm_up_model", "warmup"),
    ]
    assert page.phase() == "idle"
    assert worker.load_model() == "load_model"


def test_steps_of_the_warm_up_are_not_reported(engine: Modules, pages: Path) -> None:
    vllm.register()
    worker = Worker()
    worker.warm_up_steps = [scheduled({"a": 1})] * 3
    ready(engine, worker)
    assert Page(pages, "rank0").begun() == 0


def test_an_engine_that_skips_the_warm_up_is_up_with_its_first_step(
    engine: Modules, pages: Path
) -> None:
    vllm.register()
    worker = Worker()
    engine["vllm.v1.worker.worker_base"].WorkerWrapperBase(worker).init_device()
    assert Page(pages, "rank0").phase() == "loading"
    worker.execute_model(scheduled({"a": 1}))
    assert Page(pages, "rank0").phase() == "idle"
    assert Page(pages, "rank0").begun() == 1


def test_a_reload_in_service_is_a_lease_and_not_a_start(engine: Modules, pages: Path) -> None:
    vllm.register()
    worker = Worker()
    page = Page(pages, "rank0")
    leases: list[int] = []
    vars(worker).update(load_model=lambda: leases.append(page.words()[W_LEASE_NS]))
    ready(engine, worker)
    worker.load_model()
    assert leases == [0, 600 * 10**9]
    assert page.phase() == "idle"
    assert page.words()[W_LEASE_NS] == 0


def test_ranks_of_data_parallel_engines_have_names_of_their_own(
    engine: Modules, pages: Path
) -> None:
    vllm.register()
    sizes = {"world_size": 2, "tensor_parallel_size": 2}
    for index in (0, 1):
        for rank in (0, 1):
            ready(engine, Worker(rank=rank, data_parallel_index=index, **sizes))
    names = {path.name.split(".")[0] for path in pages.glob("*.page")}
    assert names == {"rank0", "rank1", "rank2", "rank3"}


def test_the_agent_is_told_which_model_runs_and_trouble_there_costs_no_step(
    engine: Modules, pages: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, str]] = []
    monkeypatch.setattr(Agent, "about", lambda _, **facts: told.append(facts))
    vllm.register()
    worker = Worker()
    vars(worker)["model_config"] = SimpleNamespace(model="google/gemma", dtype="torch.bfloat16")
    ready(engine, worker)
    assert (told[0]["engine"], told[0]["model"]) == ("vllm", "google/gemma")
    assert told[0]["dtype"] == "bfloat16"

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("about")

    monkeypatch.setattr(Agent, "about", fail)
    worker = ready(engine, Worker(rank=1, world_size=2))
    worker.execute_model(scheduled({"a": 1}))
    assert Page(pages, "rank1").begun() == 1


def test_a_worker_that_is_shut_down_says_bye(engine: Modules, pages: Path) -> None:
    vllm.register()
    worker = ready(engine, Worker())
    worker.shutdown()
    assert Page(pages, "rank0").words()[W_CLOSED] == 1


def test_trouble_of_ours_never_reaches_the_engine(
    engine: Modules, pages: Path, caplog: pytest.LogCaptureFixture
) -> None:
    vllm.register()
    odd = Worker()
    del odd.parallel_config
    ready(engine, odd)
    assert isinstance(odd.execute_model(scheduled({"a": 1})), Output)
    assert "steps are not reported" in caplog.text
    worker = ready(engine, Worker())
    assert isinstance(worker.execute_model("nothing that a scheduler gives out"), Output)
    assert Page(pages, "rank0").begun() == 0


def test_the_worker_extension_attaches_the_same_reporter(engine: Modules, pages: Path) -> None:
    class Extended(Worker, vllm.WorkerExtension):
        def init_device(self) -> None:
            super().init_device()
            self.init_worker_extension()  # as vLLM 0.33 does

    vllm.register()
    worker = ready(engine, Extended())
    worker.execute_model(scheduled({"a": 1}))
    assert Page(pages, "rank0").begun() == 1
    assert len(list(pages.glob("*.page"))) == 1


def test_the_worker_extension_alone_is_enough(pages: Path) -> None:
    class Extended(Worker, vllm.WorkerExtension):
        pass

    worker = Extended()
    worker.init_worker_extension()
    worker.execute_model(scheduled({"a": 1}))
    assert Page(pages, "rank0").begun() == 1


def test_the_core_reports_its_queue_and_its_turns(engine: Modules, pages: Path) -> None:
    vllm.register()
    core = engine["vllm.v1.engine.core"].EngineCoreProc()
    vllm_core._reporter.load(core.vllm_config)
    page = Page(pages, "core")
    assert page.phase() == "loading"
    core._process_input_queue()
    assert page.phase() == "idle"
    assert page.words()[W_UNFINISHED] == 2
    assert page.words()[W_LOOP_TURNS] == 2


def test_a_request_counts_before_the_core_has_taken_it_in(engine: Modules, pages: Path) -> None:
    """Taking in a request may hang as well (a grammar to compile, pictures to fetch)."""
    vllm.register()
    core = engine["vllm.v1.engine.core"].EngineCoreProc()
    core._process_input_queue()
    core.scheduler.unfinished = 0
    core.add_request(object())
    assert Page(pages, "core").words()[W_UNFINISHED] == 1


def test_the_core_of_a_further_data_parallel_engine(engine: Modules, pages: Path) -> None:
    vllm.register()
    engine["vllm.v1.engine.core"].EngineCoreProc(index=3)._process_input_queue()
    assert (pages / page_name("core3", os.getpid())).exists()


def test_an_engine_in_the_main_process_has_no_loop_and_no_core(
    engine: Modules, pages: Path
) -> None:
    vllm.register()
    core = engine["vllm.v1.engine.core"].EngineCore()
    engine["vllm.v1.executor.abstract"].Executor(core.vllm_config)
    core.add_request(object())
    assert core.shutdown() == "down"
    assert list(pages.glob("core*")) == []


def test_a_core_says_bye_only_when_it_was_asked_to_end(engine: Modules, pages: Path) -> None:
    vllm.register()
    core = engine["vllm.v1.engine.core"].EngineCoreProc()
    core._process_input_queue()
    assert core.shutdown() == "down"
    assert Page(pages, "core").words()[W_CLOSED] == 0
    core.shutdown_state = little_vllm.State.REQUESTED
    core.shutdown()
    assert Page(pages, "core").words()[W_CLOSED] == 1


def test_a_core_without_a_shutdown_state_says_bye_on_system_exit(
    engine: Modules, pages: Path
) -> None:
    vllm.register()
    core = engine["vllm.v1.engine.core"].EngineCoreProc()
    core._process_input_queue()
    del core.shutdown_state
    try:
        raise SystemExit
    except SystemExit:
        core.shutdown()
    assert Page(pages, "core").words()[W_CLOSED] == 1


def test_a_process_that_leaves_without_being_asked_says_no_bye(pages: Path) -> None:
    """An engine that has failed leaves by itself too; that is a death, not a clean end."""
    script = (
        "from support import little_vllm\n"
        "from stepwarden_agent.integrations import vllm\n"
        "with little_vllm.installed() as modules:\n"
        "    vllm.register()\n"
        "    base = modules['vllm.v1.worker.worker_base']\n"
        "    base.WorkerWrapperBase(little_vllm.Worker()).init_device()\n"
        "    modules['vllm.v1.engine.core'].EngineCoreProc()._process_input_queue()\n"
    )
    paths = [*sys.path, str(Path(little_vllm.__file__).parents[1])]
    env = os.environ | {"PYTHONPATH": ":".join(filter(None, paths))}
    subprocess.run([sys.executable, "-c", script], env=env, check=True, timeout=60)
    left = list(pages.glob("*.page"))
    assert len(left) == 2
    for page in left:
        assert memoryview(page.read_bytes()).cast("q")[W_CLOSED] == 0
