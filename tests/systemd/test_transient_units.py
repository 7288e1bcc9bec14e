"""Workers in transient units of a real systemd, and systemd's word on units, jobs and the host.

The acts of support/unit_stage.py are played inside the box, as root.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jeepney
import pytest
import stepwarden
import stepwarden_proto
from support.box_wheel import SYSTEM_PYTHON, no_box
from support.systemd_box import SystemdBox
from support.systemd_init import SHARE
from support.waiting import wait_for

pytestmark = [pytest.mark.systemd, pytest.mark.timeout(300)]

COMMAND = ("env", f"PYTHONPATH={SHARE}/site", SYSTEM_PYTHON, f"{SHARE}/unit_stage.py")
PACKAGES = (stepwarden, stepwarden_proto, jeepney)
STAGE = Path(__file__).resolve().parents[1] / "support" / "unit_stage.py"
SECRET = "s3cret-token"
# Without that order the bus may be gone at shutdown before the caller has asked.
CALLER = f"""\
[Unit]
After=dbus.service
[Service]
ExecStart=/usr/bin/{" ".join(COMMAND)} caller {SHARE}/notes
"""
RULE = """\
polkit.addRule(function (action, subject) {
  if (action.id == "org.freedesktop.systemd1.manage-units" && subject.user == "nobody")
    return polkit.Result.YES;
});
"""
EVERY_CHARACTER = "".join(map(chr, range(1, 128)))
HARD_WORDS = [
    "",
    " ",
    "$HOME",
    "${HOME}",
    "$$",
    "$",
    "a$b",
    "%n",
    "%%",
    "%",
    "\\x41",
    "\\",
    '"',
    "'",
    ";",
    "@x",
    "-x",
    "line\nline\n",
    "schlüssel-鍵-🔑",
    EVERY_CHARACTER,
]


@contextmanager
def booted() -> Iterator[SystemdBox]:
    """A box with a message bus and the packages under test."""
    reason = no_box()
    if reason is not None:
        pytest.skip(reason)
    # Not below /tmp: an overlay in memory would not see a file system mounted there.
    folder = Path(tempfile.mkdtemp(prefix="box-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        with SystemdBox(folder) as made:
            for package in PACKAGES:
                source = Path(package.__path__[0])
                shutil.copytree(source, made.share / "site" / package.__name__)
            shutil.copyfile(STAGE, made.share / STAGE.name)
            made.run("systemctl", "start", "dbus.socket")
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def box() -> Iterator[SystemdBox]:
    """One that many tests use."""
    with booted() as made:
        yield made


def play(box: SystemdBox, *command: str) -> Any:
    """What an act returns."""
    return json.loads(box.run(*COMMAND, *command).stdout)


def write(box: SystemdBox, name: str, text: str) -> str:
    """A file in the share; its path inside."""
    (box.share / name).write_text(text, encoding="utf-8")
    return f"{SHARE}/{name}"


def ended(code: int | None = None, signal: int | None = None) -> dict[str, Any]:
    """An `Exit` as the stage prints it."""
    return {"code": code, "signal": signal, "oom": False}


def units(box: SystemdBox) -> list[str]:
    """The transient units that systemd knows."""
    listed = box.run("systemctl", "list-units", "--all", "--plain", "--no-legend", "stepwarden-*-*")
    return [line.split()[0] for line in listed.stdout.splitlines()]


@pytest.fixture
def worker(box: SystemdBox) -> Iterator[dict[str, Any]]:
    """A worker that runs and carries a secret; its `Begun`."""
    begun = play(box, "begin", "", "nobody", "sleep", "1000")
    yield begun
    assert play(box, "tidy", begun["unit"]) == [[True, True]]


@pytest.fixture(scope="module")
def mirrored(box: SystemdBox) -> dict[str, Any]:
    """What a worker saw of itself."""
    (box.share / "given.json.seen").touch()
    (box.share / "given.json.seen").chmod(0o666)
    env = {f"V{number}": word for number, word in enumerate(HARD_WORDS)}
    path = write(box, "given.json", json.dumps({"argv": HARD_WORDS, "env": env}))
    return dict(play(box, "mirror", path))


def test_every_character_of_a_command_arrives(mirrored: dict[str, Any]) -> None:
    assert mirrored["argv"][1:] == HARD_WORDS


def test_every_character_of_the_environment_arrives(mirrored: dict[str, Any]) -> None:
    arrived = [mirrored["env"][f"V{number}"] for number in range(len(HARD_WORDS))]
    assert arrived == HARD_WORDS


def test_o_proc_5_a_worker_inherits_nothing(mirrored: dict[str, Any]) -> None:
    blocked, mask, ignored, more = mirrored["signals"]
    assert (blocked, int(mask, 16), ignored) == ("SigBlk:", 0, "SigIgn:")
    # Signals 32 and 33 are the C library's own; nobody can set them back who did not ignore them.
    assert int(more, 16) & ~(3 << 31) == 0
    assert mirrored["fds"] == [0, 1, 2]
    added = set(mirrored["env"]) - {f"V{number}" for number in range(len(HARD_WORDS))}
    assert added <= {
        *("PATH", "LANG", "HOME", "USER", "LOGNAME", "SHELL", "INVOCATION_ID", "JOURNAL_STREAM"),
        *("SYSTEMD_EXEC_PID", "MEMORY_PRESSURE_WATCH", "MEMORY_PRESSURE_WRITE", "LC_CTYPE"),
    }


def test_the_settings_of_a_worker_hold(mirrored: dict[str, Any]) -> None:
    seen = {name: mirrored[name] for name in ("cwd", "uid", "gid", "nice", "umask", "limits")}
    limits = {"NOFILE": [4321, 4321], "CORE": [0, 0]}
    ids = {"uid": 65534, "gid": 65534}
    assert seen == {"cwd": "/var/tmp", **ids, "nice": 5, "umask": 0o027, "limits": limits}
    assert (mirrored["exit"], mirrored["gone"]) == (ended(code=0), True)


def test_how_a_worker_ended_can_be_read_until_it_is_tidied(box: SystemdBox) -> None:
    def code(number: int) -> list[Any]:
        return [ended(code=number), True]

    def killed(number: int) -> list[Any]:
        return [ended(signal=number), True]

    assert play(box, "exits") == {
        "exit 0": code(0),
        "exit 7": code(7),
        "sleep 0.2; exit 203": code(203),
        "kill -KILL $$": killed(9),
        "kill -TERM $$": killed(15),
        "exit 255": code(255),
        "true": code(0),
        "again": [True, None],
    }
    assert units(box) == []


def test_o_sysd_2_the_group_that_counts_for_memory_outlives_the_worker(box: SystemdBox) -> None:
    """Its counter needs the memory controller in version 2, which not every machine hands down."""
    seen = play(box, "slices")
    assert seen["while it runs"] == [True, True]
    assert seen["when it ended"] == [False, True]
    assert seen["tidied"] == [False, False]


def test_a_command_that_cannot_be_started_is_said_in_words(box: SystemdBox) -> None:
    folder = box.share / "programs"
    folder.mkdir()
    for name, text, mode in (
        ("plain", "#!/bin/sh\n", 0o644),
        ("lost", "#!/nowhere/sh\n", 0o755),
        ("text", "no program\n", 0o755),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(mode)
    inside = f"{SHARE}/programs"
    done = play(box, "failures", inside)
    missing = "No such file or directory (ENOENT)"
    lost = "the file is there, the interpreter that it names is not"
    set_up = "cannot start '/bin/true': systemd could not"
    assert done["texts"] == {
        "missing": f"cannot start '/nowhere/engine': {missing}",
        "not in PATH": f"cannot start 'no-such-engine': {missing}",
        "not executable": f"cannot start '{inside}/plain': Permission denied (EACCES)",
        "a folder": f"cannot start '{inside}': Permission denied (EACCES)",
        "no interpreter": f"cannot start '{inside}/lost': {missing}; {lost}",
        "no program": f"cannot start '{inside}/text': Exec format error (ENOEXEC)",
        "cwd": f"cannot enter the working directory '/nowhere': {missing}",
        "user": f"{set_up} take its user (status 217/USER)",
        "group": f"{set_up} take its group (status 216/GROUP)",
        "output": f"{set_up} open its output (status 209/STDOUT)",
        "bytes": "the command is not UTF-8, and systemd takes nothing else",
        "cwd bytes": "'/\\udcff' is not UTF-8, and systemd takes nothing else",
        "variable": "the environment variable 'a-b' has a name that systemd does not take",
        "value": "the environment variable TOKEN is not UTF-8, and systemd takes nothing else",
    }
    assert (done["left"], done["files"]) == ([], [])


def test_no_other_user_can_read_a_token(box: SystemdBox, worker: dict[str, Any]) -> None:
    pid = worker["main"]["pid"]
    own = box.run("cat", f"/proc/{pid}/environ").stdout
    assert f"TOKEN={SECRET}" in own
    shown = box.run("systemctl", "show", "--all", worker["unit"]).stdout
    written = box.run("cat", f"/run/systemd/transient/{worker['unit']}").stdout
    assert "EnvironmentFile" in shown
    assert SECRET not in shown + written + box.run("journalctl", "--no-pager").stdout
    assert box.run("ls", "/run/stage/environments", check=False).stdout == ""
    as_other = ("setpriv", "--reuid=1", "--regid=1", "--clear-groups")
    assert box.run(*as_other, "cat", f"/proc/{pid}/environ", check=False).returncode == 1


def test_the_rest_of_a_tree_is_left_to_us(box: SystemdBox) -> None:
    """O-PROC-1: main's failure ends nobody else, tidying up does."""
    expected = {"exit": ended(code=3), "left": 1, "stay": True, "gone": True}
    assert play(box, "orphans") == expected


