"""What the loop is to do in the world. The edge does it and reports back; it decides nothing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start a new life of the worker."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class EndTree:
    """End every process of this life: signal, grace, KILL, until each is confirmed gone."""

    incarnation: int


Action = Spawn | EndTree
