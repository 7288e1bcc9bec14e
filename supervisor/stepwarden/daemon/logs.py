"""The supervisor's own log, by structlog: one line a record, JSON or for people."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TextIO

import structlog

from stepwarden.clock import Clock
from stepwarden.edge.log_file import LogFile
from stepwarden.edge.log_values import Clean, plain
from stepwarden.edge.log_writer import LogStream, LogWriter, json_note, plain_note
from stepwarden.edge.output_tail import visible


def colored(stream: TextIO, environ: Mapping[str, str]) -> bool:
    """True on a terminal that takes colors, unless NO_COLOR (not empty) asks for none."""
    return stream.isatty() and not environ.get("NO_COLOR") and environ.get("TERM") != "dumb"


def _stamp(clock: Clock) -> Callable[[Any, str, Any], Any]:
    """Stamps records as events are: wall time with its zone."""

    def stamp(_logger: Any, _method: str, record: Any) -> Any:
        record["timestamp"] = clock.wall().isoformat(timespec="milliseconds")
        return record

    return stamp


def _plain(clean: Clean) -> Callable[[Any, str, Any], Any]:
    """Makes every value one that a renderer takes: a record must never raise into the loop."""

    def process(_logger: Any, _method: str, record: Any) -> Any:
        made = plain(record, clean)
        assert isinstance(made, dict)
        return made

    return process


def _traceback(_logger: Any, _method: str, record: Any) -> Any:
    """What `exc_info` asks for as text, as far as there is any."""
    try:
        return structlog.processors.format_exc_info(_logger, _method, record)
    except Exception as error:  # somebody's exception that cannot be shown
        record.pop("exc_info", None)
        record["exception"] = f"cannot be shown: {type(error).__name__}"
        return record


def make_writer(log_format: str, file: Path | None, clock: Clock) -> LogWriter:
    """What writes the log: to `file`, or to standard error where that is None."""
    note = plain_note if for_people(log_format, file) else json_note
    return LogWriter(LogStream(sys.stderr) if file is None else LogFile(file), clock, note)


def for_people(log_format: str, file: Path | None = None) -> bool:
    """False for JSON. `log_format`: json, console, or auto: console on a terminal."""
    terminal = file is None and sys.stderr.isatty()
    return log_format == "console" or (log_format == "auto" and terminal)


def make_logger(
    log_format: str, level: str, writer: LogWriter, clock: Clock, file: Path | None = None
) -> Any:
    """A logger in the format `json`, `console`, or `auto`; `writer` writes to `file`."""
    console = for_people(log_format, file)
    renderer: Any = (
        structlog.dev.ConsoleRenderer(
            exception_formatter=structlog.dev.plain_traceback,
            colors=file is None and colored(sys.stderr, os.environ),
        )
        if console
        else structlog.processors.JSONRenderer(default=str, allow_nan=False)
    )
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            _stamp(clock),
            _traceback,
            _plain(visible if console else str),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.WriteLoggerFactory(writer),  # type: ignore[arg-type]  # it only writes and flushes
        cache_logger_on_first_use=True,
    )
    return structlog.get_logger()