def test_a_unit_that_someone_else_stopped_is_tidied_too(
    box: SystemdBox, worker: dict[str, Any]
) -> None:
    box.run("systemctl", "stop", worker["unit"])
    assert play(box, "leftovers") == []
    assert play(box, "tidy", worker["unit"]) == [[True, True]]
    assert units(box) == []


def test_output_is_appended_to_a_file(box: SystemdBox) -> None:
    assert play(box, "append", f"{SHARE}/log") == "one\none\ntwo\ntwo\n"


def test_a_worker_is_found_again_by_its_unit_alone(box: SystemdBox, worker: dict[str, Any]) -> None:
    (left,) = play(box, "leftovers")
    assert left["begun"] == worker
    assert (left["worker"], left["exit"]) == ("w-1", None)
    assert left["incarnation"].startswith("w-1.1.")


def start_caller(box: SystemdBox) -> None:
    """A service that starts a worker, and runs."""
    write(box, "caller.service", CALLER)
    box.run("cp", f"{SHARE}/caller.service", "/run/systemd/system/caller.service")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", "caller.service")
    up(box, 1)


def notes(box: SystemdBox) -> list[str]:
    """What the caller wrote down."""
    path = box.share / "notes"
    return path.read_text().splitlines() if path.exists() else []


def up(box: SystemdBox, times: int) -> None:
    """Wait until the caller has come up so many times."""
    wait_for(lambda: len([line for line in notes(box) if line.startswith("up ")]) == times, 30)


