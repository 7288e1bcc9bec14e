from __future__ import annotations

import io
import os
import threading
from contextlib import suppress

from stepwarden.clock import SystemClock
from stepwarden.edge.log_writer import MAX_LINES, LogStream, LogWriter


def test_what_is_written_arrives_in_order_before_close_returns() -> None:
    stream = io.StringIO()
    writer = LogWriter(LogStream(stream), SystemClock())
    for number in range(100):
        writer.write(f"{number}\n")
    writer.close()
    assert stream.getvalue().split() == [str(number) for number in range(100)]


def test_a_pipe_that_nobody_reads_does_not_hold_up_the_writer() -> None:
    reading, writing = os.pipe()
    stream = os.fdopen(writing, "w", encoding="utf-8")
    writer = LogWriter(LogStream(stream), SystemClock())
    done = threading.Event()

    def write_much() -> None:
        for _ in range(2 * MAX_LINES):
            writer.write("x" * 100 + "\n")
        done.set()

    threading.Thread(target=write_much, daemon=True).start()
    assert done.wait(30)
    os.close(reading)  # frees the thread, which waits in write
    writer.close()
    with suppress(BrokenPipeError):
        stream.close()


def test_dropped_lines_are_counted_in_the_next_line_that_gets_through() -> None:
    stream = _Gate()
    writer = LogWriter(LogStream(stream), SystemClock())
    for _ in range(MAX_LINES + 50):
        writer.write("line\n")
    stream.opened.set()
    writer.write("after\n")
    writer.close(30)
    assert "pieces of log were dropped" in stream.getvalue()


def test_a_closed_reader_raises_nothing() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    stream = os.fdopen(writing, "w", encoding="utf-8")
    writer = LogWriter(LogStream(stream), SystemClock())
    for _ in range(10):
        writer.write("nobody reads this\n")
    writer.close()
    with suppress(BrokenPipeError):
        stream.close()


class _Gate(io.StringIO):
    """Takes nothing until it is opened."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = threading.Event()

    def write(self, text: str) -> int:
        self.opened.wait(60)
        return super().write(text)
