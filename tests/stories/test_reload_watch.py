"""The file watch in a real daemon: O-RELD-2, and bad files of O-YAML-4 and O-YAML-5 reloaded."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from stepwarden_proto.v1 import supervisor_pb2
from support import bad_files, replacing
from support.daemon import Daemon
from support.reloading import OUTCOMES, QUIET
from support.replacing import Change
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(180)

INTERVAL = 0.2
FAST = f"  reload: {{interval: {INTERVAL}s}}"
BODY = """
workers:
  w:
    backend: cpu
    agent: none
    shell: exec sleep 1000
    restart: {limit: LIMIT}
    stop: {grace: 1s}
"""


def with_limit(daemon: Daemon, limit: int) -> bytes:
    return daemon.config.read_text().split("\nworkers:")[0].encode() + (
        BODY.replace("LIMIT", str(limit)).encode()
    )


def outcomes(daemon: Daemon) -> list[str]:
    """What came of each reload so far; what it meant for a worker is told besides."""
    return [e.kind for e in daemon.events() if e.kind in OUTCOMES and not e.worker]


def _has_limit(limit: int) -> Callable[[supervisor_pb2.Worker], bool]:
    return lambda worker: worker.restarts_limit == limit


def change_three_times(daemon: Daemon, change: Change, first: int, pause: float) -> None:
    """Three changes; each comes into force, and each is one reload."""
    before = len([kind for kind in outcomes(daemon) if kind == "reloaded"])
    for number in (1, 2, 3):
        limit = first + number
        asyncio.run(change(daemon.config, with_limit(daemon, limit), pause))
        daemon.wait_status("w", _has_limit(limit), str(limit))
        reloaded = [kind for kind in outcomes(daemon) if kind == "reloaded"]
        assert len(reloaded) == before + number


def outcomes_with_one_more_change(daemon: Daemon, limit: int) -> list[str]:
    """What came of everything before it has been told by then, if anything did."""
    asyncio.run(replacing.rename_over(daemon.config, with_limit(daemon, limit), INTERVAL))
    daemon.wait_status("w", _has_limit(limit), str(limit))
    return outcomes(daemon)


def test_o_reld_2_each_way_of_replacing_the_file_is_one_reload() -> None:
    with Daemon(BODY.replace("LIMIT", "5"), supervisor=FAST) as daemon:
        pid = daemon.wait_state("w", "HEALTHY").pid
        ways = [way for way in replacing.ALL if way is not replacing.swap_the_link]
        for number, change in enumerate(ways):
            change_three_times(daemon, change, 10 + 10 * number, INTERVAL)
        told = outcomes(daemon)
        for mode in (0o600, 0o640, 0o644):
            daemon.config.touch()
            daemon.config.chmod(mode)
        assert outcomes_with_one_more_change(daemon, 90) == [*told, "reloaded"]
        # The file was away for a while three times: a warning each, and the old configuration held.
        assert told.count("reload_failed") == 3
        assert daemon.status()["w"].pid == pid


def test_o_reld_2_the_links_of_a_config_map_at_the_usual_interval() -> None:
    daemon = Daemon(BODY.replace("LIMIT", "5"))
    replacing.put_behind_links(daemon.config)
    with daemon:
        daemon.wait_state("w", "HEALTHY")
        change_three_times(daemon, replacing.swap_the_link, 10, 1.0)
        assert "reload_failed" not in outcomes(daemon)


def test_a_file_that_is_away_is_told_of_and_the_old_configuration_stays() -> None:
    with Daemon(BODY.replace("LIMIT", "5"), supervisor=FAST) as daemon:
        pid = daemon.wait_state("w", "HEALTHY").pid
        text = daemon.config.read_bytes()
        daemon.config.unlink()
        event = daemon.wait_event(lambda seen: seen.kind == "reload_failed")
        assert "the configuration in force stays" in event.sentence
        daemon.config.write_bytes(text)
        assert outcomes_with_one_more_change(daemon, 6) == ["reload_failed", "reloaded"]
        assert daemon.status()["w"].pid == pid


class Impatient:
    """Asks the daemon all the time how it is, and knows how long it ever took to answer."""

    def __init__(self, daemon: Daemon) -> None:
        self._daemon = daemon
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self.longest = 0.0

    def _ask(self) -> None:
        while not self._over.wait(0.02):
            begin = time.monotonic()
            self._daemon.status()
            self.longest = max(self.longest, time.monotonic() - begin)

    @contextmanager
    def asking(self) -> Iterator[None]:
        self._thread.start()
        yield
        self._over.set()
        self._thread.join()


def put(paths: dict[str, Path], name: str, config: Path) -> None:
    """The bad thing in the place of the file, in one step where that can be."""
    if config.is_dir():
        config.rmdir()
    if name == "directory":
        config.unlink()
    os.rename(paths[name], config)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_o_yaml_4_and_5_a_bad_file_changes_nothing_in_a_running_daemon(
    locale: str, tmp_path: Path
) -> None:
    """Refused in a line, quickly, in bounded memory; the loop goes on answering meanwhile."""
    paths = bad_files.write_all(tmp_path)
    env = {"LC_ALL": locale, "PYTHONUTF8": "0"}
    bad = [*bad_files.HUGE, *bad_files.MALFORMED, "pipe", "zeros", "directory"]
    bad += [] if os.geteuid() == 0 else ["mode 000"]  # root reads it
    with Daemon(BODY.replace("LIMIT", "5"), supervisor=QUIET, env=env) as daemon:
        pid = daemon.wait_state("w", "HEALTHY").pid
        process, good = psutil.Process(daemon.pid), daemon.config.read_bytes()
        impatient = Impatient(daemon)
        with impatient.asking():
            for name in bad:
                put(paths, name, daemon.config)
                before, busy = process.memory_info().rss, sum(process.cpu_times()[:2])
                answer = daemon.admin().Reload(reload_request(), timeout=30)
                assert not answer.applied, name
                assert 1 <= len(answer.problems) <= 2, name
                for text in (answer.sentence, *answer.problems):
                    assert text.isascii(), name
                    assert text.isprintable(), name
                    assert len(text) < 1000, name
                assert sum(process.cpu_times()[:2]) - busy < 1.0, name
                assert process.memory_info().rss - before < 50 << 20, name
        assert impatient.longest < 10.0  # one that is held waits for ever
        seen = daemon.status()["w"]
        assert (seen.pid, seen.state, seen.restarts_limit) == (pid, "HEALTHY", 5)
        put(paths, "good", daemon.config)
        daemon.config.write_bytes(good.replace(b"limit: 5", b"limit: 6"))
        assert daemon.admin().Reload(reload_request(), timeout=30).applied
        wait_for(lambda: daemon.status()["w"].restarts_limit == 6)


def reload_request() -> object:
    from stepwarden_proto.v1 import supervisor_pb2

    return supervisor_pb2.ReloadRequest()
