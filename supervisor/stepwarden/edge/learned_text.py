"""Tables of what is usual as texts: a key for whom one holds, and some hundred bytes of JSON."""

from __future__ import annotations

import json
from dataclasses import astuple, fields
from hashlib import sha256

from stepwarden.core.subject import Subject
from stepwarden.core.usual import Usual
from stepwarden.core.usual_memory import keep_usual, recall_usual

MOST_CHARACTERS = 256


def to_text(usual: Usual) -> str:
    """The lasting part of a table."""
    return json.dumps(keep_usual(usual), separators=(",", ":"))


def from_text(text: str) -> Usual | None:
    """Read back what `to_text` gave; None for anything else."""
    try:
        return recall_usual(json.loads(text))
    except (ValueError, RecursionError):
        return None


def key_of(subject: Subject) -> str:
    """One text that no other subject has."""
    return json.dumps([_short(text) for text in astuple(subject)], ensure_ascii=True)


def subject_of_key(key: str) -> Subject | None:
    """Read back what `key_of` gave; None for anything else."""
    try:
        words = json.loads(key)
    except (ValueError, RecursionError):
        return None
    if not isinstance(words, list) or len(words) != len(fields(Subject)):
        return None
    return Subject(*words) if all(isinstance(word, str) for word in words) else None


def _short(text: str) -> str:
    """A long text by its digest: tables stay small."""
    if len(text) <= MOST_CHARACTERS:
        return text
    return f"{text[:32]}...{sha256(text.encode(errors='replace')).hexdigest()[:16]}"
