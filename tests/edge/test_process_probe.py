from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from stepwarden.core.evidence import CpuSample, ProcessId
from stepwarden.edge.process_probe import cpu_sample, identify
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.signals import send
from support.process_world import run, text_of, until, world

SHORT_LIVED = """
import os, time
while True:
    if os.fork() == 0:
        end = time.process_time() + 0.01
        while time.process_time() < end: pass
        os._exit(0)
    os.wait()
    time.sleep(0.005)
"""
SPINNERS = """
import os, sys
for _ in range(2):
    os.fork()
open(sys.argv[1] + str(os.getpid()), "w").write("x\\n")
while True: pass
"""
ZOMBIE = """
import os, sys, time
pid = os.fork()
if pid == 0:
    os._exit(0)
os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
open(sys.argv[1], "w").write(f"{pid}\\n")
time.sleep(600)
"""


def total(sample: CpuSample | None) -> float:
    assert sample is not None
    return sum(sample.seconds.values())


def test_o_psut_1_children_that_come_and_go_are_counted() -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python(SHORT_LIVED)
            first = total(cpu_sample(process, time.monotonic()))
            # Each child lives 10 ms: hardly ever one is there to be sampled.
            await until(lambda: total(cpu_sample(process, time.monotonic())) > first + 0.3)

    run(story())


def test_o_psut_1_a_zombie_child_harms_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python(ZOMBIE, str(tmp_path / "zombie"))
            zombie = identify(int(await text_of(tmp_path / "zombie")))
            assert zombie is not None
            sample = cpu_sample(process, 5.0)
            assert sample is not None
            assert set(sample.seconds) == {process, zombie}
            assert (sample.at, sample.state) == (5.0, "S")
            own = cpu_sample(zombie, 5.0)
            assert own is not None
            assert own.state == "Z"

    run(story())


def test_o_psut_1_unknown_is_none_not_zero() -> None:
    me = identify(os.getpid())
    assert me is not None
    assert cpu_sample(ProcessId(me.pid, me.start_ticks + 1), 0.0) is None
    assert cpu_sample(ProcessId(2**22 + 5, 1), 0.0) is None
    assert cpu_sample(me, 0.0, ProcessTable([])) is None


def test_o_psut_1_several_processes_add_up(tmp_path: Path) -> None:
    """More than one core's worth is told as it is: four processes, each with its own total."""

    async def story() -> None:
        async with world() as here:
            process = await here.python(SPINNERS, str(tmp_path) + "/")
            await until(lambda: len(list(tmp_path.iterdir())) == 4)
            tree = cpu_sample(process, time.monotonic())
            assert tree is not None
            assert len(tree.seconds) == 4
            before = tree.seconds

            def all_moved() -> bool:
                after = cpu_sample(process, time.monotonic())
                assert after is not None
                return all(after.seconds[one] > spent for one, spent in before.items())

            await until(all_moved)
            for one in before:
                send(one, signal.SIGKILL)

    run(story())


def test_o_psut_1_state_tells_a_stopped_process() -> None:
    async def story() -> None:
        async with world() as here:
            process = await here.python("import time; time.sleep(600)")
            send(process, signal.SIGSTOP)

            def stopped() -> bool:
                sample = cpu_sample(process, 0.0)
                return sample is not None and sample.state == "T"

            await until(stopped)

    run(story())
