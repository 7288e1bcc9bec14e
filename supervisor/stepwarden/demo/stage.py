"""Where the story plays: temporary directories, the daemon's process, and a clean end of both."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Iterable
from pathlib import Path

import psutil

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.demo import control
from stepwarden.demo.feed import StoryFailedError
from stepwarden.errors import ExitCode

MARK_VARIABLE = "DEMO_MARK"
RUNTIME = "/run/stepwarden-demo"
STATE = "/var/lib/stepwarden-demo"
HEALTH = "127.0.0.1:50061"
PYTHON = "[python3,"
STOP_SECONDS = 20.0
KILL_SECONDS = 5.0
ASK_SECONDS = 10.0


def shipped_config() -> str:
    """The text of the demo's configuration, as the package carries it."""
    return Path(__file__).with_name("demo.yaml").read_text(encoding="utf-8")


def placed_config(text: str, runtime: Path, state: Path, python: str) -> str:
    """`text` with directories of its own, no TCP port, and this interpreter."""
    swaps = {RUNTIME: str(runtime), STATE: str(state), f'"{HEALTH}"': "", PYTHON: f'["{python}",'}
    for old, new in swaps.items():
        if old not in text:
            raise StoryFailedError(f"{old!r} is not in the demo's configuration")
        text = text.replace(old, new)
    return text


class Stage:
    """Starts processes, and ends every one of them in `close`, whatever happened between."""

    def __init__(self, clock: Clock) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="stepwarden-demo-"))
        self.config = self.directory / "demo.yaml"
        self.log = self.directory / "daemon.log"
        self.control = self.directory / "run" / "control.sock"
        self._clock = clock
        self._mark = uuid.uuid4().hex
        self._daemon: subprocess.Popen[bytes] | None = None
        self._never = threading.Event()
        self._helpers: list[psutil.Process] = []
        self.control.parent.mkdir(mode=0o700)
        text = placed_config(
            shipped_config(), self.control.parent, self.directory / "state", sys.executable
        )
        self.config.write_text(text, encoding="utf-8")

    def start_daemon(self) -> None:
        """`stepwarden run FILE`, in a session of its own: Ctrl-C must reach only the story."""
        with self.log.open("wb") as output:
            self._daemon = subprocess.Popen(
                [sys.executable, "-m", "stepwarden", "run", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=self._environment(),
                start_new_session=True,
            )

    def start_alone(self, *words: str) -> subprocess.Popen[str]:
        """The demo's server without any supervisor; its output is a pipe."""
        return self._piped("stepwarden.demo.worker", *words)

    def start_command(self, *words: str) -> subprocess.Popen[str]:
        """`stepwarden WORDS --config FILE` in the background; its output is a pipe."""
        return self._piped("stepwarden", *words, "--config", str(self.config))

    def daemon_answers(self) -> bool:
        """True when `stepwarden status` finds the daemon."""
        status = [sys.executable, "-m", "stepwarden", "status", "--config", str(self.config)]
        done = subprocess.run(
            status,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=self._environment(),
            timeout=ASK_SECONDS,
            check=False,
        )
        return done.returncode == ExitCode.OK

    def ask(self, do: str, **fields: object) -> control.Message:
        """One control request to the demo's server; StoryFailedError: it does not answer."""
        try:
            return control.ask(self.control, {"do": do, **fields}, ASK_SECONDS)
        except OSError as error:
            raise StoryFailedError(f"the demo server does not answer {do!r}: {error}") from error

    def pause(self, seconds: float) -> None:
        """Let a short time pass between two looks; returns at once when the daemon ends."""
        if self._daemon is None:
            self._never.wait(seconds)
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            code = self._daemon.wait(seconds)
            raise StoryFailedError(f"the daemon ended with exit code {code}")

    def last_words(self) -> str:
        """The daemon's last line of output, for an error message."""
        with contextlib.suppress(OSError):
            lines = self.log.read_text(encoding="utf-8", errors="replace").split("\n")
            return next((line for line in reversed(lines) if line.strip()), "")
        return ""

    def daemon_ended(self) -> bool:
        """True when there is no daemon any more."""
        return self._daemon is None or self._daemon.poll() is not None

    def close(self) -> str:
        """SIGTERM to the daemon, wait, look for what is left and end that too.

        Returns what was wrong with its end; "" where nothing was.
        """
        try:
            end_processes(self._helpers)
            below = [] if self._daemon is None else descendants(self._daemon.pid)
            stopped = self._stop_daemon()
            left = [process for process in {*below, *marked(self._mark)} if lives(process)]
            end_processes(left)
        finally:
            shutil.rmtree(self.directory, ignore_errors=True)
        if not stopped:
            return f"the daemon did not stop within {STOP_SECONDS:g} s and was killed"
        if left:
            pids = ", ".join(sorted(str(process.pid) for process in left))
            return f"the daemon left processes behind, which are ended now: {pids}"
        return ""

    def _stop_daemon(self) -> bool:
        daemon = self._daemon
        if daemon is None:
            return True
        deadline = Deadline.after(self._clock.monotonic(), STOP_SECONDS)
        daemon.terminate()
        try:
            daemon.wait(deadline.remaining(self._clock.monotonic()))
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
            return False
        return True

    def _piped(self, module: str, *words: str) -> subprocess.Popen[str]:
        started = subprocess.Popen(
            [sys.executable, "-m", module, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=self._environment(),
            start_new_session=True,
        )
        self._helpers.append(psutil.Process(started.pid))
        return started

    def _environment(self) -> dict[str, str]:
        ours = {MARK_VARIABLE: self._mark, "PYTHONUNBUFFERED": "1"}
        return {k: v for k, v in os.environ.items() if not k.startswith("STEPWARDEN_")} | ours


def descendants(pid: int) -> list[psutil.Process]:
    """Every living process below `pid`."""
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.Error:
        return []


def marked(mark: str) -> list[psutil.Process]:
    """Every process that inherited `mark` in its environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK_VARIABLE) == mark:
                found.append(process)
    return found


def lives(process: psutil.Process) -> bool:
    """True while this very process (pid and start time) is there and no zombie."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def end_processes(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL each and wait until all are gone, `KILL_SECONDS` at most."""
    living = [process for process in processes if lives(process)]
    for process in living:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(living, timeout=KILL_SECONDS)
