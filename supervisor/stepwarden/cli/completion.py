"""`stepwarden completion SHELL`: what bash, zsh and fish need to complete its command lines.

The shells' parts are a few lines that call back with the words typed so far; what may come next is
found here, from the parser itself, and names of workers from the daemon.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from itertools import pairwise

from stepwarden.cli.manual import subparser
from stepwarden.errors import StepwardenError

FILES = ":files"
"""Instead of words: the shell completes names of files."""

ASK_SECONDS = "0.5"
_TAKES_FILE = frozenset({"FILE", "PATH", "DIR"})
_TAKES_WORKER = frozenset({"start", "stop", "restart", "status"})

_BASH = """\
_stepwarden() {
    local line current="${COMP_WORDS[COMP_CWORD]}"
    COMPREPLY=()
    while IFS= read -r line; do
        if [ "$line" = ":files" ]; then
            compopt -o filenames 2>/dev/null
            while IFS= read -r line; do COMPREPLY+=("$line"); done < <(compgen -f -- "$current")
        else
            COMPREPLY+=("$line")
        fi
    done < <("$1" completion --words "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
}
complete -F _stepwarden stepwarden
"""
_ZSH = """\
#compdef stepwarden
_stepwarden() {
    local -a found
    found=("${(@f)$(stepwarden completion --words "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    if [[ "${found[1]}" == ":files" ]]; then
        _files
    else
        compadd -- "${(@)found:#}"
    fi
}
if [ "$funcstack[1]" = "_stepwarden" ]; then
    _stepwarden "$@"
else
    compdef _stepwarden stepwarden
fi
"""
_FISH = """\
function __stepwarden_complete
    set -l typed (commandline -opc) (commandline -ct)
    for line in (stepwarden completion --words $typed[2..-1] 2>/dev/null)
        if test "$line" = ":files"
            __fish_complete_path (commandline -ct)
        else
            echo $line
        end
    end
end
complete -c stepwarden -f -a '(__stepwarden_complete)'
"""
SHELLS = {"bash": _BASH, "zsh": _ZSH, "fish": _FISH}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The shell; or the words of a command line, the last one being typed."""
    parser.add_argument("shell", nargs="?", choices=list(SHELLS), metavar="SHELL", help="the shell")
    parser.add_argument("--words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Always 0: a shell must not be disturbed while somebody types."""
    if options.words is not None:
        for word in candidates(options.words or [""]):
            print(word)
        return 0
    if options.shell is None:
        from stepwarden.errors import UsageError

        raise UsageError(f"completion needs a SHELL: {', '.join(SHELLS)}")
    sys.stdout.write(SHELLS[options.shell])
    return 0


def candidates(words: Sequence[str]) -> list[str]:
    """What the last of these words may become; [FILES] for the name of a file."""
    from stepwarden.cli.main import COMMANDS, build_parser

    *before, current = words
    command = next((word for word in before if word in COMMANDS), None)
    if command is None:
        found = [*COMMANDS, "--help", "--version"]
    else:
        parser = subparser(build_parser([command]), command)
        found = _of_command(parser, command, before[before.index(command) + 1 :], current)
    return found if found == [FILES] else [word for word in found if word.startswith(current)]


def _of_command(
    parser: argparse.ArgumentParser, command: str, before: list[str], current: str
) -> list[str]:
    options = {name: action for action in parser._actions for name in action.option_strings}
    last = options.get(before[-1]) if before else None
    if last is not None and last.nargs != 0:
        return _values(last, before)
    if current.startswith("-"):
        return sorted(options)
    positional = next((a for a in parser._actions if not a.option_strings), None)
    return sorted(options) if positional is None else _values(positional, before, command)


def _values(action: argparse.Action, before: list[str], command: str = "") -> list[str]:
    """The values that an argument may have."""
    if action.choices is not None:
        return [str(choice) for choice in action.choices]
    if action.metavar in _TAKES_FILE:
        return [FILES]
    if action.dest == "worker" or command in _TAKES_WORKER:
        return _workers(before)
    if action.dest == "kind":
        from stepwarden.core.event import Kind

        return [str(kind) for kind in Kind]
    if action.dest == "about":
        from stepwarden.cli.main import COMMANDS

        return list(COMMANDS)
    return []


def _workers(before: list[str]) -> list[str]:
    """The names that the daemon knows; none where it does not answer at once."""
    from stepwarden.cli.client import add_connection_arguments, connect

    parser = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    add_connection_arguments(parser)
    try:
        options, _ = parser.parse_known_args([*_whole(before), "--timeout", ASK_SECONDS])
        with connect(options) as client:
            answer = client.call("ListWorkers", client.pb.ListWorkersRequest())
    except (StepwardenError, argparse.ArgumentError, SystemExit):
        return []
    # A name with blanks would become several words.
    return [w.name for w in answer.workers if w.name.isprintable() and " " not in w.name]


def _whole(before: list[str]) -> list[str]:
    """Of the words typed, those that say which daemon is asked."""
    found: list[str] = []
    for name, value in pairwise(before):
        if name in ("--config", "--socket"):
            found = [name, value]
    return found
