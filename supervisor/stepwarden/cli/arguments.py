"""What the arguments of the commands have in common: one-line refusals, and paths."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import NoReturn

from stepwarden.cli.texts import plain
from stepwarden.errors import ExitCode


class Parser(argparse.ArgumentParser):
    """Refuses a wrong command line in one line, as every other error is told."""

    def error(self, message: str) -> NoReturn:
        """Exit with ExitCode.USAGE."""
        text = f"{self.prog}: {plain(message)} (see {self.prog} --help)\n"
        self.exit(int(ExitCode.USAGE), text)


def path(text: str) -> Path:
    """A path from the command line; an empty one would mean the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)
