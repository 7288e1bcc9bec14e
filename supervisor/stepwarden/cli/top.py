"""`stepwarden top`: a live view of all workers, with keys to stop, start and restart them."""

from __future__ import annotations

import argparse
import locale
import os

from stepwarden.cli.client import add_connection_arguments, connect
from stepwarden.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `top`."""
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> int:
    """Show the view until the user leaves it; 0, or 128 + the signal that ended it."""
    _need_a_terminal()
    # A daemon that is not there at all is an error; one that goes away later is waited for.
    with connect(options) as client:
        client.call("ListWorkers", client.pb.ListWorkersRequest())
    from stepwarden.clock import SystemClock
    from stepwarden.tui.app import Top
    from stepwarden.tui.ending import Ending
    from stepwarden.tui.feed import Feed
    from stepwarden.tui.look import ASCII, Signs

    clock = SystemClock()
    feed = Feed(lambda: connect(options), clock)
    utf8 = locale.getencoding().lower().replace("-", "") == "utf8"
    ending = Ending()
    app = Top(feed, clock, Signs() if utf8 else ASCII)
    ending.arm(app.leave_from_a_signal)
    feed.start()
    try:
        code = app.run(mouse=False)
    finally:
        feed.end()
        ending.disarm()
    if ending.code is not None:
        return ending.code
    return 1 if code is None else code


def _need_a_terminal() -> None:
    instead = "use `stepwarden status`, or `stepwarden events --follow`"
    # The screen is drawn on standard error, as others do who leave standard output to results.
    if not all(os.isatty(number) for number in (0, 1, 2)):
        text = "top needs a terminal as standard input, output and error"
        raise UsageError(f"{text}; {instead}")
    if os.environ.get("TERM", "") in ("", "dumb", "unknown"):
        raise UsageError(f"this terminal cannot place text (TERM is dumb or not set); {instead}")
