"""What a supervisor holds is free the moment it is killed, its workers and helpers alive."""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path

from stepwarden.edge.instance_lock import InstanceLock
from stepwarden.edge.launcher import LaunchSpec
from stepwarden.edge.process_probe import alive, identify
from stepwarden.edge.signals import send
from support.process_world import BASE_ENV, run, text_of, until, world

SUPERVISOR = """
import asyncio, os, socket, sys
from pathlib import Path
from stepwarden.edge.instance_lock import InstanceLock
from stepwarden.edge.launcher import Launcher, LaunchSpec
from stepwarden.edge.output_capture import CaptureSpec, open_capture
async def main():
    home = Path(sys.argv[1])
    lock = InstanceLock(home / "state")
    tcp, unix = socket.create_server(("127.0.0.1", 0)), socket.socket(socket.AF_UNIX)
    unix.bind(str(home / "s"))
    unix.listen()
    for held in (tcp, unix):
        held.set_inheritable(True)  # as a library might
    launcher = Launcher()
    await launcher.start()
    with await open_capture(launcher, CaptureSpec(home / "logs", 1 << 20, 2)) as capture:
        argv = ["/bin/sleep", "600"]
        worker = await launcher.spawn(LaunchSpec(argv, {}, output_fd=capture.output_fd), 30.0)
    with open(home / "told", "w") as out:
        print(tcp.getsockname()[1], worker.pid, capture.process.pid, file=out)
    await asyncio.sleep(600)
asyncio.run(main())
"""


def free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_o_proc_5_the_next_supervisor_has_lock_port_and_socket_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        async with world() as here:
            env = {**BASE_ENV, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
            supervisor = await here.start(
                LaunchSpec([sys.executable, "-c", SUPERVISOR, str(tmp_path)], env)
            )
            port, *pids = map(int, (await text_of(tmp_path / "told")).split())
            left = [process for pid in pids if (process := identify(pid)) is not None]
            here.started += left
            send(supervisor, signal.SIGKILL)
            await here.exit_of(supervisor)
            InstanceLock(tmp_path / "state").release()
            # A launcher in its first milliseconds still has what a library left inheritable.
            await until(lambda: free(port))
            with socket.socket(socket.AF_UNIX) as probe:
                assert probe.connect_ex(str(tmp_path / "s")) != 0  # nobody listens
            assert len(left) == 2
            assert all(map(alive, left))

    run(story())
