"""What is wrong with a configuration file, as lines that an operator can act on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from stepwarden.errors import ExitCode, StepwardenError
from stepwarden.naming import printable

ERROR = "error"
WARNING = "warning"

Path = tuple[str | int, ...]
"""Where in the file: keys and positions in lists, from the top."""

_SHOWN_STEP_CHARACTERS = 80
_MESSAGE_CHARACTERS = 800
"""A message that quotes a value at its full length is cut here: one line has to stay readable."""

MAX_PROBLEMS = 200
"""So many errors, and so many warnings, are told of; the rest would only bury these."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding. `line` and `column` count from 1; None where no place in the file applies."""

    path: str
    message: str
    severity: str = ERROR
    file: str = ""
    line: int | None = None
    column: int | None = None
    accepted: str = ""
    suggestion: str = ""

    def __str__(self) -> str:
        """One printable ASCII line, whatever bytes the file holds."""
        place = "" if self.line is None else f":{self.line}:{self.column}"
        path = f"{self.path}: " if self.path else ""
        # The guess first: what is accepted may be a long list.
        hints = [f"did you mean {self.suggestion}?"] if self.suggestion else []
        hints += [f"accepted: {self.accepted}"] if self.accepted else []
        tail = f" ({' '.join(hints)})" if hints else ""
        start = printable(f"{self.file}{place}: {self.severity}: {path}")
        return f"{start}{_cut(printable(self.message))}{printable(tail)}"

    def as_json(self) -> dict[str, str | int | None]:
        """The same as a JSON object."""
        return {
            "severity": self.severity,
            "file": self.file,
            "line": self.line,
            "column": self.column,
            "path": self.path,
            "message": _cut(self.message),
            "accepted": self.accepted or None,
            "did_you_mean": self.suggestion or None,
        }


def _cut(message: str) -> str:
    if len(message) <= _MESSAGE_CHARACTERS:
        return message
    return message[:_MESSAGE_CHARACTERS] + "..."


class ConfigError(StepwardenError):
    """The file cannot be used. `problems` holds every error and warning that was found.

    `identity` is that of the bytes that were read; "" where none could be.
    """

    exit_code = ExitCode.CONFIG
    prefix = ""  # each line begins with the file, for editors that jump there

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems = tuple(problems)
        self.identity = ""
        super().__init__("\n".join(str(problem) for problem in self.problems))


def dotted(path: Path) -> str:
    """The path as people write it: ``workers.w1.command[2]``."""
    parts: list[str] = []
    for step in path:
        if isinstance(step, int):
            parts.append(f"[{step}]")
            continue
        name = printable(
            step if len(step) <= _SHOWN_STEP_CHARACTERS else step[:_SHOWN_STEP_CHARACTERS] + "..."
        )
        quoted = f'"{name}"' if not name or any(c in name for c in '.[]" ') else name
        parts.append(f".{quoted}" if parts else quoted)
    return "".join(parts)
