"""`stepwarden run FILE`: the supervisor in the foreground."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The configuration file is all it needs."""
    parser.add_argument("file", type=Path, metavar="FILE", help="the YAML configuration")


def run(options: argparse.Namespace) -> int:
    """Check the file, then supervise until SIGTERM or SIGINT."""
    from stepwarden.config import load
    from stepwarden.daemon.main import run as run_daemon

    config = load(options.file)
    for warning in config.warnings:
        print(warning, file=sys.stderr)
    return int(run_daemon(config))
