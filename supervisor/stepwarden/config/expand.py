"""``${NAME}`` in a worker's texts: what it stands for, when, and what is wrong where it cannot.

A name is looked up in the worker's own environment: `env` over the env files over the daemon's
own. Values of `env` see the latter two, paths of env files the daemon's alone. ``$${`` is a plain
``${``. In a shell line nothing is replaced: the shell does that, with the same environment.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path as FilePath

from stepwarden.config.env_files import ReadFiles, read_env_files
from stepwarden.config.problems import ConfigError, Path, Problem, dotted
from stepwarden.config.settings import Templates, WorkerConfig
from stepwarden.naming import shown

ACCEPTED = "${NAME} of a variable that is set, or $${ for a plain ${"
ACCEPTED_IN_SHELL = "a variable that is set, or ${NAME:-} where it may be missing"

Refuse = Callable[[Path, str, str], None]
"""Takes the keys below the worker, what is wrong there, and what is accepted."""

_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)(\}?)")
_UNIT = re.compile(r"[A-Za-z0-9:_.\\@-]+\.service")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_IN_SHELL = re.compile(r"(?<![\\$])\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_SET_BY_SHELL = (
    r"(?:\b{0}:?=|\b(?:for|read|export|local|declare|typeset|getopts|mapfile|printf -v)\b"
    r"[^;|&]*\b{0}\b)"
)
_SET_BY_FILE = re.compile(r"(?:^|[;&|(]|\s)(?:\.|source|eval)\s")


class VariableError(ValueError):
    """A variable that cannot be replaced; the text says why."""


def expand(text: str, values: Mapping[str, str]) -> str:
    """The text with its variables replaced. Raises VariableError."""
    if "${" not in text:
        return text

    def value(found: re.Match[str]) -> str:
        name, closed = found[1], found[2]
        if name is None:
            return "${"
        if not closed or not _NAME.fullmatch(name):
            raise VariableError(f"{shown(found[0])} is not a variable")
        if name not in values:
            raise VariableError(f"the variable {name} is not set")
        return values[name]

    return _VARIABLE.sub(value, text)


def missing_in_shell(line: str, values: Mapping[str, str]) -> list[str]:
    """Plain ``${NAME}`` of a shell line that nothing sets: neither `values` nor the line itself."""
    if _SET_BY_FILE.search(line):
        return []  # what a file sets there, nobody can know here
    names = dict.fromkeys(_IN_SHELL.findall(_without_single_quotes(line)))
    return [
        name
        for name in names
        if name not in values and not re.search(_SET_BY_SHELL.format(name), line)
    ]


def _without_single_quotes(line: str) -> str:
    """The line without what stands in single quotes, where the shell replaces nothing."""
    return re.sub(r"""("(?:\\.|[^"\\])*")|'[^']*'""", lambda found: found[1] or "", line)


@dataclass(frozen=True, slots=True)
class _Scope:
    """Replaces texts from one environment, telling `refuse` of each that cannot be."""

    values: Mapping[str, str]
    refuse: Refuse

    def text(self, text: str, *keys: str | int) -> str:
        try:
            return expand(text, self.values)
        except VariableError as error:
            self.refuse(keys, str(error), ACCEPTED)
            return text

    def words(self, words: tuple[str, ...], *keys: str | int) -> tuple[str, ...]:
        if not any("${" in word for word in words):
            return words
        return tuple(self.text(word, *keys, place) for place, word in enumerate(words))

    def path(self, text: str, *keys: str | int) -> str:
        """A path, which has to be absolute once its variables are replaced."""
        found = self.text(text, *keys)
        if found is not text and not found.startswith("/"):
            self.refuse(keys, f"comes out as {shown(found)}", "an absolute path")
        return found

    def files(self, texts: tuple[str, ...], key: str) -> Iterator[FilePath]:
        """Those paths whose variables can be replaced."""
        for place, text in enumerate(texts):
            found = self.path(text, key, place)
            if "${" not in found:
                yield FilePath(found)


def resolve(
    worker: WorkerConfig, base: Mapping[str, str], refuse: Refuse, read: ReadFiles = read_env_files
) -> WorkerConfig:
    """The worker with every text of its templates replaced; `base`: the daemon's environment.

    Raises ConfigError where an env file cannot be read.
    """
    said = worker.templates
    outer = _Scope(base, refuse)
    paths = tuple(outer.files(said.env_files, "env_file"))
    file_env = read(paths) if paths else {}
    middle = _Scope({**base, **file_env} if file_env else base, refuse)
    env = {name: middle.text(text, "env", name) for name, text in said.env.items()}
    inner = _Scope({**middle.values, **env} if env else middle.values, refuse)
    if worker.shell is not None:
        for name in missing_in_shell(worker.shell, inner.values):
            refuse(("shell",), f"the variable {name} is not set", ACCEPTED_IN_SHELL)
    return replace(_texts(worker, said, inner), env_files=paths, file_env=file_env, env=env)


def _texts(worker: WorkerConfig, said: Templates, scope: _Scope) -> WorkerConfig:
    command, unit = said.command, said.unit
    if unit is not None:
        unit = scope.text(unit, "unit")
        if "${" not in unit and not _UNIT.fullmatch(unit):
            scope.refuse(("unit",), f"comes out as {shown(unit)}", "NAME.service")
    if command is not None:
        command = scope.words(command, "command")
        if not command[0]:
            scope.refuse(("command", 0), "comes out empty", "a program")
    output = worker.output
    if said.output_path is not None:
        path = scope.path(said.output_path, "output", "path")
        output = replace(output, path=FilePath(path))
    cwd = None if said.cwd is None else scope.path(said.cwd, "cwd")
    changed = replace(worker, command=command, unit=unit, cwd=cwd, output=output)
    return _commands(changed, said, scope)


def _commands(worker: WorkerConfig, said: Templates, scope: _Scope) -> WorkerConfig:
    pre_start, stop, ready, gate = (
        worker.pre_start,
        worker.stop_command,
        worker.ready,
        worker.release,
    )
    if pre_start is not None:
        pre_start = replace(pre_start, argv=scope.words(said.pre_start, "pre_start", "command"))
    if stop is not None:
        stop = replace(stop, argv=scope.words(said.stop_command, "stop", "command"))
    if ready is not None and said.ready:
        ready = replace(ready, argv=scope.words(said.ready, "ready", "command"))
    if gate is not None and said.release:
        gate = replace(gate, command=scope.words(said.release, "release", "command"))
    return replace(worker, pre_start=pre_start, stop_command=stop, ready=ready, release=gate)


def at_start(worker: WorkerConfig, base: Mapping[str, str]) -> WorkerConfig:
    """The worker as it is to be started now: its env files are read again, and texts replaced.

    `base`: the daemon's own environment. Raises ConfigError with every reason why it cannot be
    started.
    """
    problems: list[Problem] = []

    def refuse(keys: Path, message: str, accepted: str) -> None:
        path = dotted(("workers", worker.name, *keys))
        problems.append(Problem(path, message, accepted=accepted))

    ready = resolve(worker, base, refuse)
    if problems:
        raise ConfigError(problems)
    return ready
