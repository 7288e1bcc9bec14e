"""A check: facts are gathered from the host, and a pure function judges them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from stepwarden.doctor.finding import Finding
from stepwarden.doctor.subject import Subject

F = TypeVar("F")


@dataclass(frozen=True, slots=True)
class Check(Generic[F]):
    """One item of the list. `gather` may block and raise OSError; `judge` does neither."""

    theme: str
    name: str
    gather: Callable[[Subject], F]
    judge: Callable[[F], Iterable[Finding]]

    def look(self, subject: Subject) -> list[Finding]:
        """Both, one after the other."""
        return list(self.judge(self.gather(subject)))
