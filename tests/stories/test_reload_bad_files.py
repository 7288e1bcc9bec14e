"""A file that cannot be used changes nothing, whoever asks for it, and is told of everywhere."""

from __future__ import annotations

import json
import os
import socket as socket_module
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator

import psutil
import pytest
from support.crew import shell, stub
from support.daemon import free_port
from support.reloading import QUIET, Reloaded
from support.waiting import wait_for

pytestmark = pytest.mark.timeout(180)

BACKENDS = {"flat": {"step": {"base": 2, "per_seq": 0, "max": "30s"}}}
DEFAULTS = {"startup": {"first_step": "2s"}, "stop": {"grace": "3s"}}
LARGER = {"flat": {"step": {"base": 9, "per_seq": 0, "max": "30s"}}}
WATCHING = "  reload: {watch: true, interval: 100ms}\n"

Spoil = Callable[[Reloaded], None]


def _text(change: Callable[[str], str]) -> Spoil:
    def spoil(crew: Reloaded) -> None:
        crew.write_sections(crew.sections, **{**crew.top, "backends": LARGER})
        scratch = crew.config.with_suffix(".new")
        scratch.write_text(change(crew.config.read_text()))
        os.replace(scratch, crew.config)

    return spoil


def _syntax(crew: Reloaded) -> None:
    _text(lambda text: text + '  "w9": {shell: "x"\n')(crew)


def _negative(crew: Reloaded) -> None:
    _text(lambda text: text.replace('"agent": "none"', '"agent": "none", "retry": {"window": -1}'))(
        crew
    )


def _unknown_backend(crew: Reloaded) -> None:
    _text(lambda text: text.replace('"backend": "gpu"', '"backend": "qpu"'))(crew)


def _same_socket(crew: Reloaded) -> None:
    run = crew.directory / "run"
    both = f"  admin_socket: {run}/agent.sock\n  agent_socket: {run}/agent.sock\n"
    _text(lambda text: text.replace("supervisor:\n", f"supervisor:\n{both}", 1))(crew)


def _deleted(crew: Reloaded) -> None:
    crew.config.unlink()


def _duplicate_worker(crew: Reloaded) -> None:
    _text(lambda text: text.replace('"w3":', '"w2":'))(crew)


def _directory(crew: Reloaded) -> None:
    crew.config.unlink()
    crew.config.mkdir()


BAD: dict[str, tuple[Spoil, str]] = {
    "syntax error at the end": (_syntax, "stepwarden.yaml:"),
    "negative window": (_negative, "retry.window"),
    "unknown backend": (_unknown_backend, "there is no backend"),
    "one socket for both": (_same_socket, "socket"),
    "deleted": (_deleted, "cannot be opened"),
    "no regular file": (_directory, "is not a regular file"),
    "a worker twice (O-YAML-1)": (_duplicate_worker, "w2"),
}


def restore(crew: Reloaded, **top: object) -> None:
    """The good file again, by a rename over whatever is there."""
    if crew.config.is_dir():
        crew.config.rmdir()
    crew.top = {**crew.top, **top}
    target, crew.config = crew.config, crew.config.with_suffix(".good")
    crew.write_sections(crew.sections, **crew.top)
    os.replace(crew.config, target)
    crew.config = target


def budget(crew: Reloaded) -> float:
    from stepwarden_proto.v1 import supervisor_pb2

    request = supervisor_pb2.ExplainRequest(worker="w1", num_seqs=1, phase="decode")
    told: float = crew.admin().Explain(request, timeout=10).budget_seconds
    return told


def socket(crew: Reloaded) -> list[str]:
    return ["--socket", str(crew.directory / "run" / "admin.sock")]


def made(supervisor: str) -> Iterator[Reloaded]:
    workers = {
        "w1": stub("attach; idle", backend="flat"),
        "w2": shell("exec sleep 600"),
        "w3": shell("exec sleep 600"),
    }
    with Reloaded(workers, supervisor=supervisor, backends=BACKENDS, defaults=DEFAULTS) as crew:
        crew.ready()
        yield crew


@pytest.fixture(scope="module")
def crew() -> Iterator[Reloaded]:
    yield from made(QUIET)


@pytest.fixture(scope="module")
def watching() -> Iterator[Reloaded]:
    yield from made(WATCHING)


def assert_untouched(crew: Reloaded, before: dict[str, int], reason: str) -> None:
    assert crew.pids() == before
    assert budget(crew) == 2, "worker 1 keeps what it had"
    told = crew.configuration()
    assert reason in told.failure
    assert told.failed_at
    assert told.path == str(crew.config)
    assert crew.health("ready") == crew.health("") == "SERVING"


@pytest.mark.parametrize("name", BAD)
def test_o_reld_1_a_bad_edit_keeps_the_whole_old_config(crew: Reloaded, name: str) -> None:
    """By SIGHUP and by the command; after the mend the next trigger applies."""
    spoil, reason = BAD[name]
    restore(crew)
    before, told = crew.pids(), len(crew.outcomes())
    spoil(crew)
    crew.hang_up()
    last = crew.wait_outcomes(told + 1)[-1]
    assert last.kind == "reload_failed"
    assert reason in last.sentence
    assert_untouched(crew, before, reason)
    done = crew.cli("reload", *socket(crew))
    assert done.returncode == 78
    assert reason in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert_untouched(crew, before, reason)
    shown = crew.shown()["configuration"]
    assert shown["failure"].startswith(crew.configuration().failure)
    text = " ".join(crew.cli("status", *socket(crew)).stdout.split())
    assert "last reload failed at" in text
    restore(crew)
    assert crew.cli("reload", *socket(crew)).returncode == 0
    assert crew.configuration().failure == ""
    assert crew.pids() == before


