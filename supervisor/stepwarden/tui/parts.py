"""The smaller parts of the screen: the pane of events, the question, the pages of text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from stepwarden.tui.look import Signs, event_line, fit


class EventPane(Widget):
    """The latest events that fit, the newest last."""

    DEFAULT_CSS = "EventPane { height: 7; }"

    def __init__(self, signs: Signs) -> None:
        super().__init__()
        self._signs = signs
        self._events: Sequence[Any] = ()

    def show_events(self, found: Sequence[Any]) -> None:
        """Draw the end of these."""
        self._events = found
        self.refresh()

    def render(self) -> Text:
        """A heading and the lines."""
        width, room = self.size.width, max(1, self.size.height - 1)
        text = Text(no_wrap=True, end="")
        text.append("LATEST EVENTS".ljust(width), "bold underline")
        for event in list(self._events)[-room:]:
            bad = event.to_state in ("DEAD", "FAILED", "UNHEALTHY")
            text.append("\n")
            text.append(event_line(event, width, self._signs), "red" if bad else "")
        return text


class Question(Static, can_focus=True):
    """One line that waits for y; every other key means no."""

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self._answer: Callable[[bool], None] | None = None

    def ask(self, text: Text, answer: Callable[[bool], None]) -> None:
        """Show the question; `answer` is told what was pressed."""
        self._answer = answer
        self.update(text)
        self.focus()

    async def on_key(self, event: events.Key) -> None:
        """Any key answers, and goes no further."""
        event.stop()
        event.prevent_default()
        answer, self._answer = self._answer, None
        if answer is not None:
            answer(event.key == "y")


class Page(Screen[None]):
    """Text on a screen of its own, made anew each second."""

    # Text is laid out for 80 columns: a scroll bar would take two of them.
    CSS = """
    Page { background: ansi_default; }
    #title { height: 1; }
    VerticalScroll { height: 1fr; scrollbar-size: 0 0; background: ansi_default; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,enter", "app.pop_screen", show=False),
        Binding("k", "scroll(-1)", show=False),
        Binding("j", "scroll(1)", show=False),
    ]

    def __init__(self, title: str, lines: Callable[[], Sequence[str]], signs: Signs) -> None:
        super().__init__()
        self._heading = title
        self._lines = lines
        self._signs = signs
        self._shown: tuple[str, ...] = ()
        self._title = Static("", id="title", markup=False)
        self._scroll = VerticalScroll()
        self._text = Static("", markup=False)

    def compose(self) -> ComposeResult:
        """A heading, and the text that can be scrolled."""
        yield self._title
        with self._scroll:
            yield self._text

    def on_mount(self) -> None:
        """Show it, and keep it new."""
        self._scroll.focus()
        self._renew()
        self.set_interval(0.5, self._renew)

    def on_resize(self, _event: events.Resize) -> None:
        """The heading takes the whole width."""
        width = self.size.width
        title = fit(f"{self._heading}  (Esc or q: back; arrows scroll)", width, self._signs)
        self._title.update(Text(title.ljust(width), "reverse"))

    def action_scroll(self, lines: int) -> None:
        """Scroll by some lines."""
        self._scroll.scroll_relative(y=lines, animate=False)

    def _renew(self) -> None:
        lines = tuple(self._lines())
        if lines != self._shown:
            self._shown = lines
            self._text.update(Text("\n".join(lines)))
