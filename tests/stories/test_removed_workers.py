"""Workers that are taken out of the file between two daemons, and perhaps put back."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from stepwarden.edge.state_file import NAME as DATABASE
from support.crew import Crew, shell
from support.daemon import Daemon
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(150)

DRAINS = "trap 'touch $OUT/told' TERM; touch $OUT/up; while :; do sleep 0.05; done"


def rows(daemon: Daemon) -> set[str]:
    path = daemon.directory / "state" / DATABASE
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
        return {name for (name,) in database.execute("SELECT worker FROM worker")}


def test_one_that_was_told_to_end_and_is_put_back_is_ended_and_begins_anew() -> None:
    """It drains: adopted, it would answer nobody, and end when nobody expects it."""
    other = shell("sleep 600")
    with Crew({"other": other}) as crew:
        draining = shell(f"OUT={crew.directory}; {DRAINS}", stop={"grace": "200ms"})
        both = {"w": draining, "other": other}
        crew.kill()
        crew.write_sections(both)
        crew.start()
        wait_for((crew.directory / "up").exists)
        first = crew.wait_state("w", "HEALTHY").pid
        crew.kill()
        crew.write_sections({"other": other})
        crew.start()
        wait_for((crew.directory / "told").exists)
        crew.kill()
        crew.write_sections(both)
        crew.start()
        again = crew.wait_status("w", lambda w: w.state == "HEALTHY", "HEALTHY")
        assert (again.incarnation, again.deaths) == ("2", 0)
        assert again.pid != first
        states = [event.to_state for event in crew.events("w") if event.to_state]
        assert "ADOPTED" not in states


def test_what_is_kept_of_a_removed_worker_goes_and_an_operators_stop_stays() -> None:
    names = ("stays", "goes", "stopped")
    workers = {name: shell("sleep 600") for name in names}
    with Crew(workers) as crew:
        for name in names:
            crew.wait_state(name, "HEALTHY")
        assert crew.cli("stop", "stopped", "--config", str(crew.config)).returncode == 0
        crew.kill()
        assert rows(crew) == set(names)
        crew.write_sections({"stays": workers["stays"]})
        crew.start()
        wait_for(lambda: rows(crew) == {"stays", "stopped"}, 30, lambda: str(rows(crew)))
        crew.kill()
        crew.write_sections(workers)
        crew.start()
        assert crew.wait_state("goes", "HEALTHY").incarnation == "2"
        assert crew.status()["stopped"].state == "STOPPED"


def test_the_history_of_one_that_was_removed_can_be_read() -> None:
    other = shell("sleep 600")
    with Crew({"other": other, "gone": shell("sleep 600")}) as crew:
        crew.wait_state("gone", "HEALTHY")
        crew.write_sections({"other": other})
        assert crew.cli("reload", "--wait", "60", "--config", str(crew.config)).returncode == 0
        asked = ("events", "--config", str(crew.config), "--worker")
        told = crew.cli(*asked, "gone")
        assert told.returncode == 0, told.stderr
        assert "STARTING -> HEALTHY" in told.stdout
        assert crew.cli(*asked, "never-was").returncode == 4
