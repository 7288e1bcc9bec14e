"""`stepwarden run FILE`: the supervisor in the foreground."""

from __future__ import annotations

import argparse

from stepwarden.cli.arguments import path
from stepwarden.cli.output import complain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The configuration file is all it needs."""
    parser.add_argument("file", type=path, metavar="FILE", help="the YAML configuration")


def run(options: argparse.Namespace) -> int:
    """Check the file, then supervise until SIGTERM or SIGINT."""
    from stepwarden.cli.check import summary
    from stepwarden.config import ConfigError, load
    from stepwarden.edge.grpc_log import import_quietly

    import_quietly()
    from stepwarden.daemon.main import run as run_daemon

    try:
        # Not looked at here: programs may lie on a disk that hangs, which must hold no start.
        config = load(options.file)
    except ConfigError as error:
        complain(f"{error}\n{summary(options.file, None, error.problems, good=False)}")
        return int(error.exit_code)
    # Nobody may read our standard error; that is no reason not to start.
    for warning in config.warnings:
        complain(str(warning))
    return int(run_daemon(config))
