"""The stub worker of the field cases: an agent, an imitation of an engine, and a control socket.

Run as ``python -m support.stub_worker`` or by its path, with STUB_DIR naming a directory that
holds the control socket (stub.sock), the log of signals (signals.log) and locks. STUB_SCRIPT is
a list of commands, separated by ``;``, run at start; ``attach; idle`` by default. Scripts for
one life after the other are separated by ``|``; the last one holds for all further lives. The same
commands are taken from the socket (see `support.stub_control.StubControl`):

    attach [PHASE]        make the agent (a stub that never attaches is silent)
    sleep SECONDS         do nothing at all, take no command either
    step RATE [BATCH [TOKENS]]   steps without end, RATE each second
    steps S1 S2 ...       steps of these lengths one after the other, then as before; S@N: batch N
    batch N               batch of `steps` and `freeze` (any integer, also nonsense)
    freeze [SECONDS]      a step begins and does not end (for SECONDS, then as before)
    idle                  nothing in flight
    mute / silence        no beats and no ticks / no beats, but ticks
    spin / rest           burn one core / stop burning
    phase NAME, lease NAME SECONDS, release, work N, turn, detail BYTES, bye
    exit N / raise NAME   exit with this code (no bye) / die of this signal
    ignore-term           log SIGTERM and stay
    drain SECONDS         on SIGTERM stand in a step for so long, then exit 0
    tree                  child A, child B (setsid) and a grandchild; each holds NAME.lock;
                          who finds a lock held writes so into the file `overlap`
    print N               N lines to stdout
    late INCARNATION [STEP [TOKEN]]   one beat as another incarnation; answers its fate
    status                pid, incarnation, mode, steps begun
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

from stepwarden_agent import Agent, Lease
from stepwarden_proto import page as layout

Mode = Generator[float, None, None]
FOREVER = 1e6
SIGNAL_LOOK = 0.2
LOGGED = ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGCONT")


class Stub:
    """One life of the stub. Commands run in the main thread, which is also the engine's."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.commands: queue.SimpleQueue[tuple[str, queue.SimpleQueue[str]]] = queue.SimpleQueue()
        self.agent: Agent | None = None
        self.batch = 4
        self.begun = 0
        self.mode_name = "idle"
        self.mode: Mode = self.idling()
        self.afterwards: tuple[str, Callable[[], Mode]] = ("idle", self.idling)
        self.ignore_term = False
        self.drain: float | None = None
        self.spinning = threading.Event()
        self.lease: Lease | None = None

    def run(self, script: str) -> None:
        """The script, then commands from the socket, for ever."""
        for command in script.split(";"):
            if command.strip():
                self.obey(command)
        wake_at = 0.0
        while True:
            if time.monotonic() >= wake_at:
                wake_at = time.monotonic() + self.advance()
            try:
                wait = max(0.0, wake_at - time.monotonic())
                # Not for ever: a signal may be taken by another thread and wakes nobody then.
                command, reply = self.commands.get(timeout=min(wait, SIGNAL_LOOK))
            except queue.Empty:
                continue
            before = self.mode
            reply.put(self.answer(command))
            if self.mode is not before:
                before.close()
                wake_at = 0.0

    def advance(self) -> float:
        """Seconds until the mode wants to run again."""
        try:
            return next(self.mode)
        except StopIteration:
            self.mode_name, make = self.afterwards
            self.mode = make()
            return next(self.mode)

    def answer(self, command: str) -> str:
        """Obey, and say "ok", a result, or what went wrong."""
        try:
            return self.obey(command) or "ok"
        except Exception as error:
            return f"error: {error!r}"

    def obey(self, command: str) -> str | None:
        """Run one command in this thread; returns its result, if it has one."""
        name, *words = command.split()
        method = getattr(self, "do_" + name.replace("-", "_"))
        result: str | None = method(*words)
        return result

    # Modes: generators that yield how long to wait; closing one ends its open step.

    def idling(self) -> Mode:
        while True:
            yield FOREVER

    def stepping(self, rate: float, batch: int, tokens: int) -> Mode:
        while True:
            with self.open_step(batch, tokens):
                yield 0.8 / rate
            yield 0.2 / rate

    def stepping_by_script(self, steps: list[tuple[float, int]]) -> Mode:
        for seconds, batch in steps:
            with self.open_step(batch, batch):
                yield seconds
            yield 0.01

    def frozen(self, seconds: float) -> Mode:
        with self.open_step(self.batch, self.batch):
            yield seconds

    @contextlib.contextmanager
    def open_step(self, batch: int, tokens: int) -> Iterator[None]:
        if self.agent is None:
            yield
            return
        self.begun += 1
        with self.agent.step(batch, tokens, phase="decode"):
            yield

    def enter(self, name: str, mode: Mode) -> None:
        self.mode_name, self.mode = name, mode

    # Commands.

    def do_attach(self, phase: str = "idle") -> None:
        self.agent = Agent.from_env(phase=phase)

    def do_sleep(self, seconds: str) -> None:
        time.sleep(min(float(seconds), FOREVER))

    def do_step(self, rate: str, batch: str = "4", tokens: str = "") -> None:
        shape = (float(rate), int(batch), int(tokens or batch))
        self.afterwards = ("step", lambda: self.stepping(*shape))
        self.enter("step", self.stepping(*shape))

    def do_steps(self, *lengths: str) -> None:
        pairs = [text.partition("@") for text in lengths]
        steps = [(float(length), int(batch or self.batch)) for length, _, batch in pairs]
        self.enter("steps", self.stepping_by_script(steps))

    def do_batch(self, batch: str) -> None:
        self.batch = int(batch)

    def do_freeze(self, seconds: str = "inf") -> None:
        self.enter("freeze", self.frozen(min(float(seconds), FOREVER)))

    def do_idle(self) -> None:
        self.afterwards = ("idle", self.idling)
        self.enter("idle", self.idling())

    def do_mute(self) -> None:
        self.known_agent()._mute()

    def do_silence(self) -> None:
        self.known_agent()._mute(ticks=False)

    def do_spin(self) -> None:
        self.spinning.set()
        threading.Thread(target=self.burn, daemon=True).start()

    def do_rest(self) -> None:
        self.spinning.clear()

    def burn(self) -> None:
        while self.spinning.is_set():
            sum(range(10_000))

    def do_phase(self, name: str) -> None:
        self.known_agent().phase(name)

    def do_lease(self, name: str, seconds: str) -> None:
        self.lease = self.known_agent().lease(name, float(seconds))

    def do_release(self) -> None:
        if self.lease is not None:
            self.lease.release()

    def do_work(self, unfinished: str) -> None:
        self.known_agent().work(int(unfinished))

    def do_turn(self) -> None:
        self.known_agent().loop_turn()

    def do_detail(self, size: str) -> None:
        self.known_agent().detail("x" * int(size))

    def do_bye(self) -> None:
        self.known_agent().close()

    def do_exit(self, code: str) -> None:
        os._exit(int(code))

    def do_raise(self, name: str) -> None:
        number = signal.Signals["SIG" + name.removeprefix("SIG")]
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    def do_ignore_term(self) -> None:
        self.ignore_term = True

    def do_drain(self, seconds: str) -> None:
        self.drain = float(seconds)

    def do_tree(self) -> str:
        names = ("child_a", "child_b", "grandchild")
        for name in names:
            (self.directory / f"{name}.pid").unlink(missing_ok=True)
        hold_lock(self.directory, "main")
        own = [sys.executable, str(Path(__file__).resolve()), "--hold"]
        first = subprocess.Popen([*own, "child_a"])
        second = subprocess.Popen([*own, "child_b", "grandchild"], start_new_session=True)
        for name in names:
            while not (self.directory / f"{name}.pid").exists():
                time.sleep(0.01)
        return f"{first.pid} {second.pid}"

    def do_print(self, lines: str) -> None:
        for number in range(int(lines)):
            print(f"line {number} " + "." * 80, flush=True)

    def do_late(self, incarnation: str, step: str = "100", token: str = "") -> str:
        return send_late(incarnation, int(step), token or os.environ.get(layout.ENV_TOKEN, ""))

    def do_status(self) -> str:
        return json.dumps(
            {
                "pid": os.getpid(),
                "incarnation": os.environ.get(layout.ENV_INCARNATION, ""),
                "mode": self.mode_name,
                "begun": self.begun,
            }
        )

    def known_agent(self) -> Agent:
        if self.agent is None:
            raise RuntimeError("not attached")
        return self.agent

    # Signals and the socket.

    def log_signals(self) -> None:
        for name in LOGGED:
            signal.signal(getattr(signal, name), self.on_signal)

    def on_signal(self, number: int, _frame: object) -> None:
        name = signal.Signals(number).name
        with open(self.directory / "signals.log", "a", encoding="ascii") as file:
            file.write(f"{time.monotonic():.3f} {os.getpid()} {name}\n")
        if number == signal.SIGTERM and self.drain is not None:
            threading.Timer(self.drain, os._exit, (0,)).start()
            self.commands.put(("freeze", queue.SimpleQueue()))
        elif number in (signal.SIGTERM, signal.SIGINT) and not self.ignore_term:
            if self.agent is not None:
                self.agent.close()
            os._exit(0)

    def listen(self) -> None:
        path = self.directory / f"stub.{os.getpid()}.sock"
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen()
        # A new life takes the name over in one move, whatever an old one left there.
        path.rename(self.directory / "stub.sock")
        threading.Thread(target=self.serve, args=(listener,), daemon=True).start()

    def serve(self, listener: socket.socket) -> None:
        while True:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                self.converse(connection)

    def converse(self, connection: socket.socket) -> None:
        with connection.makefile("rw", encoding="utf-8") as file:
            reply: queue.SimpleQueue[str] = queue.SimpleQueue()
            self.commands.put((file.readline(), reply))
            file.write(reply.get() + "\n")
            file.flush()


