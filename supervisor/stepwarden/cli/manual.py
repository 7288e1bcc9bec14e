"""`stepwarden help`: the whole manual, made from the parser, as text or as a manual page."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

from stepwarden import __version__
from stepwarden.cli.client import SHIPPED_SOCKET, SHIPPED_STATE_DIR, SOCKET_VARIABLE
from stepwarden.cli.help_texts import CODES, INTERRUPTED, TEXTS
from stepwarden.errors import UsageError
from stepwarden.naming import unknown

WIDTH = 80
SUMMARY = (
    "A supervisor for inference workers that knows a slow step from a dead engine. Results go to"
    " standard output, errors to standard error, one line each."
)
_ENVIRONMENT = (
    (SOCKET_VARIABLE, "the admin socket, where neither --socket nor --config is given"),
    ("NO_COLOR", "where it is not empty, no colours"),
)
_FILES = (
    (str(SHIPPED_SOCKET), "the admin socket of a daemon that is installed as shipped"),
    (str(SHIPPED_STATE_DIR), "its state and history"),
)


@dataclass(frozen=True)
class Chapter:
    """One command: its name, what it does, arguments as (form, help), examples."""

    name: str
    text: str
    arguments: tuple[tuple[str, str], ...]
    examples: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `help`."""
    parser.add_argument("about", nargs="?", metavar="COMMAND", help="of this command alone")
    parser.add_argument("--man", action="store_true", help="print a manual page (roff)")


def run(options: argparse.Namespace) -> int:
    """Always 0; a command that is not there is a usage error."""
    from stepwarden.cli.main import COMMANDS, build_parser

    if options.about is not None and options.about not in COMMANDS:
        raise UsageError(unknown("command", options.about, list(COMMANDS)))
    names = [options.about] if options.about else list(COMMANDS)
    found = list(chapters(build_parser(names), names))
    if options.man:
        print("\n".join(as_page(found)))
    elif options.about:
        print(subparser(build_parser(names), options.about).format_help().rstrip())
    else:
        print("\n".join(as_text(found)))
    return 0


def subparser(parser: argparse.ArgumentParser, name: str) -> argparse.ArgumentParser:
    """The parser of one command."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            found: argparse.ArgumentParser = action.choices[name]
            return found
    raise KeyError(name)


def chapters(parser: argparse.ArgumentParser, names: list[str]) -> Iterator[Chapter]:
    """What the parser knows of these commands."""
    for name in names:
        command = subparser(parser, name)
        shown = [a for a in command._actions if a.help is not argparse.SUPPRESS]
        arguments = tuple((form(action), explained(action)) for action in shown)
        examples = TEXTS[name][1] if name in TEXTS else ()
        yield Chapter(name, command.description or "", arguments, examples)


def form(action: argparse.Action) -> str:
    """``--timeout SECONDS``, ``-h, --help``, ``NAME``."""
    value = str(action.metavar or action.dest.upper())
    if not action.option_strings:
        return value
    names = ", ".join(action.option_strings)
    return names if action.nargs == 0 else f"{names} {value}"


def explained(action: argparse.Action) -> str:
    """Its help, with its default put in."""
    return (action.help or "") % {"default": action.default, "prog": "stepwarden"}


def as_text(found: list[Chapter]) -> list[str]:
    """The manual for a pager."""
    lines = [f"stepwarden {__version__}", "", *_filled(SUMMARY, 0)]
    for chapter in found:
        lines += ["", chapter.name.upper(), *_filled(chapter.text, 2), ""]
        for name, text in chapter.arguments:
            lines += [f"  {name}", *_filled(text, 6)]
        lines += ["", *(f"  $ {example}" for example in chapter.examples)]
    for title, rows in _tables():
        lines += ["", title]
        for name, text in rows:
            lines += [f"  {name}", *_filled(text, 6)]
    return lines


def as_page(found: list[Chapter]) -> list[str]:
    """The manual page, section 1, in roff."""
    lines = [
        f'.TH STEPWARDEN 1 "" "stepwarden {__version__}" "User commands"',
        ".SH NAME",
        "stepwarden \\- supervise inference workers",
        ".SH SYNOPSIS",
        ".B stepwarden",
        ".I COMMAND",
        "[arguments]",
        ".SH DESCRIPTION",
        _roff(SUMMARY),
        ".SH COMMANDS",
    ]
    for chapter in found:
        lines += [f".SS stepwarden {_roff(chapter.name)}", _roff(chapter.text)]
        for name, text in chapter.arguments:
            lines += [".TP", f".B {_roff(name)}", _roff(text)]
        if chapter.examples:
            lines += [".PP", "Examples:", ".PP", ".nf"]
            lines += [f"    {_roff(example)}" for example in chapter.examples]
            lines += [".fi"]
    for title, rows in _tables():
        lines.append(f".SH {title}")
        for name, text in rows:
            lines += [".TP", f".B {_roff(name)}", _roff(text)]
    return lines


def _tables() -> list[tuple[str, list[tuple[str, str]]]]:
    codes = [(str(int(code)), text) for code, text in CODES.items()]
    codes.append((str(INTERRUPTED), "interrupted with Ctrl-C"))
    return [
        ("EXIT STATUS", codes),
        ("ENVIRONMENT", list(_ENVIRONMENT)),
        ("FILES", list(_FILES)),
    ]


def _filled(text: str, indent: int) -> list[str]:
    margin = " " * indent
    return textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin)


def _roff(text: str) -> str:
    """Text that roff takes as it is: no escape, no request, plain hyphens and quotes."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq").replace('"', "\\(dq")
    return f"\\&{text}" if text.startswith((".", "\\(aq")) else text
