"""Wakes a thread that waits in poll: one counter of the kernel, safe in a signal handler."""

from __future__ import annotations

import os
from contextlib import suppress


class Wake:
    """Wakes whoever polls `descriptor`, which is -1 where the kernel has no more to give: the
    thread then notices things when it next looks by itself."""

    def __init__(self) -> None:
        self.descriptor = -1
        with suppress(OSError):
            self.descriptor = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def __call__(self) -> None:
        """Wake the thread; from any thread."""
        with suppress(OSError):
            os.eventfd_write(self.descriptor, 1)

    def clear(self) -> None:
        """The thread is awake."""
        with suppress(OSError):
            os.eventfd_read(self.descriptor)

    def forget(self) -> None:
        """The descriptor is not ours any more: somebody has closed it under our feet."""
        self.descriptor = -1

    def close(self) -> None:
        """Give the descriptor back."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            with suppress(OSError):
                os.close(descriptor)

    def __del__(self) -> None:
        try:
            self.close()
        except Exception:  # the interpreter may be half gone
            return
