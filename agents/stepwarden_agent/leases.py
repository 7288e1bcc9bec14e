"""Leases: declared long operations, which extend a deadline by a stated amount."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Final

from stepwarden_proto.channel import MAX_LEASE_NAME_BYTES

NANOSECONDS: Final = 1_000_000_000
MAX_HELD: Final = 64
"""More leases than this are not kept; of an engine that never gives one back."""
MAX_SECONDS: Final = 1e9  # thirty years; the supervisor caps leases far below


def cut(text: object, limit: int) -> str:
    """`text` in at most `limit` bytes of UTF-8, never ending inside a character."""
    return str(text).encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


class Lease:
    """One lease; a context manager. Giving it back twice does nothing."""

    def __init__(self, name: str, seconds: float, give_back: Callable[[Lease], None]) -> None:
        self.name = cut(name, MAX_LEASE_NAME_BYTES)
        self.begin_ns = time.monotonic_ns()
        usable = not math.isnan(seconds) and seconds > 0.0
        self.seconds = min(float(seconds), MAX_SECONDS) if usable else 0.0
        self._give_back = give_back

    @property
    def end_ns(self) -> int:
        """When it runs out."""
        return self.begin_ns + int(self.seconds * NANOSECONDS)

    def release(self) -> None:
        """The operation is over."""
        self._give_back(self)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class LeaseBook:
    """The leases that are held. The one that runs out last is the one shown.

    The lock is re-entrant, so that a signal handler may take a lease while the code that it
    interrupted is doing the same.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._held: list[Lease] = []

    def add(self, lease: Lease) -> None:
        """Hold `lease`. Of too many the one that runs out first is let go."""
        with self._lock:
            self._held.append(lease)
            if len(self._held) > MAX_HELD:
                self._held.remove(min(self._held, key=lambda held: held.end_ns))

    def remove(self, lease: Lease) -> None:
        """Stop holding `lease`, if it is held."""
        with self._lock:
            if lease in self._held:
                self._held.remove(lease)

    def shown(self) -> Lease | None:
        """The lease that runs out last; None where none is held."""
        with self._lock:
            return max(self._held, key=lambda lease: lease.end_ns, default=None)
