"""The policy for engine authors: the five guards, and verdicts on real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

import psutil
import pytest
import stepwarden
from hypothesis import given
from hypothesis import strategies as st
from stepwarden import (
    Backend,
    RpcTimeoutPolicy,
    Ruling,
    configure_engine_timeout,
    on_rpc_timeout,
    policy,
)
from stepwarden.config import engines
from stepwarden.core.budget import SHIPPED
from stepwarden.core.evidence import CpuSample, ProcessId
from support.waiting import wait_for

CPU, GPU = RpcTimeoutPolicy(Backend.CPU), RpcTimeoutPolicy(Backend.GPU)
LIMIT = 30.0
"""Seconds that a test waits for a process to do what it was started for."""


@dataclass
class StepClock:
    """Monotonic time that the test moves on; each process below has a life in real time."""

    now: float = 1000.0

    def monotonic(self) -> float:
        return self.now

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC)


Start = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a Python program that says when it is ready; ends it afterwards."""
    started: list[subprocess.Popen[bytes]] = []

    def begin(code: str) -> subprocess.Popen[bytes]:
        program = f"import time\nprint('up', flush=True)\n{code}"
        process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.wait(LIMIT)
        if process.stdout is not None:
            process.stdout.close()


BUSY = "while True: pass"
ASLEEP = "time.sleep(3600)"


