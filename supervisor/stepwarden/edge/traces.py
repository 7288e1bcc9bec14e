"""What ties a process to an incarnation after all ancestry is lost: its environment, its page.

Reading another process' environment or mappings takes its memory lock. A process that hangs in the
kernel while it holds that lock (a GPU driver that does not answer) holds up every such read, for
as long as it hangs. So they are made in threads of their own, each read has a limit, and a process
whose read hangs is left alone until that read comes back.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

from stepwarden_proto.page import ENV_INCARNATION

from stepwarden.core.deadline import clamp_timeout
from stepwarden.core.evidence import ProcessId
from stepwarden.edge.process_probe import identify

READ_SECONDS = 1.0
"""A process whose files are not read within this hangs in the kernel."""

IDLE_SECONDS = 1.0
"""The threads end after so long without a question."""

MOST_STUCK = 64
"""So many reads may hang at once, each with its thread; beyond that nobody is looked at."""

Read = Callable[[str], bytes]
Answer = bool | None
"""Whether a process belongs to the incarnation; None: nobody can tell now."""


def read_file(path: str) -> bytes:
    """What is in a file; nothing where it may not be read."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def is_marked(process: ProcessId, incarnation: str, read: Read = read_file) -> bool:
    """True where its environment names this incarnation; False where it may not be read.

    Some engines overwrite their environment with a process title: False is no proof. May hang.
    """
    marker = os.fsencode(f"{ENV_INCARNATION}={incarnation}")
    environment = read(f"/proc/{process.pid:d}/environ")
    return marker in environment.split(b"\0") and identify(process.pid) == process


def maps_file_below(process: ProcessId, directory: Path, read: Read = read_file) -> bool:
    """True where it maps a file below `directory`, as agents do with their pages. May hang.

    A file that is only open is no sign: an operator may be looking at it.
    """
    prefix = os.fsencode(os.path.realpath(directory)) + b"/"
    return prefix in read(f"/proc/{process.pid:d}/maps") and identify(process.pid) == process


@dataclass(slots=True)
class _Question:
    process: ProcessId
    incarnation: str
    page_dir: Path | None
    answer: Future[Answer] = field(default_factory=Future)
    found: bool = False
    given_up: bool = False
    read: threading.Event = field(default_factory=threading.Event)


class TraceReader:
    """Looks for traces in threads that nobody waits for, not even at the end of the program.

    One thread asks, another reads; the first gives up on a read that hangs and takes a new reader.
    Both end when nobody asks any more.
    """

    def __init__(self, read: Read = read_file, limit: float = READ_SECONDS) -> None:
        self._read = read
        self._limit = limit
        self._lock = threading.Lock()  # held for a few statements only
        self._asked = threading.Condition(self._lock)
        self._waiting: deque[_Question] = deque()
        self._asking = False
        self._stuck: set[ProcessId] = set()

    @property
    def stuck(self) -> frozenset[ProcessId]:
        """The processes whose reads hang now."""
        with self._lock:
            return frozenset(self._stuck)

    def ask(
        self, process: ProcessId, incarnation: str, page_dir: Path | None = None
    ) -> Future[Answer]:
        """Whether it carries the marker or uses a file in `page_dir`; returns at once."""
        question = _Question(process, incarnation, page_dir)
        with self._lock:
            if not self._may_ask(process):
                question.answer.set_result(None)
            else:
                self._waiting.append(question)
                self._asked.notify()
        return question.answer

    async def search(
        self,
        suspects: Collection[ProcessId],
        incarnation: str,
        page_dir: Path | None,
        timeout: float | None,
    ) -> tuple[set[ProcessId], set[ProcessId]]:
        """Those of `suspects` with a trace, and those of which it cannot be told (in time)."""
        asked = {process: self.ask(process, incarnation, page_dir) for process in suspects}
        if asked:
            await _all_done(asked.values(), timeout)
        answers = {p: one.result() if one.done() else None for p, one in asked.items()}
        found = {process for process, answer in answers.items() if answer}
        return found, {process for process, answer in answers.items() if answer is None}

    def _may_ask(self, process: ProcessId) -> bool:
        if process in self._stuck or len(self._stuck) >= MOST_STUCK:
            return False
        if not self._asking:
            try:
                threading.Thread(target=self._serve, name="traces", daemon=True).start()
            except RuntimeError:  # no thread to be had
                return False
            self._asking = True
        return True

    def _next(self) -> _Question | None:
        with self._lock:
            if not self._waiting:
                self._asked.wait(IDLE_SECONDS)
            while self._waiting:
                question = self._waiting.popleft()
                if question.process not in self._stuck and len(self._stuck) < MOST_STUCK:
                    return question
                question.answer.set_result(None)
            self._asking = False
            return None

    def _serve(self) -> None:
        reader: SimpleQueue[_Question | None] | None = None
        while (question := self._next()) is not None:
            try:
                reader = reader or self._new_reader()
            except RuntimeError:  # no thread to be had
                question.answer.set_result(None)
                continue
            reader.put(question)
            question.read.wait(self._limit)
            if self._give_up(question):
                reader = None
                question.answer.set_result(None)
            else:
                question.answer.set_result(question.found)
        if reader is not None:
            reader.put(None)

    def _give_up(self, question: _Question) -> bool:
        with self._lock:
            if question.read.is_set():
                return False
            question.given_up = True
            self._stuck.add(question.process)
            return True

    def _new_reader(self) -> SimpleQueue[_Question | None]:
        questions: SimpleQueue[_Question | None] = SimpleQueue()
        reading = threading.Thread(
            target=self._read_all, args=(questions,), name="trace", daemon=True
        )
        reading.start()
        return questions

    def _read_all(self, questions: SimpleQueue[_Question | None]) -> None:
        while (question := questions.get()) is not None:
            try:
                question.found = self._has_trace(question)
            finally:
                with self._lock:
                    question.read.set()
                    self._stuck.discard(question.process)
            if question.given_up:
                return

    def _has_trace(self, question: _Question) -> bool:
        process, page_dir = question.process, question.page_dir
        if is_marked(process, question.incarnation, self._read):
            return True
        return page_dir is not None and maps_file_below(process, page_dir, self._read)


async def _all_done(answers: Collection[Future[Answer]], timeout: float | None) -> None:
    """Wait for all of them with a single wake-up of the loop.

    One each would fill the pipe that wakes it, through which signals come too.
    """
    loop = asyncio.get_running_loop()
    told = loop.create_future()
    left = len(answers)
    lock = threading.Lock()

    def tell() -> None:
        if not told.done():
            told.set_result(None)

    def count(_: Future[Answer]) -> None:
        nonlocal left
        with lock:
            left -= 1
            last = not left
        if last:
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(tell)

    for answer in answers:
        answer.add_done_callback(count)
    await asyncio.wait({told}, timeout=clamp_timeout(timeout))