def said(box: SystemdBox) -> list[str]:
    """What the caller saw at its ends: its job, and whether the host shuts down."""
    return [line for line in notes(box) if not line.startswith("up ")]


def test_o_sysd_1_a_restart_of_the_caller_leaves_its_worker_alone(box: SystemdBox) -> None:
    start_caller(box)
    (before,) = play(box, "leftovers")
    unit = before["begun"]["unit"]
    assert box.show(unit, "After")["After"].split().count("caller.service") == 1
    box.run("systemctl", "restart", "caller.service")
    up(box, 2)
    box.run("systemctl", "kill", "--signal=KILL", "caller.service")
    box.run("systemctl", "reset-failed", "caller.service", check=False)
    box.run("systemctl", "start", "caller.service")
    up(box, 3)
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "stop", "caller.service")
    assert said(box) == ["restart False", "stop False"]
    assert play(box, "leftovers") == [before]
    assert play(box, "tidy", unit) == [[True, True]]


def test_a_hung_exec_holds_nobody_up(box: SystemdBox) -> None:
    program = box.share / "leased"
    shutil.copyfile("/bin/true", program)
    program.chmod(0o755)
    lease = "import fcntl,os,signal,sys;signal.signal(signal.SIGIO,signal.SIG_IGN);"
    lease += "f=os.open(sys.argv[1],os.O_RDWR);fcntl.fcntl(f,fcntl.F_SETLEASE,fcntl.F_WRLCK);"
    lease += "print(1,flush=True);signal.pause()"
    inside = f"{SHARE}/leased"
    box.run("systemd-run", "--unit=lease", "--property=StandardOutput=file:/run/leased",
            "/usr/bin/python3", "-c", lease, inside)  # fmt: skip
    wait_for(lambda: box.run("cat", "/run/leased", check=False).stdout == "1\n", 20, "lease")
    try:
        done = play(box, "hung_exec", inside)
    finally:
        box.run("systemctl", "stop", "lease")
    assert done["said"] == f"cannot start {inside!r}: exec took longer than the limit"
    assert done["ticks"] > 10
    assert done["cancelled"] == []
    wait_for(lambda: units(box) == [], 20, "the unit is gone")


