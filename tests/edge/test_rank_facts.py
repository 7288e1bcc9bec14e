"""One reading of the kernel's facts, of real processes."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from stepwarden.clock import SystemClock
from stepwarden.core.evidence import ProcessId
from stepwarden.core.facts import RankFacts
from stepwarden.edge import rank_facts
from stepwarden.edge.process_probe import identify
from stepwarden.edge.rank_facts import read_facts
from support.waiting import wait_for


@contextmanager
def _python(code: str) -> Iterator[ProcessId]:
    """A process that has said that it runs."""
    program = f"print('up', flush=True)\n{code}"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == b"up\n"
            process = identify(child.pid)
            assert process is not None
            yield process
        finally:
            child.kill()


def _facts(process: ProcessId) -> RankFacts:
    return read_facts({"0": process}, None, SystemClock())["0"]


def _until(process: ProcessId, holds: Callable[[RankFacts], bool]) -> RankFacts:
    wait_for(lambda: holds(_facts(process)))
    return _facts(process)


def _state(facts: RankFacts) -> str:
    return "" if facts.main is None else facts.main.state


def test_a_sleeper_is_asleep_and_a_loop_runs() -> None:
    with _python("import time; time.sleep(600)") as process:
        facts = _until(process, lambda facts: _state(facts) == "S")
        assert facts.main is not None
        assert facts.main.process == process
        assert facts.main.threads[0].tid == process.pid
    with _python("while True: pass") as process:
        before = _facts(process)
        after = _until(process, lambda facts: facts.processes[0].cpu >= before.processes[0].cpu + 1)
        assert after.processes[0].threads[0].cpu > before.processes[0].threads[0].cpu


def test_a_stopped_process_is_seen_as_one() -> None:
    with _python("import time; time.sleep(600)") as process:
        os.kill(process.pid, 19)
        assert _state(_until(process, lambda facts: _state(facts) == "T")) == "T"


def test_threads_have_names_and_counters_of_their_own() -> None:
    code = (
        "import threading, time\n"
        "def spin():\n"
        "    open('/proc/thread-self/comm', 'w').write('a (odd) name')\n"
        "    while True: pass\n"
        "threading.Thread(target=spin, daemon=True).start()\n"
        "time.sleep(600)"
    )
    with _python(code) as process:
        facts = _until(
            process, lambda facts: any(t.cpu > 0.3 for _, t in facts.threads() if "odd" in t.name)
        )
        assert [thread.name for _, thread in facts.threads()][1] == "a (odd) name"
        assert facts.processes[0].threads_in_all == 2


def test_bytes_that_go_through_read_move() -> None:
    code = "f = open('/dev/zero', 'rb', buffering=0)\nwhile True: f.read(1 << 20)"
    with _python(code) as process:
        before = _facts(process).processes[0].read_bytes
        if before is None:
            pytest.skip("the kernel does not count I/O of processes")
        _until(process, lambda facts: (facts.processes[0].read_bytes or 0) > before + (1 << 20))


def test_descendants_come_after_the_rank_itself() -> None:
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "try: time.sleep(600)\n"
        "finally: child.kill()"
    )
    with _python(code) as process:
        facts = _until(process, lambda facts: len(facts.processes) == 2)
        assert facts.processes[0].process == process
        child = facts.processes[1].process
        os.kill(child.pid, 9)


def test_one_that_is_gone_is_left_out() -> None:
    with _python("pass") as process:
        pass
    assert read_facts({"0": process}, None, SystemClock()) == {}


def test_a_reading_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_facts, "MAX_THREADS", 4)
    stop = threading.Event()
    threads = [threading.Thread(target=stop.wait) for _ in range(20)]
    for thread in threads:
        thread.start()
    try:
        me = identify(os.getpid())
        assert me is not None
        facts = _facts(me)
        assert len(list(facts.threads())) <= max(4, 2 * len(facts.processes))
        assert facts.processes[0].threads_in_all >= 20
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_files_that_say_nothing_give_none(monkeypatch: pytest.MonkeyPatch) -> None:
    real = rank_facts._read

    def denied(path: str) -> bytes:
        return b"" if path.endswith(("schedstat", "wchan", "io")) else real(path)

    monkeypatch.setattr(rank_facts, "_read", denied)
    me = identify(os.getpid())
    assert me is not None
    main = _facts(me).main
    assert main is not None
    assert (main.read_bytes, main.written_bytes) == (None, None)
    assert main.threads[0].waited is None
    assert main.threads[0].wchan is None


def test_a_reading_is_cheap() -> None:
    me = identify(os.getpid())
    assert me is not None
    began = time.monotonic()
    read_facts({str(number): me for number in range(64)}, None, SystemClock())
    assert time.monotonic() - began < 5.0
