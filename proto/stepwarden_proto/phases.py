"""Which phase a rank is in, from what it declared and what it runs."""

from __future__ import annotations

from typing import Final

from stepwarden_proto.page import PHASES, STARTUP_PHASES

PHASE_CODES: Final = {name: code for code, name in enumerate(PHASES)}
_STANDING: Final = STARTUP_PHASES | {"draining"}


def phase_name(code: int) -> str:
    """Name of a phase code from the wire; "unknown" for a code of another version."""
    return PHASES[code] if 0 <= code < len(PHASES) else PHASES[0]


def effective_phase(declared: str, oldest_step: str | None) -> str:
    """The phase that counts.

    A declared startup phase or draining stands until another one is declared. Otherwise the rank
    is up: it is in the phase of its oldest open step (`oldest_step`), in the declared one where
    that step has none, and idle while nothing is in flight (None).
    """
    if declared in _STANDING:
        return declared
    if oldest_step is None:
        return "idle"
    if oldest_step != "unknown":
        return oldest_step
    return "unknown" if declared == "idle" else declared
