"""The screen of `top`: what is shown where, and what each key does."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Any, ClassVar

from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.filter import LineFilter
from textual.widgets import Input, Static

from stepwarden.cli.history import verdict_lines
from stepwarden.cli.status import one
from stepwarden.clock import Clock
from stepwarden.core.deadline import elapsed
from stepwarden.tui.feed import Feed, Known
from stepwarden.tui.look import Rates, Signs, chosen, fit, head_line, orders
from stepwarden.tui.parts import EventPane, Page, Question
from stepwarden.tui.table import STYLES, WorkerTable

LOOK_SECONDS = 0.25
"""How often the screen looks for something new; it draws only then."""

DETAILED_VERDICTS = 10
COMMANDS = {
    "stop": ("StopWorker", "It stays stopped until it is started."),
    "start": ("StartWorker", "Its counters of deaths go to zero."),
    "restart": ("RestartWorker", "Its requests are lost, its counters of deaths go to zero."),
}
KEYS = "q quit  Enter details  s stop  t start  r restart  / filter  o order  ? help"
HELP = """\
up, down, j, k        choose a worker; PageUp, PageDown, Home, End too
Enter                 everything known of it: ranks, verdicts with
                      reasons, lives
s  t  r               stop, start, restart it; each asks first
/                     show only workers with this text in name, state, cause,
                      backend or group; an empty text shows all again
u                     show only workers that are not HEALTHY or STOPPED, or all
o  O                  next, former order: urgency, file, name, step, rate, cpu,
                      restarts
e                     all events that are known here, with whole sentences
Esc                   forget filter and message
q, Ctrl-C             quit; the workers go on

STEP/BUDGET  how much of its budget the open step with the least left has used,
             in seconds (m: minutes); full, with "!", when it is over. A worker
             without an open step shows its phase, or what it waits for.
