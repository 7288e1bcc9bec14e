"""The client commands against a real admin server in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest
from stepwarden.cli import client, events
from stepwarden.cli.main import main
from stepwarden.cli.status import overview
from stepwarden.errors import ExitCode
from stepwarden_proto.v1 import supervisor_pb2
from support.admin_process import admin_process
from support.waiting import wait_for


@pytest.fixture(scope="module")
def served() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="sw-") as directory:
        path = Path(directory) / "admin.sock"
        with admin_process(path):
            yield path


class Result:
    """What a command printed and returned."""

    def __init__(self, code: int, out: str, error: str) -> None:
        self.code = code
        self.out = out
        self.error = error


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Any:
    def call(*arguments: object) -> Result:
        try:
            code = main([str(argument) for argument in arguments])
        except SystemExit as error:  # argparse
            code = int(error.code or 0)
        return Result(code, *capsys.readouterr())

    return call


def test_status_says_what_is_wrong_with_the_state_on_disk(served: Path, ask: Any) -> None:
    shown = " ".join(ask("status", "--socket", served).out.split())
    assert "the state database /var/lib/x is damaged; it was kept as" in shown
    assert "\x1b" not in shown
    found = json.loads(ask("status", "--json", "--socket", served).out)
    assert found["trouble"].startswith("the state database /var/lib/x is damaged")
    assert found["runner_note"] == "runner auto means spawn here: polkit does not allow it"


def test_status_is_a_table_of_eighty_columns(served: Path, ask: Any) -> None:
    result = ask("status", "--socket", served)
    assert result.code == ExitCode.OK
    lines = result.out.splitlines()
    assert max(len(line) for line in lines) <= 80
    assert lines[0] == "WORKER     STATE    CAUSE  PID   INC    STEP  AGE    LEFT   RESTARTS"
    assert lines[1] == "gemma-cpu  HEALTHY  -      4242  inc-1  17    12.3s  30.5s  1/5"
    assert lines[2].split() == ["llama-gpu", "FAILED", "exit", "-", "-", "-", "-", "-", "5/5"]
    assert "llama-gpu: 5 deaths within 1800 s" in result.out
    assert "gemma-cpu:" not in result.out


def test_status_json_is_one_document_with_names_and_nulls(served: Path, ask: Any) -> None:
    result = ask("status", "--json", "--socket", served)
    document = json.loads(result.out)
    gemma, llama = document["workers"]
    assert (gemma["state"], llama["state"], llama["cause"]) == ("HEALTHY", "FAILED", "exit")
    assert (gemma["pid"], llama["pid"]) == (4242, None)
    assert (gemma["restarts_used"], gemma["restarts_limit"]) == (1, 5)
    busy, idle = gemma["ranks"]
    assert (busy["step"], busy["num_seqs"], busy["budget_left_seconds"]) == (17, 64, 30.5)
    assert (idle["step"], idle["num_seqs"], idle["step_age_seconds"]) == (None, None, None)
    assert (busy["beats_refused"], busy["stamps_clamped"], busy["steps_unrecorded"]) == (1, 4, 3)
    assert (idle["loop_age_seconds"], idle["agent_version"], idle["detail"]) == (None, None, None)
    assert gemma["restart_in_seconds"] is None
    assert (gemma["cause"], gemma["last_exit"]) == (None, None)
    assert (llama["incarnation"], llama["uptime_seconds"]) == (None, None)
    assert "" not in gemma.values()


def test_status_of_one_worker(served: Path, ask: Any) -> None:
    result = ask("status", "gemma-cpu", "--socket", served)
    assert result.code == ExitCode.OK
    assert "HEALTHY for 61.0s" in result.out
    assert "agent version:   0.1.0\n" in result.out
    _, ranks, told, lives = result.out.split("\n\n")
    table = ranks.splitlines()
    assert [line.split()[0] for line in table[:4]] == ["RANK", "0", "1", "0:"]
    assert all(len(line) <= 80 for line in table)
    assert " ".join(" ".join(table[3:]).split()) == (
        "0: 2 steps in flight; 5 requests unfinished; its loop turned 0.3s ago, 1 turn so"
        " far; 3 steps not recorded, the page was full; 1 beat refused; 4 stamps clamped;"
        " engine core of? 4 ranks"
    )
    assert told.splitlines() == [
        "last verdicts, the newest last:",
        "  2026-01-02 03:04:01 STARTING -> HEALTHY (step) rank 0",
        "      it came up",
    ]
    assert lives.splitlines()[1].split() == ["inc-1", "-", "alive", "0", "-"]
    found = json.loads(ask("status", "gemma-cpu", "--json", "--socket", served).out)
    assert (found["deaths"], found["verdicts"][0]["data"]) == (0, {"budget": 42.8})
    assert found["lives"][0]["incarnation"] == "inc-1"
    short = ask("status", "gemma-cpu", "--last", 0, "--socket", served).out
    assert "last verdicts" not in short


def test_status_check_turns_unwell_into_a_code(served: Path, ask: Any) -> None:
    plain, checked = ask("status", "--socket", served), ask("status", "--check", "--socket", served)
    assert (plain.code, checked.code) == (ExitCode.OK, ExitCode.NOT_WELL)
    assert (checked.out, checked.error) == (plain.out, "")
    assert ask("status", "gemma-cpu", "--check", "--socket", served).code == ExitCode.OK
    assert ask("status", "llama-gpu", "--check", "--socket", served).code == ExitCode.NOT_WELL
    result = ask("status", "--check", "--json", "--socket", served)
    assert (result.code, json.loads(result.out)["unwell"]) == (ExitCode.NOT_WELL, ["llama-gpu"])


def test_status_of_the_unwell_alone(served: Path, ask: Any) -> None:
    lines = ask("status", "--unwell", "--socket", served).out.splitlines()
    assert [line.split()[0] for line in lines[:2]] == ["WORKER", "llama-gpu"]
    assert lines[2] == "2 workers: 1 HEALTHY, 1 FAILED"
    found = json.loads(ask("status", "--unwell", "--json", "--socket", served).out)
    assert [worker["name"] for worker in found["workers"]] == ["llama-gpu"]


@pytest.mark.parametrize("command", [["status"], ["stop"], ["start"], ["restart"]])
def test_an_unknown_worker_is_one_line_and_its_own_code(
    served: Path, ask: Any, command: list[str]
) -> None:
    result = ask(*command, "gema-cpu", "--socket", served)
    assert result.code == ExitCode.UNKNOWN_WORKER
    assert result.out == ""
    assert result.error == (
        'stepwarden: there is no worker "gema-cpu"'
        " (did you mean gemma-cpu? there are: gemma-cpu, llama-gpu)\n"
    )


def test_events_text_and_json(served: Path, ask: Any) -> None:
    text = ask("events", "--limit", 1, "--worker", "gemma-cpu", "--socket", served)
    assert text.code == ExitCode.OK
    (line,) = text.out.splitlines()
    assert "gemma-cpu" in line
    (line,) = ask("events", "--limit", 1, "--json", "--socket", served).out.splitlines()
    event = json.loads(line)
    assert event["kind"] == "transition"
    assert event["data"] == {"budget": 42.8}
    assert event["time"].endswith("+00:00")
    assert "data_json" not in event
    assert (event["from_state"], event["to_state"]) == ("STARTING", "HEALTHY")
    lines = ask("events", "--json", "--socket", served).out.splitlines()
    assert all("" not in json.loads(line).values() for line in lines)


def test_events_of_an_unknown_worker(served: Path, ask: Any) -> None:
    result = ask("events", "--worker", "nobody", "--socket", served)
    assert (result.code, result.error.count("\n")) == (ExitCode.UNKNOWN_WORKER, 1)


def test_start_stop_restart(tmp_path: Path, ask: Any) -> None:
    path = tmp_path / "a.sock"
    with admin_process(path):
        result = ask("stop", "gemma-cpu", "--socket", path)
        assert (result.code, result.out) == (
            0,
            "gemma-cpu: HEALTHY -> STOPPED\n",
        )
        assert ask("start", "gemma-cpu", "--socket", path).out == "gemma-cpu: STOPPED -> STARTING\n"
        before = json.loads(ask("status", "gemma-cpu", "--json", "--socket", path).out)
        assert ask("restart", "gemma-cpu", "--wait", 20, "--socket", path).code == 0
        after = json.loads(ask("status", "gemma-cpu", "--json", "--socket", path).out)
        assert before["incarnation"] != after["incarnation"]


def test_commands_that_do_not_come_about(tmp_path: Path, ask: Any) -> None:
    with admin_process(tmp_path / "a.sock", "stuck"):
        result = ask("stop", "gemma-cpu", "--wait", 0.2, "--socket", tmp_path / "a.sock")
        assert result.code == ExitCode.ACTION_FAILED
        assert result.error == ("stepwarden: after 0.2 s gemma-cpu is STOPPING; the stop goes on\n")
        result = ask("restart", "gemma-cpu", "--no-wait", "--socket", tmp_path / "a.sock")
        assert (result.code, result.out) == (0, "gemma-cpu is STOPPING; the restart goes on\n")
        result = ask("stop", "gemma-cpu", "--wait", 0, "--socket", tmp_path / "a.sock")
        assert result.code == ExitCode.ACTION_FAILED
        assert result.error == "stepwarden: after 0 s gemma-cpu is STOPPING; the stop goes on\n"
    with admin_process(tmp_path / "b.sock", "refuse"):
        result = ask("start", "gemma-cpu", "--socket", tmp_path / "b.sock")
        assert result.code == ExitCode.ACTION_FAILED
        assert result.error == "stepwarden: its last process 77 cannot be ended\n"


def test_o_grpc_5_two_thousand_workers_with_long_sentences(tmp_path: Path, ask: Any) -> None:
    with admin_process(tmp_path / "a.sock", "huge"):
        result = ask("status", "--json", "--socket", tmp_path / "a.sock", "--timeout", 20)
        assert result.code == 0
        assert len(json.loads(result.out)["workers"]) == 2000


def test_no_daemon_is_one_line(tmp_path: Path, ask: Any) -> None:
    path = tmp_path / "none.sock"
    result = ask("status", "--socket", path)
    assert result.code == ExitCode.UNREACHABLE
    assert result.error == f"stepwarden: no daemon: there is no socket {path}\n"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    result = ask("status", "--socket", path)
    assert result.code == ExitCode.UNREACHABLE
    assert result.error == f"stepwarden: no daemon: nobody listens on {path}\n"


def test_where_nobody_was_named_the_file_may_be(
    tmp_path: Path, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "none.sock"
    monkeypatch.delenv("STEPWARDEN_SOCKET", raising=False)
    monkeypatch.setattr(client, "SHIPPED_SOCKET", path)
    hint = "; --config FILE asks the daemon of that file"
    assert ask("status").error == f"stepwarden: no daemon: there is no socket {path}{hint}\n"
    monkeypatch.setenv("STEPWARDEN_SOCKET", str(path))
    assert ask("status").error == f"stepwarden: no daemon: there is no socket {path}\n"


def test_a_worker_that_waits_for_its_start_shows_how_long_it_still_does() -> None:
    worker = supervisor_pb2.Worker(name="w", state="RESTARTING", restart_in_seconds=3.0)
    answer = supervisor_pb2.ListWorkersResponse(workers=[worker])
    assert overview(answer)[1].split()[:8] == ["w", "RESTARTING", "-", "-", "-", "-", "-", "3.0s"]


def test_a_socket_path_that_is_too_long(tmp_path: Path, ask: Any) -> None:
    result = ask("status", "--socket", tmp_path / ("x" * 200))
    assert result.code == ExitCode.UNREACHABLE
    assert result.error.count("\n") == 1
    assert "the kernel takes at most 107" in result.error


def test_what_is_no_admin_socket_is_said_to_be_none(tmp_path: Path, ask: Any) -> None:
    file = tmp_path / "file"
    file.touch()
    result = ask("status", "--socket", file)
    assert result.code == ExitCode.UNREACHABLE
    assert result.error == f"stepwarden: no daemon: {file} is not a socket\n"
    agents = tmp_path / "agent.sock"
    server = grpc.server(ThreadPoolExecutor(1))
    server.add_insecure_port(f"unix:{agents}")
    server.start()
    try:
        result = ask("status", "--socket", agents)
    finally:
        server.stop(None).wait(20)
    assert result.code == ExitCode.UNREACHABLE
    assert f"{agents} is not an admin socket" in result.error


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", "--socket", ""],
        ["status", "--config", ""],
        ["check", ""],
        ["run", ""],
        ["explain", "--worker", "w", "--config", ""],
    ],
)
def test_an_empty_path_is_refused(ask: Any, arguments: list[str]) -> None:
    result = ask(*arguments)
    assert (result.code, result.error.count("\n")) == (ExitCode.USAGE, 1)
    assert "the path is empty" in result.error


@pytest.mark.parametrize(
    "arguments", [[], ["stats"], ["status", "--no\nsuch"], ["stop"], ["events", "--limit", "x"]]
)
def test_a_wrong_command_line_is_one_line(ask: Any, arguments: list[str]) -> None:
    result = ask(*arguments)
    assert (result.code, result.error.count("\n")) == (ExitCode.USAGE, 1)
    assert result.error.startswith("stepwarden")
    assert "--help)" in result.error


def test_the_socket_comes_from_the_environment_or_the_configuration(
    served: Path, ask: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPWARDEN_SOCKET", str(served))
    assert ask("status").code == 0
    monkeypatch.setenv("STEPWARDEN_SOCKET", "/nonexistent")
    assert ask("status").code == ExitCode.UNREACHABLE
    config = tmp_path / "stepwarden.yaml"
    config.write_text(f"supervisor: {{runtime_dir: {served.parent}}}\nworkers: {{}}\n")
    assert ask("status", "--config", config).code == 0
    config.write_text(f"supervisor: {{admin_socket: {served}}}\n")
    assert ask("status", "--config", config).code == 0
    assert ask("status", "--config", tmp_path / "none.yaml").code == ExitCode.CONFIG


@pytest.mark.parametrize("timeout", ["never", "nan", ""])
def test_a_timeout_that_is_no_number(served: Path, ask: Any, timeout: str) -> None:
    result = ask("status", "--socket", served, "--timeout", timeout)
    assert result.code == ExitCode.USAGE
    assert "is no number of seconds" in result.error


@pytest.mark.parametrize("wait", ["-1", "-0.5", "nan", "-inf", "soon", ""])
def test_a_wait_of_less_than_nothing_is_refused(served: Path, ask: Any, wait: str) -> None:
    result = ask("stop", "gemma-cpu", f"--wait={wait}", "--socket", served)
    assert (result.code, result.error.count("\n")) == (ExitCode.USAGE, 1)
    assert ask("status", "--socket", served).code == 0


@pytest.mark.parametrize("timeout", ["-5", "0"])
def test_a_timeout_of_nothing_is_over_at_once(served: Path, ask: Any, timeout: str) -> None:
    result = ask("status", "--socket", served, f"--timeout={timeout}")
    # An answer that is there already may be taken even so.
    assert result.code in (ExitCode.OK, ExitCode.UNREACHABLE)


def test_an_endless_timeout_is_bounded(served: Path, ask: Any) -> None:
    assert ask("status", "--socket", served, "--timeout", "inf").code == 0


@pytest.mark.parametrize("limit", ["0", "-1", "x", "100001", "1.5"])
def test_a_limit_out_of_bounds(served: Path, ask: Any, limit: str) -> None:
    result = ask("events", "--socket", served, f"--limit={limit}")
    assert result.code == ExitCode.USAGE


def test_a_frozen_daemon_is_unreachable_within_the_timeout(tmp_path: Path, ask: Any) -> None:
    path = tmp_path / "a.sock"
    with admin_process(path) as daemon:
        os.kill(daemon.pid, signal.SIGSTOP)
        for command in (
            ["status"],
            ["events"],
            ["events", "--follow"],
            ["stop", "gemma-cpu", "--no-wait"],
            ["restart", "gemma-cpu"],
        ):
            # That each ends at all is what counts: the limit of the test sees one that waits.
            for timeout in ("0", "-5"):
                assert ask(*command, "--socket", path, f"--timeout={timeout}").error == (
                    f"stepwarden: the daemon at {path} did not answer within 0 s\n"
                )
            assert ask(*command, "--socket", path, "--timeout", 0.001).error == (
                f"stepwarden: the daemon at {path} did not answer within 0.001 s\n"
            )
            result = ask(*command, "--socket", path, "--timeout", 0.5)
            assert result.code == ExitCode.UNREACHABLE
            assert result.error == (
                f"stepwarden: the daemon at {path} did not answer within 0.5 s\n"
            )
        os.kill(daemon.pid, signal.SIGCONT)
        assert ask("status", "--socket", path, "--timeout", 20).code == 0


def test_a_timeout_beyond_grpcs_own_patience_is_kept(tmp_path: Path, ask: Any) -> None:
    path = tmp_path / "a.sock"
    with admin_process(path) as daemon:
        os.kill(daemon.pid, signal.SIGSTOP)
        result = ask("status", "--socket", path, "--timeout", 6)
        assert result.error == f"stepwarden: the daemon at {path} did not answer within 6 s\n"


def test_an_open_stream_of_a_frozen_daemon_ends(
    tmp_path: Path, ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "KEEPALIVE_TIME_MS", 1000)
    monkeypatch.setattr(client, "KEEPALIVE_TIMEOUT_MS", 1000)
    path = tmp_path / "a.sock"
    shown = Event()
    with admin_process(path) as daemon, ThreadPoolExecutor(1) as pool:

        def freeze() -> None:
            assert shown.wait(60)
            os.kill(daemon.pid, signal.SIGSTOP)

        def text_line(event: Any) -> str:
            shown.set()
            return str(event.sentence)

        monkeypatch.setattr(events, "text_line", text_line)
        freezing = pool.submit(freeze)
        result = ask("events", "--follow", "--socket", path)
        freezing.result(60)
    assert result.code == ExitCode.UNREACHABLE
    assert result.error == f"stepwarden: the daemon at {path} did not answer within 2 s\n"


def command_line(*arguments: object, **more: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "stepwarden", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **more,
    )


def test_o_grpc_2_a_proxy_in_the_environment_is_not_asked(served: Path) -> None:
    proxy = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY"), "http://127.0.0.1:9")
    with command_line("status", "--socket", served, env={**os.environ, **proxy}) as process:
        out, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "")
    assert "gemma-cpu" in out


def test_following_shows_new_events_and_ends_with_the_daemon(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with (
        admin_process(path) as daemon,
        command_line("events", "--follow", "--json", "--socket", path) as process,
    ):
        assert process.stdout is not None
        assert daemon.stdin is not None
        assert json.loads(process.stdout.readline())["to_state"] == "HEALTHY"
        daemon.stdin.write("something new\n")
        daemon.stdin.flush()
        assert json.loads(process.stdout.readline())["sentence"] == "something new"
        daemon.stdin.close()
        out, error = process.communicate(timeout=60)
    assert (process.returncode, out) == (ExitCode.UNREACHABLE, "")
    assert error == "stepwarden: the daemon has stopped\n"


def test_following_ends_when_the_daemon_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "a.sock"
    with (
        admin_process(path) as daemon,
        command_line("events", "--follow", "--socket", path) as process,
    ):
        assert process.stdout is not None
        assert "it came up" in process.stdout.readline()
        daemon.kill()
        _, error = process.communicate(timeout=60)
    assert process.returncode == ExitCode.UNREACHABLE
    assert error.startswith(f"stepwarden: the daemon at {path} went away")
    assert error.count("\n") == 1


def test_a_reader_that_leaves_is_no_error(served: Path) -> None:
    with command_line("status", "--socket", served) as process:
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        _, error = process.communicate(timeout=60)
    assert (process.returncode, error) == (0, "")


def test_interrupting_a_follower_is_quiet(served: Path) -> None:
    with command_line("events", "--follow", "--socket", served) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        wait_for(lambda: process.poll() is not None)
        assert process.stderr is not None
        assert process.stderr.read() == ""
    assert process.returncode == 130


def test_o_grpc_5_a_list_that_changes_between_two_pages_is_asked_for_again() -> None:
    from stepwarden.clock import SystemClock
    from stepwarden_proto.v1 import supervisor_pb2 as pb

    answers = [
        pb.ListWorkersResponse(workers=[pb.Worker(name="a")], next_page_token="a"),
        client.ListChangedError("changed"),
        pb.ListWorkersResponse(workers=[pb.Worker(name="b")], next_page_token="b"),
        pb.ListWorkersResponse(workers=[pb.Worker(name="c")]),
    ]
    asked = []

    class Scripted(client.Client):
        def _once(self, _method: str, request: Any, _extra: float) -> Any:
            asked.append(request.page_token)
            answer = answers.pop(0)
            if isinstance(answer, Exception):
                raise answer
            return answer

    whole = Scripted(Path("/nowhere"), 5.0, SystemClock()).call(
        "ListWorkers", pb.ListWorkersRequest()
    )
    assert [worker.name for worker in whole.workers] == ["b", "c"]
    assert asked == ["", "a", "", "b"]
