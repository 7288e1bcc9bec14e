"""`needs`, start order and groups, with the real daemon."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import Any

import psutil
from support.crew import Crew, span, stub
from support.stub_control import StubGone

BACKENDS = {"gpu": {"step": {"base": "1s", "per_seq": "0ms"}}}
SOON = {"delay": "200ms", "jitter": 0, "limit": 10}
QUICK: dict[str, Any] = {"startup": {"first_step": 0}, "retry": {"window": "500ms"}}
SHORT: dict[str, Any] = {"startup": {"budget": "2s"}, "retry": {"window": "500ms"}}


def asked(crew: Crew, *words: str) -> str:
    """What the command line says to these words; they must have been understood."""
    said = crew.cli(*words, "--config", str(crew.config))
    assert said.returncode == 0, said
    return said.stdout


def test_a_worker_waits_for_what_it_needs_and_its_start_is_timed_from_its_real_begin() -> None:
    workers = {
        "late": stub("attach; idle", needs=["base"], **SHORT),
        "base": stub("attach loading; sleep 4; phase idle; idle"),
    }
    with Crew(workers, backends=BACKENDS) as crew:
        held = crew.wait_status("late", lambda s: "waits for base" in s.sentence, "held")
        assert held.state == "STARTING"
        assert held.pid == 0
        assert "which is STARTING" in held.sentence
        assert "waits for base" in asked(crew, "status")
        crew.wait_state("base", "HEALTHY")
        begun = crew.wait_transition("late", "HEALTHY")
        assert "UNHEALTHY" not in crew.states("late")
        base = crew.wait_transition("base", "HEALTHY")
        assert base.id < begun.id
        started = crew.wait_event(lambda e: e.kind == "started", worker="late")
        assert base.id < started.id


def test_the_startup_clock_of_a_held_worker_holds_once_it_runs() -> None:
    workers = {
        "late": stub("sleep 60", needs=["base"], **SHORT),
        "base": stub("attach loading; sleep 3; phase idle; idle"),
    }
    with Crew(workers, backends=BACKENDS) as crew:
        started = crew.wait_event(lambda e: e.kind == "started", worker="late")
        bad = crew.wait_transition("late", "UNHEALTHY")
        assert bad.cause == "startup"
        assert 2.0 - 0.1 <= span(started, bad) <= 2.0 + crew.leniency() + 0.5


def test_a_stop_while_held_works_at_once_and_a_start_waits_again() -> None:
    workers = {
        "late": stub("attach; idle", needs=["base"]),
        "base": stub("attach loading; idle", startup={"budget": "5m"}),
    }
    with Crew(workers, backends=BACKENDS) as crew:
        crew.wait_status("late", lambda s: "waits for base" in s.sentence, "held")
        asked(crew, "stop", "late")
        assert crew.status()["late"].state == "STOPPED"
        assert not [e for e in crew.events("late") if e.kind == "started"]
        asked(crew, "start", "late", "--no-wait")
        crew.wait_status("late", lambda s: "waits for base" in s.sentence, "held")
        crew.stub("base").send("phase idle")
        crew.wait_state("late", "HEALTHY")


def test_a_need_that_failed_is_told_and_a_start_of_it_lets_go() -> None:
    workers = {
        "late": stub("attach; idle", needs=["base"]),
        "base": stub("exit 3 | attach; idle", restart={"on": "never"}),
    }
    with Crew(workers, backends=BACKENDS) as crew:
        crew.wait_state("base", "STOPPED")
        crew.wait_status("late", lambda s: "base, which is STOPPED" in s.sentence, "held")
        asked(crew, "start", "base", "--no-wait")
        crew.ready()


def grouped(on_dead: str, **more: Any) -> dict[str, Any]:
    return {"pair": {"members": ["a", "b", "c"], "on_dead": on_dead, "restart": SOON, **more}}


def trio(script: str = "attach; idle") -> dict[str, Any]:
    return {name: stub(script) for name in ("a", "b", "c")}


def pids(crew: Crew) -> dict[str, int]:
    return {name: worker.pid for name, worker in crew.status().items()}


def kill(crew: Crew, name: str) -> None:
    psutil.Process(crew.status()[name].pid).send_signal(signal.SIGKILL)


def test_a_group_starts_in_order() -> None:
    with Crew(
        trio("attach loading; sleep 0.5; phase idle; idle"),
        backends=BACKENDS,
        groups=grouped("restart_group"),
    ) as crew:
        crew.ready()
        ready = [crew.wait_transition(name, "HEALTHY").id for name in "abc"]
        begun = [crew.wait_event(lambda e: e.kind == "started", worker=name).id for name in "abc"]
        assert begun[0] < ready[0] < begun[1] < ready[1] < begun[2] < ready[2]


def test_restart_group_ends_all_before_it_starts_any() -> None:
    with Crew(trio(), backends=BACKENDS, groups=grouped("restart_group")) as crew:
        crew.ready()
        before = pids(crew)
        last = crew.events()[-1].id
        kill(crew, "b")
        dead = crew.wait_transition("b", "DEAD", after=last)
        for name in "abc":
            crew.wait_transition(name, "HEALTHY", after=dead.id)
        after = pids(crew)
        assert all(before[name] != after[name] for name in "abc")
        events = [e for e in crew.events() if e.id > dead.id]
        begun = [e for e in events if e.kind == "started"]
        assert [e.worker for e in begun] == ["a", "b", "c"]
        gone = [e for e in events if e.kind == "burial" and "every process is gone" in e.sentence]
        assert {e.worker for e in gone} == {"a", "b", "c"}
        assert max(e.id for e in gone) < begun[0].id
        assert any("because b died" in e.sentence for e in events if e.worker == "a")
        seen = crew.status()
        assert [seen[name].deaths for name in "abc"] == [0, 1, 0]


def test_restart_rest_leaves_those_before_it_alone() -> None:
    with Crew(trio(), backends=BACKENDS, groups=grouped("restart_rest")) as crew:
        crew.ready()
        before = pids(crew)
        kill(crew, "b")
        dead = crew.wait_transition("b", "DEAD")
        for name in "bc":
            crew.wait_transition(name, "HEALTHY", after=dead.id)
        after = pids(crew)
        assert before["a"] == after["a"]
        assert before["b"] != after["b"]
        assert before["c"] != after["c"]


def test_restart_member_restarts_it_alone() -> None:
    with Crew(trio(), backends=BACKENDS, groups=grouped("restart_member")) as crew:
        crew.ready()
        before = pids(crew)
        kill(crew, "a")
        dead = crew.wait_transition("a", "DEAD")
        crew.wait_transition("a", "HEALTHY", after=dead.id)
        after = pids(crew)
        assert (before["b"], before["c"]) == (after["b"], after["c"])
        assert before["a"] != after["a"]


def test_one_budget_for_the_group_and_failed_says_whose_deaths() -> None:
    limits = {"delay": "100ms", "jitter": 0, "limit": 2, "stable": "1h"}
    groups = {"pair": {"members": ["a", "b"], "on_dead": "restart_group", "restart": limits}}
    workers = {name: stub() for name in "ab"}
    with Crew(workers, backends=BACKENDS, groups=groups) as crew:
        crew.ready()
        kill(crew, "a")
        dead = crew.wait_transition("a", "DEAD")
        for name in "ab":
            crew.wait_transition(name, "HEALTHY", after=dead.id)
            assert crew.status()[name].restarts_used == 1
        kill(crew, "b")
        for name in "ab":
            failed = crew.wait_state(name, "FAILED")
            assert "group pair gave up after 2 deaths of its members" in failed.sentence
            assert "the last was b" in failed.sentence
            assert failed.pid == 0
        asked(crew, "start", "a", "--no-wait")
        crew.wait_state("a", "HEALTHY")
        asked(crew, "start", "b", "--no-wait")
        crew.ready()


def test_a_member_that_the_operator_stopped_stays_so_when_its_group_restarts() -> None:
    with Crew(trio(), backends=BACKENDS, groups=grouped("restart_group")) as crew:
        crew.ready()
        asked(crew, "stop", "c")
        kill(crew, "a")
        dead = crew.wait_transition("a", "DEAD")
        for name in "ab":
            crew.wait_transition(name, "HEALTHY", after=dead.id)
        assert crew.status()["c"].state == "STOPPED"
        assert not [e for e in crew.turns("c") if e.id > dead.id]


def test_d2_a_group_of_prefill_and_decode_hangs_and_starts_again_together() -> None:
    workers = {
        "prefill-0": stub(backend="prefill", **QUICK),
        "decode-0": stub(backend="decode", **QUICK),
    }
    backends = {
        "prefill": {"step": {"rows": {1: "2s", 16: "60s"}}},
        "decode": {"step": {"rows": {16: "500ms", 64: "5s"}}},
    }
    groups = {"pd-pair": {"members": ["prefill-0", "decode-0"], "restart": SOON}}
    with Crew(workers, backends=backends, groups=groups) as crew:
        crew.ready()
        crew.stub("prefill-0").send("step 5 16")
        before = pids(crew)
        crew.stub("decode-0").send("freeze 60")
        dead = crew.wait_transition("decode-0", "DEAD")
        for name in workers:
            crew.wait_transition(name, "HEALTHY", after=dead.id)
        assert not set(before.values()) & set(pids(crew).values())
        kill(crew, "prefill-0")
        again = crew.wait_transition("prefill-0", "DEAD", after=dead.id)
        for name in workers:
            crew.wait_transition(name, "HEALTHY", after=again.id)


def test_a_member_that_ended_as_its_policy_expects_takes_nobody_with_it() -> None:
    job = stub("attach; idle", restart={"on": "failure"})
    workers = {"job": job, "a": stub(), "b": stub()}
    groups = {"all": {"members": ["job", "a", "b"], "restart": SOON}}
    with Crew(workers, backends=BACKENDS, groups=groups) as crew:
        crew.ready()
        before = pids(crew)
        with suppress(StubGone):
            crew.stub("job").send("exit 0")
        crew.wait_transition("job", "DEAD")
        crew.wait_state("job", "STOPPED")
        after = pids(crew)
        assert (before["a"], before["b"]) == (after["a"], after["b"])
        last = crew.events()[-1].id
        kill(crew, "a")
        for name in "ab":
            crew.wait_transition(name, "HEALTHY", after=last)
        assert crew.status()["job"].state == "STOPPED"


def test_a_stop_during_pre_start_ends_that_command_too() -> None:
    worker = stub(pre_start={"command": ["sleep", "321"], "timeout": "10m"})
    with Crew({"w": worker}, backends=BACKENDS) as crew:
        crew.wait_status("w", lambda s: "runs its pre_start" in s.held, "held")
        (command,) = [p for p in crew.tree() if p.cmdline() == ["sleep", "321"]]
        asked(crew, "stop", "w", "--wait", "20")
        assert crew.status()["w"].state == "STOPPED"
        assert not command.is_running()
        asked(crew, "start", "w", "--no-wait")
        crew.wait_status("w", lambda s: "runs its pre_start" in s.held, "held")
        crew.stop()