BATCH        sequences of that step
STEP/S       steps a second of the fastest rank, over the last 5 s
CPU          of all ranks, in percent of one core
RST          deaths counted against the restart budget / the budget"""


class NoColour(LineFilter):
    """Leaves bold, reverse and underline, and no colour at all."""

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:  # noqa: ARG002
        """The same text without colours."""
        return [Segment(s.text, _colourless(s.style), s.control) for s in segments]


def _colourless(style: Style | None) -> Style | None:
    if style is None:
        return None
    return Style(bold=style.bold, reverse=style.reverse, underline=style.underline)


class Top(App[int]):
    """Shows what `feed` knows. The exit code is the app's result."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; color: ansi_default; layers: base; }
    #head, #say, #keys, Question { height: 1; }
    Question { display: none; }
    Input { height: 1; border: none; padding: 0; display: none; background: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave(0)", show=False),
        Binding("ctrl+c", "leave(130)", show=False, priority=True),
        Binding("enter,d", "details", show=False),
        Binding("s", "command('stop')", show=False),
        Binding("t", "command('start')", show=False),
        Binding("r", "command('restart')", show=False),
        Binding("slash", "filter", show=False),
        Binding("u", "unwell", show=False),
        Binding("o", "order(1)", show=False),
        Binding("O", "order(-1)", show=False),
        Binding("e", "events", show=False),
        Binding("question_mark,h", "help", show=False),
        Binding("escape", "clear", show=False),
    ]

    def __init__(self, feed: Feed, clock: Clock, signs: Signs) -> None:
        self._no_colour = bool(os.environ.get("NO_COLOR"))
        super().__init__(ansi_color=True)
        self.animation_level = "none"
        self._feed = feed
        self._clock = clock
        self._signs = signs
        self._rates = Rates()
        self._orders = orders(self._rates)
        self._order = "urgency"
        self._wanted = ""
        self._unwell = False
        self._running_loop: asyncio.AbstractEventLoop | None = None
        self._version = -1
        self._received = 0.0
        self._first = Static("", id="head", markup=False)
        self._message = Static("", id="say", markup=False)
        self._table = WorkerTable(self._rates, signs)
        self._pane = EventPane(signs)
        self._question = Question()
        self._input = Input(placeholder="filter", id="filter")

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Without colour where the operator said so."""
        own = [NoColour()] if self._no_colour else []
        return [*super().get_line_filters(), *own]

    def compose(self) -> ComposeResult:
        """From top to bottom."""
        yield self._first
        yield self._table
        yield self._pane
        yield self._message
        yield self._question
        yield self._input
        yield Static(KEYS, id="keys", markup=False)

    def on_mount(self) -> None:
        """Begin to look."""
        self._running_loop = asyncio.get_running_loop()
        self._table.focus()
        self._look()
        self.set_interval(LOOK_SECONDS, self._look)

    def on_resize(self, event: events.Resize) -> None:
        """A small screen has fewer events."""
        self._pane.styles.height = max(2, min(12, event.size.height // 3 - 1))
        self._version = -1
        self.call_after_refresh(self._look)

    def _look(self) -> None:
        known = self._feed.known
        if known.version != self._version:
            self._version = known.version
            self._take(known)
        # These two change with the cursor and with time as well.
        self._head()
        self._say()

    def _take(self, known: Known) -> None:
        if known.answer is not None:
            if known.at != self._received:
                self._received = known.at
                self._rates.add(known.answer.workers, known.at)
            key = self._orders[self._order]
            self._table.show_workers(chosen(known.answer.workers, self._wanted, key, self._unwell))
        self._pane.show_events(known.events)

    def _head(self) -> None:
        known, width = self._feed.known, self.size.width
        age = elapsed(known.at, self._clock.monotonic())
        right = "  ".join(filter(None, [self._table.place, f"order: {self._order}"]))
        left, mood = head_line(
            known.answer, age, known.trouble, max(0, width - len(right) - 2), self._signs
        )
        text = Text(left, STYLES[mood] or "bold")
        gap = max(2, width - text.cell_len - len(right))
        text.append(" " * gap + right, "")
        self._first.update(text)

    def _say(self) -> None:
        filters = [f"filter: {self._wanted}"] if self._wanted else []
        filters += ["only the unwell"] if self._unwell else []
        text = "  ".join([*filters, self._feed.known.said or self._table.sentence])
        self._message.update(Text(fit(text, self.size.width, self._signs), "bold"))

    def action_leave(self, code: int) -> None:
        """Quit; the workers go on."""
        self.exit(code)

    def leave_from_a_signal(self, code: int) -> None:
        """The same from a handler of signals, wherever it finds the program."""
        if self._running_loop is not None:
            self._running_loop.call_soon_threadsafe(self.exit, code)

    def action_command(self, verb: str) -> None:
        """Ask, and then give a command for the worker at the cursor."""
        name = self._table.selected
        if not name:
            return
        method, effect = COMMANDS[verb]

        def answered(yes: bool) -> None:
            self._show_line(self._question, False)
            if yes:
                self._feed.command(method, verb, name)

        self._show_line(self._question, True)
        width = self.size.width
        asked = f"{verb} {name}? {effect} y: yes, any other key: no"
        if len(asked) > width:
            asked = f"{verb} {name}? y: yes, any other key: no"
        self._question.ask(Text(fit(asked, width, self._signs), "reverse"), answered)

    def action_filter(self) -> None:
        """Ask for a text."""
        self._show_line(self._input, True)
        self._input.value = self._wanted
        self._input.focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Show only what has this text."""
        self._wanted = event.value.strip()
        self._show_line(self._input, False)
        self._again()

    def action_clear(self) -> None:
        """Forget filter and message."""
        self._show_line(self._input, False)
        self._wanted, self._unwell = "", False
        self._feed.forget_said()
        self._again()

    def action_unwell(self) -> None:
        """Only workers that are not as they should be, or all."""
        self._unwell = not self._unwell
        self._again()

    def action_order(self, steps: int) -> None:
        """Another order."""
        names = list(self._orders)
        self._order = names[(names.index(self._order) + steps) % len(names)]
        self._again()

    def action_details(self) -> None:
        """Everything known of the worker at the cursor."""
        name = self._table.selected
        if name:
            self._feed.watch(name)
            self.push_screen(Page(name, self._details, self._signs), self._unwatch)

    def action_events(self) -> None:
        """All events with their sentences."""
        self.push_screen(Page("events, the newest first", self._all_events, self._signs))

    def action_help(self) -> None:
        """What the keys do and the columns mean."""
        self.push_screen(Page("help", HELP.splitlines, self._signs))

    def _unwatch(self, _result: Any) -> None:
        self._feed.watch("")

    def _details(self) -> list[str]:
        details = self._feed.known.details
        if details is None or details.worker is None:
            return [details.trouble if details is not None else ""]
        return one(details.worker, list(details.events), DETAILED_VERDICTS)

    def _all_events(self) -> list[str]:
        lines = []
        for event in reversed(self._feed.known.events):
            head, *rest = verdict_lines([event])
            lines += [f"{fit(event.worker or 'daemon', 40, self._signs)}:{head[1:]}", *rest]
        return lines

    def _again(self) -> None:
        self._version = -1
        self._look()

    def _show_line(self, line: Question | Input, shown: bool) -> None:
        line.display = shown
        self._message.display = not shown
        if not shown:
            self._table.focus()
