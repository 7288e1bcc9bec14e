"""The agent: what an engine calls. Nothing here raises into the engine or waits for anybody."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from stepwarden_proto.ranks import clean_rank

from stepwarden_agent import forking, link, log
from stepwarden_agent.beats import Beats
from stepwarden_agent.header import Header
from stepwarden_agent.invitation import Invitations, News
from stepwarden_agent.leases import Lease, LeaseBook
from stepwarden_agent.link import Link, MakeMessage
from stepwarden_agent.message import NOTHING_SAID, About, BeatMaker
from stepwarden_agent.page_file import Page, create_page, nameless_page, private_page
from stepwarden_agent.progress import UNKNOWN, Begin, End, Ring
from stepwarden_agent.settings import Settings, read_settings
from stepwarden_agent.wake import Wake

if TYPE_CHECKING:
    from stepwarden_proto.v1 import agent_pb2

BYE_SECONDS = 0.5
"""How long a clean end may wait for the supervisor to hear of it."""


class StepContext:
    """A step as a context manager; see `Agent.step`."""

    __slots__ = ("_agent", "_handle", "_shape")

    def __init__(self, agent: Agent, num_seqs: int, num_tokens: int, phase: str) -> None:
        self._agent = agent
        self._shape = (num_seqs, num_tokens, phase)
        self._handle = 0

    def __enter__(self) -> int:
        self._handle = self._agent.begin(*self._shape)
        return self._handle

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._agent.end(self._handle)


class Agent:
    """Reports one rank of this process. `Agent.from_env()` makes it.

    `begin(num_seqs, num_tokens, phase)` records the begin of a step and returns a handle for
    `end(handle)`, which any thread may call; handle 0 means "not recorded" and is as good as any
    other. Counts that are negative, too large or no integers are recorded as unknown. One thread
    begins steps.
    """

    begin: Begin
    end: End

    def __init__(self, settings: Settings | None, rank: str, phase: str) -> None:
        self._settings = settings
        self._rank = rank
        self._first_phase = phase
        self._detail = ""
        self._about = NOTHING_SAID
        self._closed = settings is None
        self._page: Page | None = None
        self._header: Header | None = None
        self._beats: Beats | None = None
        self._leases = LeaseBook()
        self._arming = threading.Lock()
        ring = Ring(self._arm)
        self.begin, self.end, self._attach = ring.begin, ring.end, ring.attach
        self._watch_steps = ring.watch

    @classmethod
    def from_env(cls, rank: str = "0", phase: str = "idle", *, bye_at_exit: bool = True) -> Agent:
        """The agent that the environment asks for; one that does nothing where it asks for none.

        A second call for the same rank in one process gives the same agent. `phase` is the first
        one; an engine that still has to load begins with "loading". Without `bye_at_exit` only
        `close` says bye: for an engine whose process also leaves by itself when it has failed.
        """
        try:
            return _from_env(cls, clean_rank(rank), str(phase), bye_at_exit)
        except Exception as error:
            log.once("from_env", f"no agent in this process: {error!r}")
            return cls(None, "0", "idle")

    def step(
        self, num_seqs: int = UNKNOWN, num_tokens: int = UNKNOWN, phase: str = "decode"
    ) -> StepContext:
        """A step that lasts as long as the block of this context manager."""
        return StepContext(self, num_seqs, num_tokens, phase)

    def phase(self, name: str) -> None:
        """Declare a phase: loading, compiling, warmup, prefill, decode, idle or draining.

        The first three hold until another one is declared. After any other the rank is up, and
        idle while no step is open.
        """
        header = self._armed_header()
        try:
            if header is not None and header.phase != name:
                header.set_phase(name)
                self._tell(link.PHASE)
        except Exception as error:
            log.once("phase", f"a phase was not recorded: {error!r}")

    def lease(self, name: str, seconds: float) -> Lease:
        """Declare an operation that may take `seconds`; release it, or use it as a context."""
        try:
            lease = Lease(name, seconds, self._lease_over)
        except Exception:
            lease = Lease("unknown", 0.0, self._lease_over)
        if lease.seconds > 0.0 and self._armed_header() is not None:
            self._leases.add(lease)
            self._show_lease()
        return lease

    def work(self, unfinished: int) -> None:
        """An engine core says how many requests it has accepted and not finished."""
        header = self._armed_header()
        try:
            if header is not None:
                header.set_unfinished(unfinished)
        except Exception as error:
            log.once("work", f"the queue length was not recorded: {error!r}")

    def loop_turn(self) -> None:
        """An engine core's loop has turned once more."""
        header = self._header
        try:
            if header is not None:
                header.loop_turn()
        except Exception as error:
            log.once("loop_turn", f"a turn of the loop was not recorded: {error!r}")

    def detail(self, text: str) -> None:
        """Free text for people, sent with each message from now on; 4096 bytes are kept."""
        try:
            self._detail = str(text)[:4096]
        except Exception as error:
            log.once("detail", f"a detail was not recorded: {error!r}")

    def about(
        self, engine: str = "", engine_version: str = "", model: str = "", dtype: str = ""
    ) -> None:
        """Say what runs here, sent with each message from now on; 256 bytes of each are kept.

        What is usual is learned for the same engine, version, model and dtype.
        """
        try:
            self._about = About(*(str(t)[:256] for t in (engine, engine_version, model, dtype)))
        except Exception as error:
            log.once("about", f"what runs here was not recorded: {error!r}")

    def close(self) -> None:
        """A clean end: say bye (half a second at most). Later calls do nothing."""
        if self._closed:
            return
        self._closed = True
        try:
            self._attach(None)
            if self._header is not None:
                self._header.close()
            beats, self._beats = self._beats, None
            if beats is not None:
                beats.finish(BYE_SECONDS)
        except Exception as error:
            log.once("close", f"the agent could not end cleanly: {error!r}")

    @property
    def active(self) -> bool:
        """False where the environment asked for nothing, and after close."""
        return not self._closed

    def make_room(self) -> None:
        """After `close`: take the page's name away, for another agent of this rank and process."""
        if self._settings is not None and self._page is not None and self._page.name:
            with suppress(OSError):
                os.unlink(os.path.join(self._settings.page_dir, self._page.name))

    def forked(self) -> None:
        """This is a child now: let go of everything that is the parent's."""
        self._attach(None)
        if self._header is not None:
            self._first_phase = self._header.phase
        if self._beats is not None:
            self._beats.abandon()
        self._page = None
        self._header = None
        self._beats = None
        self._leases = LeaseBook()
        self._arming = threading.Lock()
        log.forget()

    def _arm(self) -> None:
        """Make page and threads of this process, unless they are there or nobody wants them."""
        if self._closed or self._header is not None or not self._arming.acquire(blocking=False):
            return
        try:
            if self._header is None:
                self._arm_now()
        finally:
            self._arming.release()

    def _arm_now(self) -> None:
        settings = self._settings
        if settings is None:
            return
        page = _open_page(settings, self._rank, self._first_phase)
        self._page = page
        header = Header(page.words)
        wake = Wake()
        uplink = self._new_uplink(settings, page, wake)
        beats = Beats(header, uplink, settings.interval, self._watch_steps, wake)
        if settings.attach:
            self._follow_invitations(settings, page, wake, beats)
        self._attach(page.words)
        self._header, self._beats = header, beats
        try:
            beats.start()
        except RuntimeError as error:
            # No more threads (a limit, or the interpreter is going down): the page still works.
            log.once("thread", f"no heartbeats from this process: {error}")

    def _new_uplink(self, settings: Settings, page: Page, wake: Wake) -> Link | None:
        maker = BeatMaker(settings, self._rank, page.name)

        def make(pb: Any, reason: int) -> agent_pb2.Beat:
            shown = self._leases.shown()
            return maker.make(pb, reason, page.words, shown, self._detail, self._about)

        return _new_link(settings, make, wake)

    def _follow_invitations(self, settings: Settings, page: Page, wake: Wake, beats: Beats) -> None:
        invitations = Invitations(settings.attach, self._rank, page)

        def look(now: float) -> None:
            news: News | None = invitations.look(now)
            if news is None:
                return
            told = news.settings
            uplink = None if told is None else self._new_uplink(told, page, wake)
            beats.connect(uplink, settings.interval if told is None else told.interval)

        beats.follow(look)

    def _armed_header(self) -> Header | None:
        if self._header is None:
            try:
                self._arm()
            except Exception as error:
                log.once("arm", f"no agent in this process: {error!r}")
        return self._header

    def _tell(self, reason: int) -> None:
        beats = self._beats
        if beats is not None:
            beats.tell(reason)

    def _lease_over(self, lease: Lease) -> None:
        self._leases.remove(lease)
        self._show_lease()

    def _show_lease(self) -> None:
        header = self._header
        if header is None:
            return
        try:
            shown = self._leases.shown()
            if shown is None:
                header.set_lease(0, 0)
            else:
                header.set_lease(shown.begin_ns, shown.end_ns - shown.begin_ns)
            self._tell(link.LEASE)
        except Exception as error:
            log.once("lease", f"a lease was not recorded: {error!r}")

    def _mute(self, ticks: bool = True) -> None:
        """For tests: no more messages, and with `ticks` no more ticks either. Steps go on."""
        if self._beats is not None:
            self._beats.stop() if ticks else self._beats.silence()


