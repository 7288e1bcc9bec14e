"""A stand-in for a container engine and its client, as far as a supervisor meets them.

    python container_engine.py serve DIR          the engine: runs containers, outlives every client
    python container_engine.py run DIR NAME       the client: starts a container and waits for it
    python container_engine.py stop DIR NAME [hang]   ends the container; or hangs with a child
    python container_engine.py remove DIR NAME    1 where there is no such container

A container is a process of the engine's and not of the client's: killing the client leaves it
running. It holds a lock on DIR/NAME.lock, its pid is in DIR/NAME.pid, and DIR/started gets a line
for each. A second one of the same name is refused with exit code 125, as a real engine does.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

CONFLICT = 125


class Engine:
    """Runs containers by name."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.containers: dict[str, subprocess.Popen[bytes]] = {}
        self.lock = threading.Lock()

    def serve(self) -> None:
        """Answer clients for ever."""
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(self.directory / "engine.sock"))
        listener.listen()
        (self.directory / "serving").write_text(f"{os.getpid()}\n")
        while True:
            client, _ = listener.accept()
            threading.Thread(target=self.answer, args=(client,), daemon=True).start()

    def answer(self, client: socket.socket) -> None:
        """One command of one client."""
        with client, contextlib.suppress(OSError):
            verb, name = client.recv(1000).decode().split()
            client.sendall(getattr(self, verb)(name).encode())

    def run(self, name: str) -> str:
        """Start a container and answer when it has ended."""
        with self.lock:
            running = self.containers.get(name)
            if running is not None and running.poll() is None:
                return f"{CONFLICT} the container name {name} is already in use"
            argv = [sys.executable, "-I", "-S", __file__, "contain", str(self.directory), name]
            container = self.containers[name] = subprocess.Popen(argv, env={})
        return f"{container.wait() & 0x7F} ended"

    def stop(self, name: str) -> str:
        """End a container and forget its name."""
        with self.lock:
            running = self.containers.pop(name, None)
        if running is None:
            return f"1 no such container: {name}"
        running.kill()
        running.wait()
        return f"0 {name}"

    remove = stop


def contain(directory: Path, name: str) -> None:
    """The container itself."""
    held = os.open(directory / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    with open(directory / "started", "a", encoding="ascii") as started:
        started.write(f"{os.getpid()}\n")
    (directory / f"{name}.pid").write_text(f"{os.getpid()}\n")
    while True:
        signal.pause()


def ask(directory: Path, verb: str, name: str) -> int:
    """The client: hand a command over, print the answer, exit as it says."""
    with socket.socket(socket.AF_UNIX) as engine:
        engine.connect(str(directory / "engine.sock"))
        engine.sendall(f"{verb} {name}".encode())
        code, _, text = engine.recv(1000).decode().partition(" ")
    print(text, flush=True)
    return int(code)


def hang(directory: Path) -> None:
    """A stop command that never comes back, with a child in a session of its own."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
    with open(directory / "hanging", "a", encoding="ascii") as hanging:
        hanging.write(f"{os.getpid()}\n")
    time.sleep(600)


def main() -> int:
    verb, directory = sys.argv[1], Path(sys.argv[2])
    if verb == "serve":
        Engine(directory).serve()
    elif verb == "contain":
        contain(directory, sys.argv[3])
    elif sys.argv[-1] == "hang":
        hang(directory)
    return ask(directory, verb, sys.argv[3])


if __name__ == "__main__":
    sys.exit(main())
