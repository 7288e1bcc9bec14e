"""stepwarden schema: the JSON Schema of the configuration file, or its reference page."""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument(
        "--markdown", action="store_true", help="print the reference of all keys instead"
    )


def run(options: argparse.Namespace) -> int:
    """Always 0."""
    if options.markdown:
        from stepwarden.config.reference import markdown

        sys.stdout.write(markdown())
    else:
        from stepwarden.config.schema import schema_text

        sys.stdout.write(schema_text())
    return 0
