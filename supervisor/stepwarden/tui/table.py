"""The table of workers: draws only the lines that can be seen, however many workers there are."""

from __future__ import annotations

from typing import Any, ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.widget import Widget

from stepwarden.cli.status import WELL
from stepwarden.tui.look import Columns, Rates, Row, Signs, row

STYLES = {"good": "green", "calm": "", "warn": "yellow", "bad": "bold red"}


class WorkerTable(Widget, can_focus=True):
    """A cursor on one worker, kept on its name when the order changes."""

    DEFAULT_CSS = "WorkerTable { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown,space", "page(1)", show=False),
        Binding("home,g", "move(-1000000)", show=False),
        Binding("end,G", "move(1000000)", show=False),
    ]

    def __init__(self, rates: Rates, signs: Signs) -> None:
        super().__init__()
        self._rates = rates
        self._signs = signs
        self._workers: list[Any] = []
        self._top = 0
        self._place = 0
        self.selected = ""

    def show_workers(self, workers: list[Any]) -> None:
        """Draw these; the cursor stays on its worker, or where that one was."""
        self._workers = workers
        names = [worker.name for worker in workers]
        if self.selected in names:
            self._place = names.index(self.selected)
        self._select(self._place)

    def action_move(self, lines: int) -> None:
        """Move the cursor."""
        self._select(self._place + lines)

    def action_page(self, pages: int) -> None:
        """Move it by what can be seen."""
        self._select(self._place + pages * self._room)

    @property
    def sentence(self) -> str:
        """The last verdict on the worker at the cursor; "" while it is well."""
        for worker in self._workers[self._place : self._place + 1]:
            if worker.state not in WELL and worker.sentence:
                return f"{worker.name}: {worker.sentence}"
        return ""

    @property
    def place(self) -> str:
        """Which lines are seen, ``1-14 of 200``; "" where all are."""
        seen = min(self._room, len(self._workers) - self._top)
        if seen == len(self._workers):
            return ""
        return f"{self._top + 1}-{self._top + seen} of {len(self._workers)}"

    @property
    def _room(self) -> int:
        return max(1, self.size.height - 1)

    def _select(self, place: int) -> None:
        self._place = min(max(0, place), max(0, len(self._workers) - 1))
        self.selected = self._workers[self._place].name if self._workers else ""
        self._top = max(min(self._top, self._place), self._place - self._room + 1)
        self._top = max(0, min(self._top, len(self._workers) - self._room))
        self.refresh()

    def render(self) -> Text:
        """The heading and the workers that can be seen."""
        width = self.size.width
        names = (worker.name for worker in self._workers)
        columns = Columns.for_width(width, names)
        step = columns.widths[Columns.STEP]
        seen = self._workers[self._top : self._top + self._room]
        text = Text(no_wrap=True, end="")
        text.append(columns.line(Columns.TITLES, self._signs).ljust(width), "bold underline")
        for worker in seen:
            text.append("\n")
            text.append_text(self._line(row(worker, self._rates, step, self._signs), columns))
        return text

    def _line(self, shown: Row, columns: Columns) -> Text:
        mine = shown.name == self.selected
        line = columns.line(shown.cells, self._signs)
        # The state alone is coloured: a screen full of colour says nothing.
        text = Text(line, style="reverse" if mine else "")
        start = columns.widths[0] + 1
        if not mine:
            text.stylize(STYLES[shown.mood], start, start + columns.widths[1])
        return text
