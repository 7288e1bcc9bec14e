"""The story that the demo tells, in four acts, with the daemon's own sentences."""

from __future__ import annotations

import shutil
import subprocess
import textwrap
from collections.abc import Callable

from stepwarden.clock import Clock
from stepwarden.config import load
from stepwarden.core.deadline import Deadline, elapsed
from stepwarden.demo import control
from stepwarden.demo.feed import Feed, Happening, StoryFailedError, of_kind, turns
from stepwarden.demo.stage import Stage
from stepwarden.demo.worker import EXIT_ENGINE_DEAD

WORKER = "tiny"
SMALL, LARGE = 4, 64
ENGINE_TIMEOUT = 2.0
START_SECONDS = 60.0
REACT_SECONDS = 30.0
QUIET_SECONDS = 3.0
ATTEMPTS = 3
LOOK_SECONDS = 0.1
MIN_WIDTH, MAX_WIDTH = 60, 100


class Story:
    """Plays the acts on `stage`; `say` gets each line of the narration."""

    def __init__(self, stage: Stage, clock: Clock, say: Callable[[str], None]) -> None:
        self._stage = stage
        self._clock = clock
        self._say = say
        self._began = clock.monotonic()
        self._policy = load(stage.config).workers[WORKER].policy
        self._feed: Feed

    def play(self) -> None:
        """All acts; StoryFailedError: one of them did not come out as it must."""
        self._tell(f"0. No supervisor: the engine's own watchdog, {ENGINE_TIMEOUT:g} s a step.")
        self._alone()
        self._tell(f"1. stepwarden starts the same server, with a batch of {SMALL}.")
        self._healthy()
        self._tell(f"2. A batch of {LARGE}, and one honest step past its deadline.")
        self._slow()
        self._tell("3. The worker freezes: a step that waits on a lock for ever.")
        self._frozen()
        self._tell("All came out as it must. Ending the daemon and everything below it.")

    def _alone(self) -> None:
        words = ("--control", str(self._stage.control), "--batch", str(LARGE))
        server = self._stage.start_alone(*words, "--engine-timeout", f"{ENGINE_TIMEOUT:g}")
        self._until(lambda: self._busy(LARGE, server), START_SECONDS, "the server's first steps")
        seconds = 2.0 * ENGINE_TIMEOUT
        self._stage.ask("slow", seconds=seconds)
        self._note(f"{LARGE} long prompts arrive: honest work for about {seconds:.1f} s")
        try:
            output, _ = server.communicate(timeout=REACT_SECONDS)
        except subprocess.TimeoutExpired:
            raise StoryFailedError("the engine's own watchdog did not end it") from None
        if server.returncode != EXIT_ENGINE_DEAD:
            raise StoryFailedError(f"the lone server ended with {server.returncode}: {output}")
        self._note(output.strip().splitlines()[-1])
        self._note(f"exit code {server.returncode}: a healthy engine, dead of its own watchdog")

    def _healthy(self) -> None:
        for batch in (SMALL, LARGE):
            budget = self._policy.step_budget(batch, None)
            self._note(f"budget of a step: {budget.arithmetic}")
        self._note(f"retry window {self._policy.window:g} s; the worker's watchdog only reports")
        self._stage.start_daemon()
        self._until(self._stage.daemon_answers, REACT_SECONDS, "the daemon's first answer")
        self._feed = self._follow()
        self._feed.wait(turns("HEALTHY"), START_SECONDS, "HEALTHY")
        self._until(lambda: self._busy(SMALL), REACT_SECONDS, "the first steps")
        before = self._stage.ask("stats")
        trouble = self._feed.wait_or_none(_leaves("HEALTHY"), QUIET_SECONDS)
        if trouble is not None:
            raise StoryFailedError(f"not HEALTHY with {SMALL} sequences: {trouble['sentence']}")
        steps = _number(self._stage.ask("stats"), "steps") - _number(before, "steps")
        self._note(f"HEALTHY, and quiet: {steps:.0f} steps in {QUIET_SECONDS:g} s")

    def _slow(self) -> None:
        self._stage.ask("load", batch=LARGE)
        self._until(lambda: self._busy(LARGE), REACT_SECONDS, f"a batch of {LARGE}")
        before = self._stage.ask("stats")
        retried = False
        seconds = self._policy.step_budget(LARGE, None).seconds + 1.5 * self._policy.window
        for _ in range(ATTEMPTS):
            retried = self._slow_step(seconds)
            if retried:
                break
            seconds *= 1.5  # the machine is faster than it was when it was measured
        if not retried:
            raise StoryFailedError("no step was slow enough for a second window on this machine")
        after = self._stage.ask("stats")
        if after["pid"] != before["pid"]:
            raise StoryFailedError("the slow worker was replaced")
        fired = _number(after, "engine_timeouts") - _number(before, "engine_timeouts")
        longest = _number(after, "longest_step_seconds")
        self._note(f"the step took {longest:.1f} s; still process {after['pid']}, no restart")
        self._note(
            f"the engine's own fixed timeout of {ENGINE_TIMEOUT:g} s passed {fired:.0f} time(s):"
            " it would have killed this worker"
        )

    def _slow_step(self, seconds: float) -> bool:
        """One slow step; True when it was UNHEALTHY, got another window, and was well again."""
        tokens = self._stage.ask("slow", seconds=seconds)["prompt_tokens"]
        self._note(f"{LARGE} prompts of {tokens} tokens arrive: about {seconds:.1f} s of work")
        if self._feed.wait_or_none(turns("UNHEALTHY"), seconds + 3.0) is None:
            return False
        ends = (turns("HEALTHY"), turns("DEAD"), of_kind("retry"))
        retried = False
        while True:
            event = self._feed.wait(_any(*ends), REACT_SECONDS, "HEALTHY")
            if turns("DEAD")(event):
                raise StoryFailedError(f"a working worker was given up: {event['sentence']}")
            if turns("HEALTHY")(event):
                return retried
            retried = True

    def _frozen(self) -> None:
        before = self._stage.ask("stats")
        self._stage.ask("freeze")
        self._feed.wait(turns("UNHEALTHY"), REACT_SECONDS, "UNHEALTHY")
        dead = self._feed.wait(turns("DEAD"), REACT_SECONDS, "DEAD")
        born = self._feed.wait(turns("STARTING"), REACT_SECONDS, "a new incarnation")
        if born["incarnation"] == dead["incarnation"]:
            raise StoryFailedError("the new life has the incarnation of the old one")
        self._feed.wait(turns("HEALTHY"), START_SECONDS, "HEALTHY")
        self._until(lambda: self._busy(SMALL), REACT_SECONDS, "steps of the new incarnation")
        after = self._stage.ask("stats")
        self._note(f"process {before['pid']} is gone, process {after['pid']} serves")

    def _follow(self) -> Feed:
        command = self._stage.start_command("events", "--follow", "--json")
        return Feed(command, self._show, self._clock)

    def _busy(self, batch: int, server: subprocess.Popen[str] | None = None) -> bool:
        """True when `batch` requests are in flight and steps are taken."""
        if server is not None and server.poll() is not None:
            raise StoryFailedError(f"the lone server ended with {server.returncode}")
        try:
            stats = self._stage.ask("stats")
        except StoryFailedError:
            return False
        return _number(stats, "in_flight") == batch and _number(stats, "steps") > 0

    def _until(self, condition: Callable[[], bool], seconds: float, missing: str) -> None:
        deadline = Deadline.after(self._clock.monotonic(), seconds)
        while not condition():
            if deadline.passed(self._clock.monotonic()):
                raise StoryFailedError(f"{missing} did not come within {seconds:g} s")
            self._stage.pause(LOOK_SECONDS)

    def _show(self, event: Happening) -> None:
        what = event.get("to_state") or event.get("kind")
        self._line(f"   {what!s:<12} ", str(event.get("sentence")))

    def _note(self, text: str) -> None:
        self._line("   . ", text)

    def _tell(self, text: str) -> None:
        self._say("")
        self._line("", text)

    def _line(self, head: str, text: str) -> None:
        """One line with the time in front; where it is too long, it goes on below itself."""
        head = f"{elapsed(self._began, self._clock.monotonic()):5.1f} s  {head}"
        width = max(MIN_WIDTH, shutil.get_terminal_size((MAX_WIDTH, 24)).columns)
        self._say(
            textwrap.fill(
                text,
                width=min(width, MAX_WIDTH),
                initial_indent=head,
                subsequent_indent=" " * len(head),
                break_on_hyphens=False,
            )
        )


def _any(*accepts: Callable[[Happening], bool]) -> Callable[[Happening], bool]:
    return lambda event: any(accept(event) for accept in accepts)


def _leaves(state: str) -> Callable[[Happening], bool]:
    return lambda event: event.get("kind") == "transition" and event.get("from_state") == state


def _number(message: control.Message, key: str) -> float:
    value = message[key]
    if not isinstance(value, int | float):
        raise StoryFailedError(f"the demo server's {key} is no number: {value!r}")
    return float(value)