@pytest.mark.parametrize("name", BAD)
def test_o_reld_1_the_same_by_the_file_watch(watching: Reloaded, name: str) -> None:
    crew = watching
    spoil, reason = BAD[name]
    restore(crew)
    before, told = crew.pids(), len(crew.outcomes())
    spoil(crew)
    last = crew.wait_outcomes(told + 1)[-1]
    assert last.kind == "reload_failed"
    assert reason.split()[-1] in last.sentence or "No such file" in last.sentence
    assert crew.pids() == before
    assert budget(crew) == 2
    assert crew.health("ready") == "SERVING"
    restore(crew, backends=LARGER)
    wait_for(lambda: budget(crew) == 9)
    assert crew.pids() == before
    restore(crew, backends=BACKENDS)
    wait_for(lambda: budget(crew) == 2)
    wait_for(lambda: crew.configuration().failure == "")


def test_o_reld_1_twenty_triggers_of_all_kinds_end_with_the_last_content(
    watching: Reloaded,
) -> None:
    """Serialised; nothing leaks; each edit in between is overtaken or applied whole."""
    crew = watching
    daemon = psutil.Process(crew.pid)
    crew.reload()
    before = crew.pids()

    def flood(last: int) -> None:
        for number in range(20):
            step = {"base": last if number == 19 else 3 + number, "per_seq": 0, "max": "30s"}
            if number % 5 == 1:
                _text(lambda text: text + "  :")(crew)
            else:
                restore(crew, backends={"flat": {"step": step}})
            if number % 2:
                crew.hang_up()
            else:
                threading.Thread(target=crew.reload, kwargs={"wait": None}).start()
        crew.hang_up()
        wait_for(lambda: budget(crew) == last)
        wait_for(lambda: threading.active_count() < 10 and crew.configuration().failure == "")

    flood(5)
    wait_for(lambda: crew.reload().applied)
    threads, files = daemon.num_threads(), daemon.num_fds()
    for last in (6, 7, 8):
        flood(last)
    assert crew.pids() == before
    wait_for(lambda: daemon.num_threads() <= threads + 1, what=lambda: str(daemon.threads()))
    wait_for(lambda: daemon.num_fds() <= files + 1, what=lambda: str(daemon.open_files()))
    restore(crew, backends=BACKENDS)
    wait_for(lambda: budget(crew) == 2)
    json.dumps(crew.shown())


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text + '"workers": {"x": {shell: "sleep 1"}}\n',
        lambda text: text.replace('"w3":', '"w1":'),
        lambda text: text.replace('"agent": "none"', '"agent": "none", "agent": "none"', 1),
        lambda text: text.replace('"base": 2', '"base": 2, "base": 3'),
    ],
    ids=["top level", "worker", "key of a worker", "key of a step"],
)
def test_o_yaml_1_duplicate_keys_a_reload_keeps_the_old_config(
    crew: Reloaded, change: Callable[[str], str]
) -> None:
    before = crew.pids()
    restore(crew)
    text = crew.config.read_text()
    assert change(text) != text
    crew.config.write_text(change(text))
    answer = crew.reload()
    assert not answer.applied
    assert any("written twice" in problem for problem in answer.problems), answer
    shown = crew.cli("status", "--config", str(crew.config))
    assert shown.returncode == 0, "the daemon of a broken file is found all the same"
    assert "written twice" in " ".join(shown.stdout.split())
    assert crew.pids() == before
    assert budget(crew) == 2
    crew.config.write_text(text)
    assert crew.reload().applied


def test_the_service_manager_hears_of_each_reload_also_of_a_failed_one() -> None:
    """RELOADING with a time, then READY: so Type=notify-reload works too."""
    with tempfile.TemporaryDirectory(prefix="sw-") as directory:
        address = f"{directory}/notify"
        with socket_module.socket(socket_module.AF_UNIX, socket_module.SOCK_DGRAM) as listener:
            listener.bind(address)
            listener.settimeout(20)
            workers = {"w": shell("exec sleep 600")}
            with Reloaded(workers, env={"NOTIFY_SOCKET": address}) as crew:
                crew.ready()
                for text in (crew.config.read_text(), "workers: ["):
                    crew.config.write_text(text)
                    now = time.monotonic()
                    crew.hang_up()
                    told = listener.recv(1000).decode()
                    while not told.startswith("RELOADING"):
                        told = listener.recv(1000).decode()
                    state, at = told.splitlines()
                    assert state == "RELOADING=1"
                    assert int(at.removeprefix("MONOTONIC_USEC=")) >= now * 1e6
                    while told != "READY=1":
                        told = listener.recv(1000).decode()


def test_metrics_count_reloads_by_their_result() -> None:
    address = f"127.0.0.1:{free_port()}"
    supervisor = QUIET + f'  metrics: {{listen: "{address}"}}\n'

    def shown() -> dict[str, float]:
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found = [line.rsplit(" ", 1) for line in lines if "config_" in line and line[0] != "#"]
        return {name.removeprefix("stepwarden_config_"): float(value) for name, value in found}

    def counts() -> tuple[float, ...]:
        found = shown()
        results = (
            found.get(f'reloads_total{{result="{word}"}}', 0) for word in ("applied", "failed")
        )
        return (*results, found["last_reload_successful"])

    with Reloaded({"w": shell("exec sleep 600")}, supervisor=supervisor) as crew:
        crew.ready()
        assert counts() == (0, 0, 1)
        text = crew.config.read_text()
        crew.config.write_text("workers: [")
        crew.reload()
        wait_for(lambda: counts() == (0, 1, 0), what=lambda: str(shown()))
        crew.config.write_text(text)
        crew.reload()
        wait_for(lambda: counts() == (1, 1, 1), what=lambda: str(shown()))
