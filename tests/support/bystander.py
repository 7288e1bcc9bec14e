"""A stranger that looks like a worker; it notes each signal it gets in the file of argument 1.

Further arguments and the environment are only there to be looked at. It goes on for ever.
"""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType


def main() -> None:
    path = sys.argv[1]

    def logged(number: int, _frame: FrameType | None) -> None:
        with open(path, "a", encoding="ascii") as file:
            file.write(f"{signal.Signals(number).name}\n")

    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, logged)
    os.write(1, b"ready\n")
    while True:
        signal.pause()


if __name__ == "__main__":
    main()
