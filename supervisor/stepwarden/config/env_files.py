"""Files of KEY=VALUE lines that give a worker its secrets.

One variable a line; lines that are empty or begin with ``#`` are skipped, spaces at both ends fall
away. A value is taken as it stands up to the end of the line, ``#`` included; in single quotes
everything is literal; in double quotes a backslash may stand before a double quote, a backslash, a
dollar sign and a backtick. No variables are replaced, no line is continued. The later file wins.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path

from stepwarden.config.problems import ConfigError, Problem
from stepwarden.config.source import read_text

ReadFiles = Callable[[Iterable[Path]], dict[str, str]]

LINE = "KEY=VALUE, KEY='VALUE', KEY=\"VALUE\", a # comment, or an empty line"

_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SINGLE = re.compile(r"'([^']*)'")
_DOUBLE = re.compile(r'"((?:[^"\\]|\\["\\$`])*)"')
_ESCAPED = re.compile(r'\\(["\\$`])')


def read_env_files(paths: Iterable[Path]) -> dict[str, str]:
    """All variables of the files. Raises ConfigError with the file and line of each problem."""
    values: dict[str, str] = {}
    problems: list[Problem] = []
    for path in paths:
        try:
            values |= parse(read_text(path), str(path))
        except ConfigError as error:
            problems += error.problems
    if problems:
        raise ConfigError(problems)
    return values


def parse(text: str, file: str) -> dict[str, str]:
    """The variables in the text of one file. Raises ConfigError; no value is ever shown."""
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    problems: list[Problem] = []
    for number, whole in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        line = whole.strip(" \t")
        if not line or line.startswith("#"):
            continue
        key, _, value = line.partition("=")
        try:
            _check_key(key, "=" in line)
            if key in lines:
                raise ValueError(f"{key} is written twice, on line {lines[key]} too")
            values[key] = _value(value.lstrip(" \t"))
        except ValueError as error:
            problems.append(
                Problem("", str(error), file=file, line=number, column=1, accepted=LINE)
            )
        lines[key] = number
    if problems:
        raise ConfigError(problems)
    return values


def exposed(path: Path) -> bool:
    """True where every user of this host may read the file; False where nobody can tell."""
    try:
        return bool(os.stat(path).st_mode & 0o004)
    except OSError:
        return False


def _check_key(key: str, has_value: bool) -> None:
    # A line without "=" may be the rest of a secret that was broken over two lines.
    if not has_value:
        raise ValueError("this line holds no KEY=VALUE")
    if key.startswith("export "):
        raise ValueError("no shell reads this file; leave out export")
    if key.endswith((" ", "\t")):
        raise ValueError("nothing may stand between the key and =")
    if not _KEY.fullmatch(key):
        # Not shown: what a secret was broken into may well hold a "=".
        raise ValueError("what stands before = is not the name of a variable")
    if key.startswith("STEPWARDEN_"):
        raise ValueError(f"{key} is set by the supervisor itself")


def _value(text: str) -> str:
    if text.startswith("'"):
        return _quoted(_SINGLE.fullmatch(text), "'")
    if text.startswith('"'):
        return _ESCAPED.sub(r"\1", _quoted(_DOUBLE.fullmatch(text), '"'))
    if text.endswith("\\"):
        raise ValueError("a line that ends in a backslash is not continued; write one long line")
    return text


def _quoted(found: re.Match[str] | None, mark: str) -> str:
    if found is None:
        tail = "; inside, a backslash goes before each of them and before a backslash"
        message = f"what begins with {mark} has to end with {mark} and hold no other"
        raise ValueError(message + (tail if mark == '"' else ""))
    return found[1]
