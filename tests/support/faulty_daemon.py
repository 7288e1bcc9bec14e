"""The daemon with faults that a test lets loose: only this program has them, never the product.

    python -m support.faulty_daemon run FILE        with TEST_FAULT_FILE naming a file

SIGRTMIN lets loose what the file says:

    block             the loop's thread stands still for as long as the file is there
    raise             the next turn of the loop raises
    worker NAME       each turn of this worker raises while the file is there
    hold SECONDS      a thread holds the interpreter lock for so long
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

from stepwarden.cli.main import main
from stepwarden.daemon import gather
from stepwarden.daemon.life import Life
from stepwarden.daemon.loop import VerdictLoop

FAULT_FILE = "TEST_FAULT_FILE"


class Faults:
    """What the test wants to go wrong."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.raising = False
        self.worker = ""

    def let_loose(self, *_args: object) -> None:
        """The handler of the signal; Python runs it in the loop's thread."""
        kind, _, what = self.file.read_text().strip().partition(" ")
        if kind == "block":
            self.stand_still()
        elif kind == "raise":
            self.raising = True
        elif kind == "worker":
            self.worker = what
        elif kind == "hold":
            threading.Thread(target=hold_the_lock, args=(int(what),)).start()

    def stand_still(self) -> None:
        """What the stack of a loop that stands still has to name."""
        while self.file.exists():
            time.sleep(0.05)

    def install(self) -> None:
        """Put the faults where they are asked for."""
        turn, evidence_of = VerdictLoop._turn, gather.evidence_of

        async def faulty_turn(loop: VerdictLoop, now: float) -> float:
            if self.raising:
                raise RuntimeError("a fault that a test let loose")
            return await turn(loop, now)

        def faulty_evidence(life: Life) -> Any:
            if life.worker == self.worker and self.file.exists():
                raise ValueError("odd data of one worker")
            return evidence_of(life)

        setattr(VerdictLoop, "_turn", faulty_turn)  # noqa: B010  # mypy has no word for it
        gather.evidence_of = faulty_evidence
        signal.signal(signal.SIGRTMIN, self.let_loose)


def hold_the_lock(seconds: int) -> None:
    """Sleep in C without giving the interpreter lock back: PyDLL never does."""
    ctypes.PyDLL(None).sleep(seconds)


if __name__ == "__main__":
    Faults(Path(os.environ[FAULT_FILE])).install()
    sys.exit(main(sys.argv[1:]))
