"""A dead worker's whole tree is gone before its replacement runs, and nobody else is touched."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
import psutil
import pytest
from stepwarden_proto.v1 import supervisor_pb2
from support.cgroups import frozen
from support.crew import PYTHON, Crew, data, living, shell, span, stub
from support.daemon import TESTS
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)

NAMES = ("main", "child_a", "child_b", "grandchild")
GRACE = 2.0
DEFAULTS = {
    "startup": {"budget": "60s", "first_step": "100ms"},
    "retry": {"window": "3s"},
    "restart": {"delay": "100ms", "jitter": 0},
    "stop": {"grace": GRACE},
}
FLAT = {"step": {"base": "2s", "per_seq": 0, "max": "30s", "hard_cap": "5s"}}
SCRIPT = "tree; ignore-term; attach; idle | tree; attach; idle"


@pytest.fixture(scope="module")
def crew() -> Iterator[Crew]:
    workers = {name: stub(SCRIPT, backend="flat") for name in ("hangs", "killed")}
    with Crew(workers, backends={"flat": FLAT}, defaults=DEFAULTS) as crew:
        crew.ready()
        crew.stub("hangs").send("freeze")
        yield crew


@pytest.fixture(scope="module")
def stranger() -> Iterator[subprocess.Popen[bytes]]:
    """Of the same user, of the same program, started by somebody else."""
    command = [PYTHON, "-c", "import signal; signal.pause()", "stub_worker.py"]
    with subprocess.Popen(command, start_new_session=True) as process:
        yield process
        process.kill()


def tree_of(crew: Crew, worker: str) -> dict[str, int]:
    """The four processes that hold a lock each, by name."""
    found = {}
    for name in NAMES:
        text = (crew.directory / worker / f"{name}.pid").read_text()
        found[name] = int(text)
    main = psutil.Process(found["main"])
    assert {p.pid for p in main.children(recursive=True)} == set(found.values()) - {main.pid}
    return found


def assert_replaced(crew: Crew, worker: str, old: dict[str, int]) -> None:
    """All of the old tree is gone; all four locks were free when the new one came."""
    crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker=worker)
    assert not living(list(old.values()))
    new = tree_of(crew, worker)
    assert not set(new.values()) & set(old.values())
    assert len(living(list(new.values()))) == 4
    assert not (crew.directory / worker / "overlap").exists(), "two lives at one time"
    assert [e.to_state for e in crew.turns(worker)][-4:] == [
        *("DEAD", "RESTARTING", "STARTING", "HEALTHY")
    ]
    gone = [e for e in crew.events(worker) if "every process is gone after" in e.sentence]
    started = [e for e in crew.events(worker) if e.kind == "started"]
    assert gone[0].id < started[1].id


def test_o_proc_1_main_killed_from_outside(crew: Crew, stranger: subprocess.Popen[bytes]) -> None:
    old = tree_of(crew, "killed")
    psutil.Process(old["main"]).send_signal(signal.SIGKILL)
    dead = crew.wait_transition("killed", "DEAD")
    assert (dead.cause, data(dead)["exit"]) == ("exit", "signal SIGKILL")
    assert_replaced(crew, "killed", old)
    assert stranger.poll() is None


def test_o_proc_1_main_that_hangs_and_ignores_term(
    crew: Crew, stranger: subprocess.Popen[bytes]
) -> None:
    """TERM to each, grace, KILL; the child in its own session and its child end too."""
    old = tree_of(crew, "hangs")
    dead = crew.wait_transition("hangs", "DEAD")
    assert dead.cause == "step"
    assert_replaced(crew, "hangs", old)
    burial = [e for e in crew.events("hangs") if e.kind == "burial"]
    told = {word: e for e in burial for word in ("SIGTERM", "SIGKILL") if word in e.sentence}
    assert all(str(pid) in told["SIGTERM"].sentence for pid in old.values())
    assert str(old["main"]) in told["SIGKILL"].sentence
    assert GRACE <= span(told["SIGTERM"], told["SIGKILL"]) <= GRACE + crew.leniency()
    logged = [s.name for s in crew.stub("hangs").signals() if s.pid == old["main"]]
    assert logged == ["SIGTERM"]
    assert stranger.poll() is None


IMMORTAL = "sleep 1000 & wait"


def no_namespaces() -> bool:
    """True where this user may not make a pid namespace."""
    command = ["unshare", "--pid", "--fork", "true"]
    try:
        return subprocess.run(command, capture_output=True, check=False).returncode != 0
    except FileNotFoundError:
        return True


@contextmanager
def held(pid: int) -> Iterator[None]:
    """While this lasts, nobody can see the end of process `pid`."""
    command = [PYTHON, str(TESTS / "support" / "tracer.py"), str(pid)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True) as tracer:
        assert tracer.stdout is not None
        try:
            assert tracer.stdout.readline() == b"holding\n"
            yield
        finally:
            tracer.kill()


@pytest.mark.skipif(no_namespaces(), reason="this user may not make a pid namespace")
def test_o_proc_1_nothing_is_started_beside_what_cannot_be_killed() -> None:
    """The first process of a pid namespace waits for a traced one, and KILL does not end it."""
    command = ["unshare", "--pid", "--fork", "sh", "-c", IMMORTAL]
    workers = {"stuck": {"command": command, "agent": "none", "backend": "gpu"}}
    with Crew(workers, defaults=DEFAULTS) as crew:
        main = psutil.Process(crew.wait_state("stuck", "HEALTHY").pid)
        wait_for(lambda: len(main.children(recursive=True)) == 2)
        init, below = sorted(main.children(recursive=True), key=lambda p: len(p.parents()))
        with held(below.pid):
            main.kill()
            failed = crew.wait_transition("stuck", "FAILED")
            assert failed.cause == "unkillable"
            assert f"leftover pids {init.pid} do not end" in failed.sentence
            status = crew.status()["stuck"]
            assert (status.state, list(status.leftover_pids)) == ("FAILED", [init.pid])
            assert crew.health("worker/stuck") == "NOT_SERVING"
            request = supervisor_pb2.WorkerCommandRequest(name="stuck")
            with pytest.raises(grpc.RpcError, match=f"cannot be killed: {init.pid}"):
                crew.admin().StartWorker(request, timeout=10)
            # It is tried again by itself, and nothing is started meanwhile.
            crew.wait_event(
                lambda e: e.id > failed.id and "SIGKILL sent to" in e.sentence, worker="stuck"
            )
            assert len([e for e in crew.events("stuck") if e.kind == "started"]) == 1
        again = crew.wait_event(lambda e: e.kind == "started" and e.incarnation == "2")
        assert not living([init.pid])
        assert data(again)["pid"] not in (main.pid, init.pid)


def test_o_proc_1_a_frozen_process_holds_up_nobody_else() -> None:
    """KILL has no effect on it until it thaws, as on one that hangs in a driver."""
    workers = {name: shell(IMMORTAL) for name in ("stuck", "other")}
    with Crew(workers, defaults=DEFAULTS) as crew:
        crew.ready()
        mains = {name: psutil.Process(status.pid) for name, status in crew.status().items()}
        wait_for(mains["stuck"].children)
        (child,) = mains["stuck"].children()
        with frozen(child.pid):
            mains["stuck"].kill()
            crew.wait_event(lambda e: "SIGTERM sent to" in e.sentence, worker="stuck")
            mains["other"].kill()
            back = crew.wait_event(
                lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="other"
            )
            failed = crew.wait_transition("stuck", "FAILED")
            assert back.id < failed.id
            assert f"leftover pids {child.pid} do not end" in failed.sentence
            assert crew.health("worker/other") == "SERVING"
            assert len([e for e in crew.events("stuck") if e.kind == "started"]) == 1
        crew.wait_event(lambda e: e.to_state == "HEALTHY" and e.incarnation == "2", worker="stuck")
        assert not living([child.pid])