def use_cpu(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Wait until a busy process has used so much more CPU."""
    handle = psutil.Process(process.pid)
    begin = sum(handle.cpu_times()[:2])
    wait_for(lambda: sum(handle.cpu_times()[:2]) >= begin + seconds)


# The five guards (issue 2, 5a), of which the first three are arithmetic.


@given(st.integers(1, 8849))
def test_guard_1_a_cpu_gets_more_than_a_gpu_at_the_same_batch(batch: int) -> None:
    assert CPU.compute(batch) > GPU.compute(batch)


@given(st.integers(1, 100_000), st.integers(0, 1000))
def test_guard_2_it_grows_with_the_batch(batch: int, more: int) -> None:
    for each in (CPU, GPU):
        assert each.compute(batch + more) >= each.compute(batch)
    assert GPU.compute(64) > GPU.compute(1)
    assert CPU.compute(64) > CPU.compute(1)


@given(st.integers(1, 10**9))
def test_guard_3_it_is_capped(batch: int) -> None:
    assert GPU.compute(batch) <= CPU.compute(batch) <= 1800.0


def test_guard_4_alive_and_busy_is_retried(start: Start) -> None:
    worker, clock = start(BUSY), StepClock()
    assert on_rpc_timeout(worker, 990.0, clock=clock) is Ruling.UNHEALTHY_RETRY  # first sample
    use_cpu(worker, 0.3)
    clock.now += 2.0
    assert on_rpc_timeout(worker, 990.0, clock=clock) is Ruling.UNHEALTHY_RETRY
    assert worker.poll() is None


def test_guard_5_gone_is_dead(start: Start) -> None:
    worker = start(ASLEEP)
    worker.kill()
    worker.wait(LIMIT)
    assert on_rpc_timeout(worker, 0.0) is Ruling.DEAD


def test_the_published_numbers() -> None:
    assert CPU.compute(16) == 316.0
    assert GPU.compute(64) == pytest.approx(42.8)
    assert RpcTimeoutPolicy("cpu").compute(16) == 316.0


@pytest.mark.parametrize("backend", ["cpu", "gpu"])
def test_they_are_those_of_the_daemon(backend: str) -> None:
    assert RpcTimeoutPolicy(backend).formula == SHIPPED[backend]
    assert policy.ENGINE_STEP_TIMEOUT == engines.VLLM_STEP_TIMEOUT


def test_other_backends_take_the_numbers_as_given() -> None:
    assert RpcTimeoutPolicy("npu", base_timeout=5.0, per_seq_seconds=0.5).compute(10) == 10.0


def test_hard_caps_leave_room_for_a_window() -> None:
    assert GPU.hard_cap(64) == pytest.approx(171.2)
    assert CPU.hard_cap(16) == 1264.0
    assert CPU.hard_cap(100_000, window=30.0) == 1830.0
    assert CPU.hard_cap(None, window=30.0) == 1830.0


@pytest.mark.parametrize("batch", [0, -1, 1.5, "64", None])
def test_a_senseless_batch_is_refused(batch: object) -> None:
    with pytest.raises(ValueError, match="max_num_seqs"):
        CPU.compute(batch)  # type: ignore[arg-type]


@pytest.mark.parametrize("seconds", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["base_timeout", "per_seq_seconds", "max_timeout"])
def test_senseless_seconds_are_refused(name: str, seconds: float) -> None:
    with pytest.raises(ValueError, match=name):
        RpcTimeoutPolicy("gpu", **{name: seconds})


def test_the_engine_is_told_its_timeout() -> None:
    assert configure_engine_timeout("cpu", 16) == {policy.ENGINE_STEP_TIMEOUT: "316"}
    environ: dict[str, str] = {}
    configure_engine_timeout(Backend.GPU, 64, environ)
    assert environ == {policy.ENGINE_STEP_TIMEOUT: "43"}


def test_an_operators_own_timeout_stands() -> None:
    environ = {policy.ENGINE_STEP_TIMEOUT: "7"}
    assert configure_engine_timeout("cpu", 16, environ) == {policy.ENGINE_STEP_TIMEOUT: "7"}
    assert environ == {policy.ENGINE_STEP_TIMEOUT: "7"}


# Verdicts on real processes (issue 2, 5f).


def test_a_first_sample_says_nothing(start: Start) -> None:
    assert on_rpc_timeout(start(ASLEEP), None) is Ruling.UNHEALTHY_RETRY


@pytest.mark.parametrize("form", ["popen", "pid", "psutil"])
def test_asleep_over_the_window_is_dead(start: Start, form: str) -> None:
    process, clock = start(ASLEEP), StepClock()
    forms: dict[str, policy.HasPid | int] = {
        "popen": process,
        "pid": process.pid,
        "psutil": psutil.Process(process.pid),
    }
    assert on_rpc_timeout(forms[form], 990.0, clock=clock) == "UNHEALTHY_RETRY"
    clock.now += 30.0
    assert on_rpc_timeout(forms[form], 990.0, clock=clock) == "DEAD"


def test_stopped_is_dead(start: Start) -> None:
    worker = start(BUSY)
    handle = psutil.Process(worker.pid)
    worker.send_signal(signal.SIGSTOP)
    wait_for(lambda: handle.status() == psutil.STATUS_STOPPED)
    assert on_rpc_timeout(worker, None) is Ruling.DEAD


def test_ended_and_not_yet_reaped_is_dead(start: Start) -> None:
    worker = start(ASLEEP)
    os.kill(worker.pid, signal.SIGKILL)
    wait_for(lambda: psutil.Process(worker.pid).status() == psutil.STATUS_ZOMBIE)
    assert on_rpc_timeout(worker.pid, None) is Ruling.DEAD


def test_a_psutil_handle_of_a_process_that_is_gone_is_dead(start: Start) -> None:
    worker = start(ASLEEP)
    handle = psutil.Process(worker.pid)
    worker.kill()
    worker.wait(LIMIT)
    assert on_rpc_timeout(handle, None) is Ruling.DEAD


def test_busy_beyond_the_hard_cap_is_dead(start: Start) -> None:
    worker, clock = start(BUSY), StepClock()
    begin = clock.now
    gpu = {"policy": GPU, "max_num_seqs": 64, "clock": clock}
    for late in (43.0, 73.0, 103.0, 133.0, 163.0):
        clock.now = begin + late
        use_cpu(worker, 0.02)
        assert on_rpc_timeout(worker, begin, busy_cpu=0.0, **gpu) is Ruling.UNHEALTHY_RETRY  # type: ignore[arg-type]
    clock.now = begin + 171.3
    assert on_rpc_timeout(worker, begin, busy_cpu=0.0, **gpu) is Ruling.DEAD  # type: ignore[arg-type]


def test_samples_of_another_step_or_close_together_do_not_count(start: Start) -> None:
    worker, clock = start(ASLEEP), StepClock()
    assert on_rpc_timeout(worker, 990.0, clock=clock) is Ruling.UNHEALTHY_RETRY
    clock.now += 0.2
    assert on_rpc_timeout(worker, 990.0, clock=clock) is Ruling.UNHEALTHY_RETRY
    clock.now += 3600.0
    assert on_rpc_timeout(worker, 4500.0, clock=clock) is Ruling.UNHEALTHY_RETRY
    clock.now += 30.0
    assert on_rpc_timeout(worker, 4500.0, clock=clock) is Ruling.DEAD


def test_without_a_step_only_a_recent_sample_counts(start: Start) -> None:
    worker, clock = start(ASLEEP), StepClock()
    assert on_rpc_timeout(worker, None, clock=clock) is Ruling.UNHEALTHY_RETRY
    clock.now += 3600.0
    assert on_rpc_timeout(worker, None, clock=clock) is Ruling.UNHEALTHY_RETRY
    clock.now += 30.0
    assert on_rpc_timeout(worker, None, clock=clock) is Ruling.DEAD


@pytest.mark.parametrize("pid", [0, -1, None])
def test_what_is_no_process_is_refused(pid: int | None) -> None:
    @dataclass
    class Odd:
        pid: int | None

    with pytest.raises(ValueError, match="no process"):
        on_rpc_timeout(Odd(pid), 0.0)


def test_memory_of_samples_is_bounded() -> None:
    samples = policy._Samples()
    for pid in range(policy.KEPT_SAMPLES + 10):
        process = ProcessId(pid + 2, 1)
        samples.swap(process, None, CpuSample(0.0, {process: 1.0}), 0.0, 60.0)
    assert len(samples._kept) == policy.KEPT_SAMPLES


def test_importing_the_package_alone_loads_nothing_heavy() -> None:
    code = (
        "import sys, stepwarden\n"
        "heavy = {'grpc', 'psutil', 'yaml', 'asyncio', 'stepwarden.policy'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
        "from stepwarden import RpcTimeoutPolicy\n"
        "assert RpcTimeoutPolicy('cpu').compute(16) == 316.0\n"
        "heavy = {'grpc', 'psutil', 'yaml', 'asyncio'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=LIMIT)


def test_unknown_names_of_the_package_stay_unknown() -> None:
    with pytest.raises(AttributeError, match="nothing_of_the_kind"):
        _ = stepwarden.nothing_of_the_kind
    assert set(stepwarden.__all__) <= set(dir(policy))
