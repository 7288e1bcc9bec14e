"""The stepwarden command: one argparse tree, commands imported only when they run."""

from __future__ import annotations

import argparse
import importlib
import sys
import textwrap
from collections.abc import Sequence

from stepwarden import __version__
from stepwarden.cli.arguments import Parser
from stepwarden.cli.output import checked_output, complain
from stepwarden.errors import ExitCode, StepwardenError, UsageError

# command: (module below stepwarden.cli, one line of help)
COMMANDS = {
    "run": ("run", "start the supervisor in the foreground"),
    "check": ("check", "check a configuration file and name all its problems"),
    "explain": ("explain", "say what one step may take, with the arithmetic"),
    "calibrate": ("calibrate", "make step budgets for the file from what was seen"),
    "doctor": ("doctor", "look at host, file, daemon and engines, and say what to do"),
    "replay": ("replay", "judge again what was recorded, by the same rules or by others"),
    "schema": ("schema", "print the JSON Schema of the configuration file"),
    "install": ("install", "lay the systemd service down, and say what is left to do"),
    "status": ("status", "show every worker: state, cause, step, budget left, restarts"),
    "top": ("top", "watch all workers live, and stop, start or restart them"),
    "events": ("events", "show what happened, and follow what happens"),
    "incidents": ("incidents", "list, show and export the proof that was kept of incidents"),
    "ledger": ("ledger", "score each alarm and death: was it right, and how soon"),
    "start": ("control", "start a stopped or failed worker"),
    "stop": ("control", "stop a worker; it stays stopped"),
    "restart": ("control", "stop a worker and start it again"),
    "reload": ("reload", "load the daemon's configuration file again, all of it or nothing"),
    "completion": ("completion", "print what bash, zsh or fish need to complete command lines"),
    "help": ("manual", "print the whole manual, or the help of one command"),
}


def build_parser(commands: Sequence[str]) -> argparse.ArgumentParser:
    """The whole parser, with the arguments of those commands that this call needs."""
    parser = Parser(
        prog="stepwarden",
        description="A supervisor for inference workers that knows a slow step from a dead engine.",
    )
    parser.add_argument("--version", action="version", version=f"stepwarden {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, line) in COMMANDS.items():
        subparser = subparsers.add_parser(name, help=line, description=line)
        if name in commands:
            importlib.import_module(f"stepwarden.cli.{module}").add_arguments(subparser)
            _describe(subparser, name)
    return parser


def _describe(parser: argparse.ArgumentParser, command: str) -> None:
    from stepwarden.cli.help_texts import TEXTS, examples_and_codes

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    if command in TEXTS:
        parser.description = "\n".join(textwrap.wrap(TEXTS[command][0], 79))
    parser.epilog = examples_and_codes(command)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code. Errors are one line each on stderr."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with checked_output():
            return _run(arguments)
    except StepwardenError as error:
        complain(f"{error.prefix}{error}")
        return int(error.exit_code)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] == "stepwarden":
            raise
        complain(
            f"stepwarden: the package {error.name!r} is missing; the supervisor needs"
            " pip install 'stepwarden[daemon]'"
        )
        return int(ExitCode.USAGE)
    except BrokenPipeError:
        # The reader of our output left (head, a closed pager); that is no fault.
        return int(ExitCode.OK)
    except KeyboardInterrupt:
        return 130


def _run(arguments: list[str]) -> int:
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        from stepwarden.naming import unknown

        text = unknown("command", arguments[0], list(COMMANDS))
        raise UsageError(f"{text} (see stepwarden --help)")
    named = [word for word in arguments if word in COMMANDS][:1]
    options = build_parser(named).parse_args(arguments)
    module, _ = COMMANDS[options.command]
    return int(importlib.import_module(f"stepwarden.cli.{module}").run(options))