def test_fifty_starts_leave_no_unit_and_no_group(box: SystemdBox) -> None:
    took = play(box, "many", "50")
    print(f"start: median {1000 * took[25]:.1f} ms, slowest {1000 * took[-1]:.1f} ms")
    assert units(box) == []
    groups = box.run("find", "/sys/fs/cgroup", "-name", "stepwarden*").stdout.split()
    assert len(groups) <= 2  # the slice of all workers, and that of this one
    assert box.run("ls", "/run/systemd/transient", "/run/stage").stdout.count("w-1") == 0


def test_twenty_starts_side_by_side(box: SystemdBox) -> None:
    assert play(box, "at_once", "20") == {"mains": 20, "gone": True}


def test_a_bus_that_hangs_or_goes_away_is_replaced(box: SystemdBox) -> None:
    pid = box.show("dbus.service", "MainPID")["MainPID"]
    assert play(box, "lost_bus", pid) == [False, True, False, False]


def test_units_of_the_operator(box: SystemdBox) -> None:
    files = {
        "own.service": "ExecStart=/bin/sh -c 'sleep 1000 & exec sleep 1000'",
        "own-failing.service": "Type=oneshot\nExecStart=/bin/sh -c 'exit 4'",
        "own-restarting.service": "ExecStart=/bin/sleep 1000\nRestart=on-failure",
    }
    for name, lines in files.items():
        source = write(box, name, f"[Service]\n{lines}\n")
        box.run("cp", source, f"/run/systemd/system/{name}")
    box.run("systemctl", "daemon-reload")
    seen = play(box, "operators_unit", *files)
    fight = "two restarters would fight; set Restart=no there"
    assert seen == {
        "same": True,
        "other": True,
        "members": 2,
        "with main": True,
        "exit": ended(signal=9),
        "third": True,
        "stopped": True,
        "processes": 0,
        "own-failing.service": "cannot start unit own-failing.service: systemd says failed, "
        "result exit-code, status 4",
        "own-restarting.service": f"unit own-restarting.service has Restart=on-failure: {fight}",
        "nobody-wrote-this.service": "there is no unit nobody-wrote-this.service",
    }


def test_check_asks_systemd_whether_units_can_be_workers(box: SystemdBox) -> None:
    for name, lines in {"good": "", "fighting": "Restart=always"}.items():
        source = write(box, name, f"[Service]\nExecStart=/bin/sleep 1000\n{lines}\n")
        box.run("cp", source, f"/run/systemd/system/{name}.service")
    box.run("systemctl", "daemon-reload")
    code = "import json, sys; from stepwarden.cli.units import ask_systemd;"
    code += "print(json.dumps(ask_systemd(sys.argv[1:])))"
    names = [f"{name}.service" for name in ("good", "fighting", "none")]
    assert json.loads(box.run(*COMMAND[:-1], "-c", code, *names).stdout) == {
        "good.service": "",
        "fighting.service": "unit fighting.service has Restart=always: two restarters would fight;"
        " set Restart=no there",
        "none.service": "there is no unit none.service",
    }


def test_a_host_that_shuts_down_stops_workers_first() -> None:
    """They come after the daemon's unit, so the daemon is there until they are gone."""
    with booted() as other:
        write(other, "last", "")
        start_caller(other)
        script = f"trap 'cat {SHARE}/notes > {SHARE}/last; exit' TERM; while :; do sleep .05; done"
        play(other, "begin", "caller.service", "root", "sh", "-c", script)
        before = notes(other)
        other.stop()
        assert said(other) == ["stop True"]
        assert (other.share / "last").read_text().splitlines() == before


def test_root_may_make_units_and_others_only_where_polkit_agrees(box: SystemdBox) -> None:
    def told(user: str, *command: str) -> Any:
        as_user = ("--property=RuntimeDirectory=stage", f"--property=User={user}")
        run = ("systemd-run", "--wait", "--pipe", "--quiet", *as_user)
        return json.loads(box.run(*run, *COMMAND, *(command or ("refusal",))).stdout)

    assert play(box, "refusal") == [None, None]
    refused = "polkit does not allow org.freedesktop.systemd1.manage-units to uid"
    reason, own = told("nobody")
    assert reason == f"{refused} 65534"
    assert own.startswith("run-")
    rule = write(box, "stage.rules", RULE)
    box.run("install", "-D", "-m", "644", rule, "/etc/polkit-1/rules.d/stage.rules")
    box.run("systemctl", "restart", "polkit.service")
    assert told("daemon")[0] == f"{refused} 1"
    assert told("nobody")[0] is None
    begun = told("nobody", "begin", "", "daemon", "sleep", "1000")
    assert box.run("ps", "-o", "user=", str(begun["main"]["pid"])).stdout.strip() == "daemon"
    assert play(box, "tidy", begun["unit"]) == [[True, True]]
