"""The supervisor's own log, by structlog: one line a record, JSON or for people, on stderr."""

from __future__ import annotations

import logging
import sys
from typing import Any

import structlog

from stepwarden.edge.log_writer import LogWriter


def make_logger(log_format: str, level: str, writer: LogWriter) -> Any:
    """A logger in the format `json`, `console`, or `auto` (console on a terminal)."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())
        if console
        # Whatever a value is, it becomes text: a record must never raise into the loop.
        else structlog.processors.JSONRenderer(default=str)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=False),
            structlog.processors.format_exc_info,
            structlog.processors.UnicodeDecoder(),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(writer),  # type: ignore[arg-type]  # it only writes and flushes
        cache_logger_on_first_use=True,
    )
    return structlog.get_logger()
