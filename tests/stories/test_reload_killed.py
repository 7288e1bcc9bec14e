"""A daemon that is killed in the middle of a reload: the next one has the file, and one of each."""

from __future__ import annotations

import random
import time

import psutil
import pytest
from support.crew import Section, living, shell
from support.reloading import Reloaded
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(240)

ROUNDS = 8
DEFAULTS = {"stop": {"grace": "1s"}, "restart": {"delay": "100ms", "jitter": 0, "limit": 99}}


def sleeper(mark: str) -> Section:
    """Its shell goes on a moment after TERM, so that kills fall into its ending too."""
    return shell(f": {mark}; trap 'sleep 0.1; exit 0' TERM; while :; do sleep 0.05; done")


def processes(crew: Reloaded) -> dict[str, int]:
    """How many shells there are by the mark of their command."""
    found: dict[str, int] = {}
    for process in crew.tree():
        try:
            words = process.cmdline()
        except psutil.Error:
            continue
        if len(words) > 2 and words[-1].startswith(": "):
            mark = words[-1][2:].split(";")[0]
            found[mark] = found.get(mark, 0) + 1
    return found


def test_a_daemon_killed_in_a_reload_comes_up_with_the_file_and_nothing_twice() -> None:
    seed = random.randrange(10**6)
    luck = random.Random(seed)
    workers = {name: sleeper(f"{name}-0") for name in ("stays", "changes", "w0")}
    with Reloaded(workers, defaults=DEFAULTS) as crew:
        crew.ready()
        stays = crew.pids()["stays"]
        for number in range(1, ROUNDS + 1):
            crew.rewrite(
                {
                    "changes": sleeper(f"changes-{number}"),
                    f"w{number - 1}": None,
                    f"w{number}": sleeper(f"w{number}-{number}"),
                }
            )
            crew.hang_up()
            time.sleep(luck.uniform(0.0, 0.5))
            crew.kill()
            crew.start()
            _check(crew, {"stays", "changes", f"w{number}"}, seed)
            assert crew.pids()["stays"] == stays, seed
        assert living([stays])


def _check(crew: Reloaded, wanted: set[str], seed: int) -> None:
    def settled() -> bool:
        seen = crew.status()
        return set(seen) == wanted and all(w.state == "HEALTHY" for w in seen.values())

    wait_for(settled, 40, lambda: f"seed {seed}: {crew.status()}", every=0.1)
    answer = crew.reload()  # what its killed predecessor began is done now, if it was not
    assert answer.applied, (seed, answer)
    wait_for(settled, 40, lambda: f"seed {seed}: {crew.status()}", every=0.1)
    commands = {crew.sections[name]["shell"][2:].split(";")[0] for name in wanted}
    wait_for(
        lambda: processes(crew) == dict.fromkeys(commands, 1),
        20,
        lambda: f"seed {seed}: {processes(crew)}, not {commands}",
        every=0.1,
    )
