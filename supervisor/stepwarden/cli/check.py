"""stepwarden check: name all problems of a configuration file, or print what holds."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from stepwarden.cli.arguments import path
from stepwarden.cli.units import ask_systemd
from stepwarden.config import Config, ConfigError, Problem, load
from stepwarden.errors import ExitCode
from stepwarden.redaction import HIDDEN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("file", type=path, metavar="FILE", help="the configuration file")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--strict", action="store_true", help="refuse a file with warnings too (exit code 78)"
    )
    parser.add_argument(
        "--effective", action="store_true", help="print what holds after all defaults"
    )
    parser.add_argument(
        "--secrets", action="store_true", help=f"do not print them as {HIDDEN} with --effective"
    )


def run(options: argparse.Namespace) -> int:
    """0 where the file can be used, else ExitCode.CONFIG."""
    config: Config | None = None
    try:
        config = load(options.file, on_this_host=True, ask_units=ask_systemd)
        problems = config.warnings
    except ConfigError as error:
        problems = error.problems
    good = config is not None and not (options.strict and problems)
    if options.json:
        _print_json(config, problems, good, options)
    else:
        _print_text(config, problems, good, options)
    return int(ExitCode.OK if good else ExitCode.CONFIG)


def _print_text(
    config: Config | None, problems: tuple[Problem, ...], good: bool, options: argparse.Namespace
) -> None:
    # What holds goes to standard output alone, so that it can be redirected into a file.
    effective = options.effective and config is not None
    stream = sys.stderr if effective else sys.stdout
    for problem in problems:
        print(problem, file=stream)
    print(summary(options.file, config, problems, good), file=stream)
    if config is not None and options.effective:
        from stepwarden.config.effective import as_yaml

        data = _effective(config, options.secrets)
        if data != _effective(config, secrets=True):
            text = f"what its name calls a secret is shown as {HIDDEN}; --secrets prints it"
            print(text, file=stream)
        sys.stdout.write(as_yaml(data))


def _effective(config: Config, secrets: bool) -> Any:
    """What holds, as plain data, with or without the secrets in it."""
    from stepwarden.config.effective import effective
    from stepwarden.redaction import redacted

    return effective(config) if secrets else redacted(effective(config))


def summary(file: Path, config: Config | None, problems: tuple[Problem, ...], good: bool) -> str:
    """The last line: can the file be used, and how much was found. `config` None: it cannot."""
    warnings = sum(problem.severity == "warning" for problem in problems)
    errors = len(problems) - warnings
    counts = f"{_count(errors, 'error')}, {_count(warnings, 'warning')}"
    verdict = "can be used" if good else "cannot be used"
    if config is None:
        return f"{ascii(str(file))[1:-1]}: {verdict}: {counts}"
    workers = _count(len(config.workers), "worker")
    why = "" if good else " with --strict"
    return f"{ascii(str(file))[1:-1]}: {verdict}{why}: {workers}, {counts}"


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _print_json(
    config: Config | None, problems: tuple[Problem, ...], good: bool, options: argparse.Namespace
) -> None:
    answer: dict[str, Any] = {
        "ok": good,
        "problems": [problem.as_json() for problem in problems],
        "workers": sorted(config.workers) if config else [],
    }
    if options.effective and config is not None:
        answer["effective"] = _effective(config, options.secrets)
    print(json.dumps(answer, indent=2))
