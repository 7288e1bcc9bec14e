"""A worker that steps ten times a second and prints what logs break on: `chatter.py SECONDS`.

After the hostile part it writes 3.3 MB/s to stderr for SECONDS, then says `flood over`, closes
stdout and stderr where told to by a second argument, and steps on.
"""

from __future__ import annotations

import os
import sys
import threading
import time

from stepwarden_agent import Agent

LINE = b"x" * 999 + b"\n"
HOSTILE = (
    b"y" * (5 << 20) + b"\n",
    b"bad \x88\xff\x00 bytes\n",
    b"split \xe2\x82",
    b"\xac here\n",
    b"".join(b"\r%d of 10000" % done for done in range(10_001)) + b"\n",
    b'esc \x1b[31m "quoted" \x07\n',
)


def write(descriptor: int, data: bytes) -> None:
    """All of it."""
    while data:
        data = data[os.write(descriptor, data) :]


def chatter(seconds: float) -> None:
    """The hostile part, then the flood."""
    for part in HOSTILE:
        write(1, part)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(330):
            write(2, LINE)
        time.sleep(0.1)
    write(1, b"\xf0\x9f\x98\x80 flood over\n")
    if sys.argv[2:]:
        os.close(1)
        os.close(2)


def main() -> None:
    """Step for ever."""
    agent = Agent.from_env(phase="idle")
    threading.Thread(target=chatter, args=(float(sys.argv[1]),), daemon=True).start()
    while True:
        with agent.step(1, 1, phase="decode"):
            time.sleep(0.05)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
