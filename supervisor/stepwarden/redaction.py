"""What is not shown of commands and environments, wherever the program shows them.

By the name beside it: the value of a variable, an option or a header whose last word says secret,
token, password and the like. A value that is one `${VARIABLE}` shows nothing and stays.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

HIDDEN: Final = "***"

SHORTEST_SECRET: Final = 4
"""A shorter value is a part of any text, and hiding it everywhere would hide nothing but that."""

_WORDS: Final = "secret|token|password|passwd|passphrase|credential|credentials|apikey|bearer"
_KEYS: Final = "(?:api|access|secret|private|auth|account|encryption|signing|license)[-_.]?key"
_NAME: Final = rf"(?:[\w.-]*[-_.])?(?:{_WORDS}|{_KEYS})(?:[-_.]?[0-9]+)?"
_SECRET_NAME: Final = re.compile(_NAME, re.IGNORECASE)
_QUOTED: Final = r"""'[^']*'|"[^"]*"|[^\s'"]+"""
_PATTERNS: Final = (
    # Authorization: Bearer VALUE, and headers such as X-Api-Key: VALUE
    re.compile(r"(?P<before>\bauthorization\s*[:=]\s*(?:\w+\s+)?)(?P<value>[^\s'\"]+)", re.I),
    re.compile(rf"(?P<before>(?<![\w.-])-{{0,2}}{_NAME}\s*:\s+)(?P<value>{_QUOTED})", re.I),
    # --api-key=VALUE and API_KEY=VALUE
    re.compile(rf"(?P<before>(?<![\w.-])-{{0,2}}{_NAME}=)(?P<value>{_QUOTED})", re.I),
    # --api-key VALUE
    re.compile(rf"(?P<before>(?<![\w.-])--?{_NAME}\s+)(?P<value>{_QUOTED})", re.I),
    # scheme://user:VALUE@host
    re.compile(r"(?P<before>\b[a-z][a-z0-9+.-]*://[^\s/:@'\"]*:)(?P<value>[^\s/@'\"]+)(?=@)", re.I),
)
_VARIABLE: Final = re.compile(r"""["']?\$(?:\{[A-Za-z_]\w*\}|[A-Za-z_]\w*)["']?""")


def is_secret(name: str) -> bool:
    """Whether a variable or an option of this name holds a secret, as names go."""
    return _SECRET_NAME.fullmatch(name.lstrip("-")) is not None


def redacted_line(line: str) -> str:
    """A line of a shell, or one argument, without the secrets in it."""
    for pattern in _PATTERNS:
        line = pattern.sub(_hide, line)
    return line


def redacted_argv(argv: Sequence[str]) -> list[str]:
    """A command without the secrets in it."""
    shown: list[str] = []
    before = ""
    for word in argv:
        follows = before.startswith("-") and is_secret(before) and not word.startswith("-")
        shown.append(_hidden(word) if follows else redacted_line(word))
        before = word
    return shown


def redacted_environment(env: Mapping[str, str]) -> dict[str, str]:
    """An environment without the secrets in it."""
    return {
        name: _hidden(value) if is_secret(name) else redacted_line(value)
        for name, value in env.items()
    }


def secrets_of(argv: Sequence[str], env: Mapping[str, str]) -> frozenset[str]:
    """The values that are hidden in this command and this environment, as they are."""
    found = {value for name, value in env.items() if is_secret(name)}
    before = ""
    for word in argv:
        if before.startswith("-") and is_secret(before) and not word.startswith("-"):
            found.add(word)
        before = word
    for text in (*argv, *env.values()):
        found.update(match["value"] for p in _PATTERNS for match in p.finditer(text))
    plain = {value.strip("'\"") for value in found if not _VARIABLE.fullmatch(value)}
    return frozenset(value for value in plain if len(value) >= SHORTEST_SECRET)


def without(text: str, secrets: Sequence[str]) -> str:
    """A text in which none of these values is left. The longest first, for one may hold another."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return text


def redacted(node: Any, key: str = "") -> Any:
    """A configuration as plain data without the secrets in it; `key`: where it stands."""
    if isinstance(node, Mapping):
        if key == "env":
            return redacted_environment(node)
        return {name: redacted(value, str(name)) for name, value in node.items()}
    if isinstance(node, list):
        if all(isinstance(item, str) for item in node):
            return redacted_argv(node)
        return [redacted(item) for item in node]
    return redacted_line(node) if isinstance(node, str) else node


def _hide(found: re.Match[str]) -> str:
    return found["before"] + _hidden(found["value"])


def _hidden(value: str) -> str:
    return value if not value or _VARIABLE.fullmatch(value) else HIDDEN
