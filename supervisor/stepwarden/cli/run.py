"""`stepwarden run FILE`: the supervisor in the foreground."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The configuration file is all it needs."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the YAML configuration")


def run(options: argparse.Namespace) -> int:
    """Check the file, then supervise until SIGTERM or SIGINT."""
    from stepwarden.config import load
    from stepwarden.daemon.main import run as run_daemon

    config = load(options.file)
    with suppress(OSError):  # nobody reads our standard error; that is no reason not to start
        for warning in config.warnings:
            print(warning, file=sys.stderr, flush=True)
    return int(run_daemon(config))
