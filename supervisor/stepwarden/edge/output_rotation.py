"""Keeps captured output that systemd writes within its size: looks, copies, empties.

systemd holds the file open and appends to it, so it is emptied in place (see output_capture.py). A
disk that hangs costs this one life its looks, and nobody else anything.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from stepwarden.clock import Clock
from stepwarden.core.deadline import Deadline
from stepwarden.edge.aside import Aside
from stepwarden.edge.output_capture import Rotation, rotate_copytruncate
from stepwarden.edge.periodic import Periodic

LOOK_SECONDS = 1.0
"""The file may grow beyond its size by what is printed within this."""

COPY_SECONDS = 30.0


class OutputRotation:
    """Looks after `directory`/current.log until it is closed.

    `report`: told of each trouble once. `max_file`: bytes; `keep`: so many former files stay.
    """

    def __init__(
        self, directory: Path, max_file: int, keep: int, clock: Clock, report: Callable[[str], None]
    ) -> None:
        self._directory = directory
        self._max_file = max_file
        self._keep = keep
        self._clock = clock
        self._report = report
        self._aside = Aside(clock)
        self._said = ""
        self._looks = Periodic(self._look, LOOK_SECONDS, clock)

    def start(self) -> None:
        """Begin, on the running loop."""
        self._looks.start()

    async def close(self) -> None:
        """Look no more. A copy under way is finished by its thread."""
        await self._looks.close()

    async def _look(self) -> bool:
        deadline = Deadline.after(self._clock.monotonic(), COPY_SECONDS)
        trouble = ""
        try:
            done = await self._aside.call(self._rotate, deadline)
        except OSError as error:  # TimeoutError is one
            trouble = f"cannot be kept within its size: {error.strerror or error}"
        else:
            if done is Rotation.EMPTIED:
                trouble = "was emptied without a copy: the disk is full"
        if trouble and trouble != self._said:
            self._report(f"the output in {self._directory} {trouble}")
        self._said = trouble
        return True

    def _rotate(self) -> Rotation:
        return rotate_copytruncate(self._directory, self._max_file, self._keep)