def send_late(incarnation: str, step: int, token: str) -> str:
    """Send one beat as `incarnation`; "acknowledged", "closed", or the name of the status code."""
    import grpc
    from stepwarden_proto.channel import CLIENT_OPTIONS
    from stepwarden_proto.v1 import agent_pb2, agent_pb2_grpc

    beat = agent_pb2.Beat(
        worker=os.environ.get(layout.ENV_WORKER, ""),
        incarnation=incarnation,
        rank="0",
        seq=1,
        pid=os.getpid(),
        steps_begun=step,
        steps_ended=step,
        phase=agent_pb2.PHASE_DECODE,
    )
    with grpc.insecure_channel(os.environ[layout.ENV_TARGET], options=CLIENT_OPTIONS) as channel:
        stub = agent_pb2_grpc.AgentServiceStub(channel)  # type: ignore[no-untyped-call]  # generated
        metadata = ((layout.TOKEN_METADATA_KEY, token),)
        answers = stub.Attach(iter([beat]), metadata=metadata, timeout=5.0)
        try:
            return "closed" if next(answers, None) is None else "acknowledged"
        except grpc.RpcError as error:
            return str(error.code().name)


def hold_lock(directory: Path, name: str) -> None:
    """Lock DIRECTORY/NAME.lock for the life of this process and tell its pid in NAME.pid."""
    descriptor = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        (directory / "overlap").write_text(f"{name}.lock was held when {os.getpid()} came\n")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    unfinished = directory / f"{name}.pid.new"
    unfinished.write_text(f"{os.getpid()}\n")
    unfinished.rename(directory / f"{name}.pid")


def hold(directory: Path, name: str, *below: str) -> None:
    """Be a child: hold a lock, have a child of one's own for the names `below`, and stay."""
    hold_lock(directory, name)
    if below:
        subprocess.Popen([sys.executable, str(Path(__file__).resolve()), "--hold", *below])
    while True:
        signal.pause()


def main() -> None:
    directory = Path(os.environ["STUB_DIR"])
    if sys.argv[1:2] == ["--hold"]:
        hold(directory, *sys.argv[2:])
    stub = Stub(directory)
    stub.log_signals()
    stub.listen()
    stub.run(script_of_this_life(directory))


def script_of_this_life(directory: Path) -> str:
    """The part of STUB_SCRIPT for this life; the file `lives` counts them."""
    with open(directory / "lives", "a+", encoding="ascii") as file:
        file.write(f"{os.getpid()}\n")
        file.seek(0)
        life = len(file.readlines())
    scripts = os.environ.get("STUB_SCRIPT", "attach; idle").split("|")
    return scripts[min(life, len(scripts)) - 1]


if __name__ == "__main__":
    main()
