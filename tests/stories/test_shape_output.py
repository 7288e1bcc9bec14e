"""Captured output with the real daemon: O-LOGS-1, files, `status`, and a daemon that is killed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest
from stepwarden_proto.v1 import supervisor_pb2 as pb
from support.crew import PYTHON, Crew, shell, span, stub
from support.waiting import wait_for

BACKENDS = {"gpu": {"step": {"base": "2s", "per_seq": "0ms"}}}
PROGRAM = str(Path(__file__).parents[1] / "support" / "chatter.py")
CAPTURE = {"mode": "capture", "max_file": "1MiB", "keep": 2}
MIB = 1 << 20


def chatter(seconds: float, *closes: str, **more: Any) -> dict[str, Any]:
    command = [PYTHON, PROGRAM, str(seconds), *closes]
    return {"command": command, "backend": "gpu", "output": CAPTURE, **more}


def output(crew: Crew, name: str) -> list[str]:
    """The last lines that it printed, as the daemon tells them."""
    answer = crew.admin().GetWorker(pb.GetWorkerRequest(name=name), timeout=10.0)
    return list(answer.worker.output)


def files(crew: Crew, name: str) -> dict[str, int]:
    place = crew.directory / "state" / "output" / name
    return {path.name: path.stat().st_size for path in place.iterdir()}


def ended(crew: Crew, name: str) -> int:
    return int(crew.status()[name].ranks[0].steps_ended)


def records(crew: Crew) -> list[dict[str, Any]]:
    """The daemon's own log, every line of which is JSON but what `check` said before."""
    lines = crew.log.read_bytes().split(b"\n")
    return [json.loads(line) for line in lines if line and b": warning: " not in line]


@pytest.mark.parametrize("closes", [(), ("close",)])
def test_o_logs_1_output_of_any_kind_blocks_nothing(closes: tuple[str, ...]) -> None:
    with Crew({"w": chatter(6.0, *closes)}, backends=BACKENDS) as crew:
        daemon = psutil.Process(crew.pid)
        crew.ready()
        before = daemon.memory_info().rss
        first = crew.wait_status("w", lambda s: bool(s.ranks), "it steps")
        begun, at = int(first.ranks[0].steps_ended), first.uptime_seconds
        wait_for(lambda: any("flood over" in line for line in output(crew, "w")), 60.0, "the flood")
        now = crew.status()["w"]
        took = now.uptime_seconds - at
        rate = (int(now.ranks[0].steps_ended) - begun) / took
        assert rate > 6.0, f"{rate:.1f} steps a second; alone it makes 10"
        assert daemon.memory_info().rss - before < 50 * MIB
        assert output(crew, "w")[-1] == "\N{GRINNING FACE} flood over"
        sizes = files(crew, "w")
        assert set(sizes) == {"current.log", "current.log.1", "current.log.2"}
        assert max(sizes.values()) <= MIB
        steps = ended(crew, "w")
        crew.wait_status("w", lambda s: s.ranks[0].steps_ended > steps + 5, "it steps on")
        assert crew.states("w") == ["STARTING", "HEALTHY"]
        crew.stop()
        assert records(crew)


def test_status_shows_the_last_lines_and_they_steer_no_terminal() -> None:
    line = r"printf 'first\nbad \210\377\000 bytes\nesc \033[31m\n  25%%\r 100%% done\nno end'"
    workers = {
        "w": shell(f"{line}; exec sleep 600", output=CAPTURE),
        "quiet": shell("exec sleep 600"),
    }
    with Crew(workers, backends=BACKENDS) as crew:
        crew.ready()
        wait_for(lambda: output(crew, "w")[-1:] == ["no end"], what="its lines")
        assert output(crew, "w") == [
            "first",
            "bad \N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}\\x00 bytes",
            "esc \\x1b[31m",
            " 100% done",
            "no end",
        ]
        said = crew.cli("status", "w", "--config", str(crew.config))
        assert said.returncode == 0
        assert "it printed last:\n  first\n" in said.stdout
        assert "\x1b" not in said.stdout
        assert "runner:          spawn" in said.stdout
        told = json.loads(crew.cli("status", "w", "--json", "--config", str(crew.config)).stdout)
        assert told["output"][0] == "first"
        assert told["runner"] == "spawn"
        assert output(crew, "quiet") == []
        assert list(crew.status()["w"].output) == [], "the list does not read files"


def test_hostile_texts_of_commands_and_agents_are_one_json_line_each() -> None:
    said = r"""printf 'a\n"b\\" \033[31m \000 \377 \r end'; exit 3"""
    worker = stub(
        "attach; idle",
        pre_start={"command": ["/bin/sh", "-c", said], "ignore_failure": True},
        stop={"command": ["/bin/sh", "-c", said]},
        output=CAPTURE,
    )
    with Crew({"w": worker}, backends=BACKENDS) as crew:
        crew.ready()
        crew.stop()
        told = [r["event"] for r in records(crew) if "exit code 3" in r["event"]]
        assert len(told) == 2, told


def test_output_goes_on_through_a_killed_daemon_and_the_next_one_shows_it() -> None:
    with Crew({"w": stub("attach; step 10", output=CAPTURE)}, backends=BACKENDS) as crew:
        crew.ready()
        pid = crew.status()["w"].pid
        crew.stub("w").send("print 3")
        wait_for(lambda: bool(output(crew, "w")), what="its lines")
        shown = len(output(crew, "w"))
        crew.kill()
        before = files(crew, "w")["current.log"]
        for _ in range(20):
            crew.stub("w").send("print 50")
        wait_for(lambda: files(crew, "w")["current.log"] > before, what="more output")
        crew.start()
        again = crew.wait_state("w", "HEALTHY")
        assert again.pid == pid
        assert len(output(crew, "w")) > shown or shown == 20
        last = files(crew, "w")["current.log"]
        crew.stub("w").send("print 50")
        wait_for(lambda: files(crew, "w")["current.log"] > last, what="output goes on")
        adopted = crew.wait_transition("w", "ADOPTED")
        healthy = crew.wait_transition("w", "HEALTHY", after=adopted.id)
        assert span(adopted, healthy) < 30.0


def test_the_next_life_writes_behind_the_last_one() -> None:
    worker = stub("attach; print 1; idle", output=CAPTURE, restart={"delay": "100ms", "jitter": 0})
    with Crew({"w": worker}, backends=BACKENDS) as crew:
        crew.ready()
        wait_for(lambda: len(output(crew, "w")) == 1, what="a line")
        psutil.Process(crew.status()["w"].pid).kill()
        wait_for(lambda: len(output(crew, "w")) == 2, what="the second line")