_agents: dict[str, Agent] = {}


def _from_env(kind: type[Agent], rank: str, phase: str, bye_at_exit: bool) -> Agent:
    settings = read_settings(os.environ)
    if settings is None:
        return kind(None, rank, phase)
    known = _agents.get(rank)
    if known is not None and known.active:
        known._arm()
        return known
    if known is not None:
        known.make_room()
    agent = kind(settings, rank, phase)
    _agents[rank] = agent
    forking.tell(agent)
    agent._arm()
    if bye_at_exit:
        _close_at_exit(agent)
    return agent


def _close_at_exit(agent: Agent) -> None:
    atexit.register(agent.close)
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None and processes.parent_process() is not None:
        # Children of multiprocessing leave by os._exit, after their own finalizers only.
        from multiprocessing.util import Finalize

        Finalize(None, agent.close, exitpriority=10)


def _new_link(settings: Settings, make: MakeMessage, wake: Wake) -> Link | None:
    if not settings.target:
        return None
    try:
        return Link(settings, make, wake)
    except ValueError as error:
        log.once("target", f"no heartbeats from this process: {error}")
        return None


def _open_page(settings: Settings, rank: str, phase: str) -> Page:
    if not settings.page_dir:
        return private_page(phase)
    try:
        return create_page(settings.page_dir, rank, phase)
    except (OSError, ValueError) as error:
        if settings.attach:
            return nameless_page(phase)  # its directory may be there later
        log.once("page", f"no progress page in {settings.page_dir}: {error}")
        return private_page(phase)
