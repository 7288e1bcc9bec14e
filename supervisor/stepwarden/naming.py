"""How names that are not there, and numbers of things, are told: everywhere in the same words."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable
from itertools import islice

_SHOWN_CHARACTERS = 40
_SHOWN_NAMES = 10
_COMPARED_CHARACTERS = 80
_COMPARED_NAMES = 300


def printable(text: str) -> str:
    """`text` with everything but printable ASCII written as an escape."""
    return "".join(c if " " <= c <= "~" else c.encode("unicode_escape").decode() for c in text)


def shown(text: str) -> str:
    """A value as a message quotes it: printable, in quotes, cut where it is long."""
    cut = text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."
    return f'"{printable(cut)}"'


def unknown(kind: str, name: str, known: Collection[str]) -> str:
    """``there is no worker "gema" (did you mean gemma? there are: gemma, llama)``."""
    meant = nearest(name, known)
    hint = f"did you mean {meant}? " if meant else ""
    names = first_names(sorted(known)) or "none"
    return f"there is no {kind} {shown(name)} ({hint}there are: {names})"


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The one of `known` that `name` looks most like; "" where none is at least so like it.

    Compares beginnings, and the first names only: a file full of nonsense must not take long.
    """
    some = list(islice(known, _COMPARED_NAMES))
    near = difflib.get_close_matches(name[:_COMPARED_CHARACTERS], some, 1, likeness)
    return near[0] if near else ""


def counted(number: int, noun: str) -> str:
    """``1 step``, ``2 steps``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def first_names(names: Collection[str]) -> str:
    """A list of names for a message, with an ellipsis where it would be long."""
    more = ", ..." if len(names) > _SHOWN_NAMES else ""
    return ", ".join(islice(names, _SHOWN_NAMES)) + more
