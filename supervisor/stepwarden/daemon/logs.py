"""The supervisor's own log, by structlog: one line a record, JSON or for people, on stderr."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO

import structlog

from stepwarden.clock import Clock
from stepwarden.edge.log_writer import LogWriter


def colored(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """True on a terminal that takes colors, unless NO_COLOR (not empty) asks for none."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def _stamp(clock: Clock) -> Callable[[Any, str, Any], Any]:
    """Stamps records as events are: wall time with its zone."""

    def stamp(_logger: Any, _method: str, record: Any) -> Any:
        record["timestamp"] = clock.wall().isoformat(timespec="milliseconds")
        return record

    return stamp


def make_logger(log_format: str, level: str, writer: LogWriter, clock: Clock) -> Any:
    """A logger in the format `json`, `console`, or `auto` (console on a terminal)."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: Any = (
        structlog.dev.ConsoleRenderer(colors=colored(sys.stderr, os.environ))
        if console
        # Whatever a value is, it becomes text: a record must never raise into the loop.
        else structlog.processors.JSONRenderer(default=str)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _stamp(clock),
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
