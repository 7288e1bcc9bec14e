"""How a name that is not there is told, everywhere in the same words."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

_SHOWN_CHARACTERS = 40
_SHOWN_NAMES = 10


def printable(text: str) -> str:
    """`text` with everything but printable ASCII written as an escape."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode() for c in text)


def shown(text: str) -> str:
    """A value as a message quotes it: printable, in quotes, cut where it is long."""
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return f'"{printable(cut)}"'


def unknown(kind: str, name: str, known: Sequence[str]) -> str:
    """``there is no worker "gema" (there are: gemma, llama; did you mean gemma?)``."""
    near = difflib.get_close_matches(name[:200], known, 1)
    hint = f"; did you mean {near[0]}?" if near else ""
    names = ", ".join(sorted(known)[:_SHOWN_NAMES])
    more = ", ..." if len(known) > _SHOWN_NAMES else ""
    return f"there is no {kind} {shown(name)} (there are: {names or 'none'}{more}{hint})"
