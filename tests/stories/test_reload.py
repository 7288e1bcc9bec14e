"""Another configuration while the daemon runs: who is touched by it, and who is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.crew import HealthLog, Section, living, shell, stub
from support.reloading import QUIET, Reloaded
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(120)

FLAT = {"flat": {"step": {"base": 2, "per_seq": 0, "max": "30s"}}}
DEFAULTS = {
    "retry": {"window": "3s"},
    "startup": {"first_step": "2s"},
    "stop": {"grace": "3s"},
    "restart": {"delay": "100ms", "jitter": 0},
}


def three(**more: Any) -> dict[str, Section]:
    return {
        "w1": stub("attach; idle", backend="flat", **more),
        "w2": shell("exec sleep 600"),
        "w3": shell("exec sleep 600"),
    }


@pytest.fixture
def crew() -> Iterator[Reloaded]:
    with Reloaded(three(), backends=FLAT, defaults=DEFAULTS) as made:
        made.ready()
        yield made


def test_o_reld_3_a_a_budget_edit_restarts_nobody(crew: Reloaded) -> None:
    """The new values hold from the next step on, and `explain` says them at once."""
    before = crew.pids()
    crew.rewrite({}, backends={"flat": {"step": {"base": 50, "per_seq": 0, "max": "90s"}}})
    crew.rewrite(
        {"w1": {**crew.sections["w1"], "retry": {"window": "9s"}, "restart": {"limit": 9}}}
    )
    answer = crew.reload()
    assert answer.applied, answer
    (change,) = answer.changes
    assert (change.subject, change.effect) == ("worker w1", "adjusted")
    assert {"step.base", "step.max", "retry.window", "restart.limit"} == set(change.keys)
    assert crew.pids() == before
    assert "50 s" in crew.cli("explain", "--config", str(crew.config), "--worker", "w1").stdout
    crew.stub("w1").send("steps 0.1 20")
    seen = crew.wait_status("w1", lambda w: bool(w.ranks and w.ranks[0].step == 2), "in a step")
    assert seen.ranks[0].budget_seconds == 50
    assert seen.restarts_limit == 9


def test_o_reld_3_b_only_the_worker_with_another_command_or_env_restarts(crew: Reloaded) -> None:
    before = crew.pids()
    crew.rewrite({"w2": shell("exec sleep 601")})
    answer = crew.reload()
    assert [(c.subject, c.effect) for c in answer.changes] == [("worker w2", "restarted")]
    assert not answer.unsettled
    crew.ready()
    after = crew.pids()
    assert {name for name in after if after[name] != before[name]} == {"w2"}
    assert not living([before["w2"]])
    crew.rewrite({"w3": {**shell("exec sleep 600"), "env": {"A": "1"}}})
    answer = crew.reload()
    assert [(c.subject, c.effect, list(c.keys)) for c in answer.changes] == [
        ("worker w3", "restarted", ["env.A"])
    ]
    crew.ready()
    assert crew.pids()["w2"] == after["w2"]
    assert crew.status()["w2"].deaths == 0


def test_o_reld_3_c_one_is_removed_with_its_grace_and_one_added(crew: Reloaded) -> None:
    before = crew.pids()
    crew.rewrite({"w3": None, "w4": shell("exec sleep 600")})
    answer = crew.reload()
    assert [(c.subject, c.effect) for c in answer.changes] == [
        ("worker w3", "removed"),
        ("worker w4", "added"),
    ]
    assert not answer.unsettled
    assert not living([before["w3"]])
    crew.wait_state("w4", "HEALTHY")
    after = crew.pids()
    assert list(after) == ["w1", "w2", "w4"]
    assert (after["w1"], after["w2"]) == (before["w1"], before["w2"])
    ended = [e.sentence for e in crew.events() if (e.worker, e.kind) == ("w3", "burial")]
    assert any("TERM" in text for text in ended), ended
    assert crew.health("worker/w3") == "NOT_FOUND"
    assert crew.health("worker/w4") == "SERVING"
    assert crew.health("ready") == "SERVING"


def test_o_reld_3_d_order_comments_and_quotes_are_no_change(crew: Reloaded) -> None:
    before, events = crew.pids(), len(crew.events())
    text = crew.config.read_text()
    workers = dict(reversed(crew.sections.items()))
    crew.sections = workers
    crew.rewrite({})
    crew.config.write_text("# a comment\n" + crew.config.read_text().replace('"3s"', "3000ms"))
    assert crew.config.read_text() != text
    answer = crew.reload()
    assert answer.applied
    assert not answer.changes
    assert answer.sentence == "configuration reloaded: no difference"
    assert crew.pids() == before
    assert len(crew.events()) == events + 1


def test_o_reld_3_e_a_default_is_an_adjustment_of_each_that_inherits_it(crew: Reloaded) -> None:
    before = crew.pids()
    crew.rewrite({"w3": {**crew.sections["w3"], "stop": {"grace": "3s"}}})
    crew.rewrite({}, defaults={**DEFAULTS, "stop": {"grace": "5s"}})
    answer = crew.reload()
    assert [(c.subject, c.effect, list(c.keys)) for c in answer.changes] == [
        ("worker w1", "adjusted", ["stop.grace"]),
        ("worker w2", "adjusted", ["stop.grace"]),
    ]
    assert crew.pids() == before


def test_a_dry_run_says_what_would_happen_and_does_nothing(crew: Reloaded) -> None:
    before = crew.pids()
    crew.rewrite({"w2": shell("exec sleep 601"), "w3": None, "w4": shell("exec sleep 600")})
    told = crew.cli("reload", "--dry-run", "--config", str(crew.config))
    assert told.returncode == 0, told.stderr
    assert "worker w3: stopped with a grace of 3 s, then removed" in told.stdout
    assert "worker w2: restarted, for another shell" in told.stdout
    assert "worker w4: added and started" in told.stdout
    assert "nothing is done" in told.stdout
    assert crew.pids() == before
    assert not crew.outcomes()
    done = crew.cli("reload", "--wait", "20", "--config", str(crew.config))
    assert done.returncode == 0, done.stderr
    same = [line for line in told.stdout.splitlines() if line.startswith("worker")]
    assert [line for line in done.stdout.splitlines() if line.startswith("worker")] == same
    assert list(crew.pids()) == ["w1", "w2", "w4"]


def test_a_stop_of_the_operator_stays_over_reloads(crew: Reloaded) -> None:
    """Also where the command is another one; his start then takes the new one."""
    assert crew.cli("stop", "w2", "--config", str(crew.config)).returncode == 0
    crew.rewrite({"w2": shell("exec sleep 602")})
    answer = crew.reload()
    assert [(c.subject, c.effect) for c in answer.changes] == [("worker w2", "adjusted")]
    assert crew.status()["w2"].state == "STOPPED"
    crew.rewrite({"w2": None})
    crew.reload()
    assert "w2" not in crew.status()
    crew.rewrite({"w2": shell("exec sleep 603")})
    crew.reload()
    assert crew.status()["w2"].state == "STOPPED", "a removal in between is no start either"
    assert crew.cli("start", "w2", "--config", str(crew.config)).returncode == 0
    pid = crew.wait_state("w2", "HEALTHY").pid
    assert b"603" in Path(f"/proc/{pid}/cmdline").read_bytes()


def test_where_the_policy_is_ask_a_worker_waits_for_its_restart() -> None:
    supervisor = "  reload: {watch: false, restart: ask}\n"
    with Reloaded(three(), supervisor=supervisor, backends=FLAT, defaults=DEFAULTS) as crew:
        crew.ready()
        before = crew.pids()
        crew.rewrite({"w2": shell("exec sleep 601")})
        answer = crew.reload()
        assert [(c.subject, c.effect) for c in answer.changes] == [("worker w2", "restart_needed")]
        assert crew.pids() == before
        assert crew.status()["w2"].restart_needed == "shell"
        text = crew.cli("status", "--config", str(crew.config)).stdout
        assert "w2: restart needed" in text
        crew.rewrite({"w2": shell("exec sleep 600")})
        crew.reload()
        assert crew.status()["w2"].restart_needed == "", "it has again what it needs"
        crew.rewrite({"w2": shell("exec sleep 602")})
        crew.reload()
        assert crew.cli("restart", "w2", "--config", str(crew.config)).returncode == 0
        seen = crew.wait_state("w2", "HEALTHY")
        assert seen.restart_needed == ""
        assert b"602" in Path(f"/proc/{seen.pid}/cmdline").read_bytes()


def test_an_open_step_keeps_its_budget_and_a_larger_one_helps_it_at_once(crew: Reloaded) -> None:
    crew.stub("w1").send("steps 0.1")  # the first step has an allowance of its own
    crew.rewrite({}, backends={"flat": {"step": {"base": 60, "per_seq": 0, "max": "90s"}}})
    crew.reload()
    wait_for(lambda: crew.status()["w1"].ranks[0].steps_ended == 1)
    crew.stub("w1").send("steps 6")
    crew.wait_status("w1", lambda w: w.ranks[0].step == 2, "in its second step")
    crew.rewrite({}, backends={"flat": {"step": {"base": 1, "per_seq": 0, "max": "90s"}}})
    crew.reload()
    seen = crew.status()["w1"]
    assert seen.ranks[0].step
    assert seen.ranks[0].budget_seconds == 60, "it began with that"
    wait_for(lambda: crew.status()["w1"].ranks[0].steps_ended == 2)
    assert "UNHEALTHY" not in crew.states("w1")
    crew.stub("w1").send("steps 30")
    crew.wait_state("w1", "UNHEALTHY")
    crew.rewrite({}, backends={"flat": {"step": {"base": 60, "per_seq": 0, "max": "90s"}}})
    crew.reload()
    crew.wait_state("w1", "HEALTHY", 5)
    assert crew.status()["w1"].deaths == 0


def test_what_only_a_restart_of_the_daemon_applies_refuses_the_whole_file(crew: Reloaded) -> None:
    text = crew.config.read_text()
    crew.rewrite({"w2": shell("exec sleep 601")})
    crew.config.write_text(crew.config.read_text().replace("/state", "/other"))
    done = crew.cli("reload", "--socket", str(crew.directory / "run" / "admin.sock"))
    assert done.returncode == 78
    assert "needs a restart of the daemon: supervisor.state_dir" in done.stderr
    assert "another" not in str(crew.outcomes())
    crew.config.write_text(text)
    assert crew.reload().applied
    assert not (crew.directory / "other").exists()


def test_settings_of_the_daemon_that_can_hold_at_once_do(crew: Reloaded) -> None:
    more = QUIET + "  log: {level: error}\n  stop_limit: 20s\n"
    crew.config.write_text(crew.config.read_text().replace(QUIET, more))
    answer = crew.reload()
    assert [(c.subject, list(c.keys)) for c in answer.changes] == [
        ("supervisor", ["stop_limit", "log.level"])
    ]
    logged = crew.log_tail(1000)
    crew.cli("stop", "w2", "--config", str(crew.config))
    assert "the operator says stop" not in crew.log_tail(1000).removeprefix(logged)


def test_health_o_hlth_1_a_watch_of_an_unknown_name_follows_when_it_is_added(
    crew: Reloaded,
) -> None:
    log = HealthLog(crew.health_address, "worker/w9")
    try:
        wait_for(lambda: [answer for _, answer in log.answers] == ["SERVICE_UNKNOWN"])
        assert crew.health("worker/w9") == "NOT_FOUND"
        crew.rewrite({"w9": shell("exec sleep 600")})
        crew.reload()
        wait_for(lambda: log.answers[-1][1] == "SERVING")
        crew.rewrite({"w9": None})
        crew.reload()
        wait_for(lambda: log.answers[-1][1] == "SERVICE_UNKNOWN")
    finally:
        log.close()


def test_sighup_reloads(crew: Reloaded) -> None:
    crew.rewrite({"w4": shell("exec sleep 600")})
    crew.hang_up()
    crew.wait_outcomes(1)
    crew.wait_state("w4", "HEALTHY")
    assert "SIGHUP" in crew.outcomes()[-1].sentence


def test_a_daemon_that_starts_with_another_file_restarts_nobody_and_says_who_needs_it(
    crew: Reloaded,
) -> None:
    before = crew.pids()
    crew.kill()
    crew.rewrite({"w2": shell("exec sleep 601")})
    crew.start()
    seen = crew.wait_state("w2", "HEALTHY")
    assert seen.pid == before["w2"]
    wait_for(lambda: crew.status()["w2"].restart_needed == "shell")
    assert [w.restart_needed for w in crew.status().values()] == ["", "shell", ""]
    answer = crew.reload()
    assert [(c.subject, c.effect) for c in answer.changes] == [("worker w2", "restarted")]
    crew.ready()
    after = crew.pids()
    assert {name for name in after if after[name] != before[name]} == {"w2"}


def test_a_renamed_worker_starts_when_its_former_self_is_gone(crew: Reloaded) -> None:
    """It may need the same port or GPU."""
    slow = "trap 'sleep 1; exit 0' TERM; while :; do sleep 0.05; done"
    crew.rewrite({"w3": shell(slow)})
    crew.reload()
    crew.ready()
    crew.rewrite({"w3": None, "w5": shell("exec sleep 600")})
    crew.reload(wait=None)
    held = crew.wait_status("w5", lambda w: bool(w.held), "held")
    assert "w3" in held.held
    crew.wait_state("w5", "HEALTHY")
    events = crew.events()
    gone = next(e.id for e in events if (e.worker, e.to_state) == ("w3", "STOPPED"))
    started = next(e.id for e in events if (e.worker, e.kind) == ("w5", "started"))
    assert gone < started
