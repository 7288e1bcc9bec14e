"""How the file's units are asked about. Whoever loads the file brings the way to systemd."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

AskUnits = Callable[[Sequence[str]], Mapping[str, str]]
"""Why each of these units cannot be a worker, "" where it can. Raises UnitsUnknown."""


class UnitsUnknown(Exception):
    """Nobody could be asked about units; the text says why."""
