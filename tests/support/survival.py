"""What must hold after the daemon was killed and came back, and the mischief done before."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import grpc
from stepwarden_proto.v1 import supervisor_pb2

from support.troupe import Troupe
from support.truth import Seen, alive, lives_on, number, roll
from support.waiting import wait_for

RESTLESS = "crasher"
"""The one that ends by itself all the time."""

NOT_MISSED = ("child", "forked-twice")
"""Whose death nobody has to notice. That of a main process or of an agent ends the life."""

UP, DOWN = "up", "down"
SETTLE_SECONDS = 60.0
STILL_SECONDS = 4.0
"""Longer than any worker may be silent."""


@dataclass
class Book:
    """What is known of each worker between two rounds.

    `wish`: the operator's last word, None where nobody heard whether it was taken.
    """

    wish: dict[str, str | None]
    deaths: dict[str, int] = field(default_factory=dict)
    incarnation: dict[str, int] = field(default_factory=dict)
    main: dict[str, tuple[int, int]] = field(default_factory=dict)
    signals: dict[str, int] = field(default_factory=dict)


class Survival:
    """One story: rounds of mischief, each followed by the comparison with the truth."""

    def __init__(self, troupe: Troupe, seed: int) -> None:
        self.troupe = troupe
        self.random = random.Random(seed)
        self.book = Book(dict.fromkeys(troupe.workers, UP))
        self.touched: set[str] = set()
        self.done: list[str] = []
        self._doomed: set[str] = set()
        self._calls: list[tuple[str, str, Any]] = []

    # Mischief

    def disturb(self, most: int = 3) -> None:
        """Some commands and kills, so that something is under way when the daemon is hit."""
        for _ in range(self.random.randint(0, most)):
            act = self.random.choice(
                (self._command, self._command, self._kill_main, self._kill_any)
            )
            act()
            self._pause(0.1)

    def hit(self, longest: float = 0.4) -> None:
        """kill -9 for the daemon at a random instant."""
        self._pause(self.random.choice((longest, longest / 10)))
        self.troupe.kill_now()
        self.done.append("kill -9 daemon")
        self._hear()

    def kill_some(self) -> None:
        """SIGKILL for random processes of random trees."""
        for _ in range(self.random.randint(1, 3)):
            self._kill_any()

    def stand_still(self, seconds: float) -> None:
        """The daemon is stopped for so long, and goes on."""
        os.kill(self.troupe.pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(self.troupe.pid, signal.SIGCONT)
        self.done.append(f"daemon stood still for {seconds} s")

    def start(self, *, interrupted: bool = False) -> None:
        """Start the daemon; interrupted: another one is killed while it starts, before."""
        if interrupted:
            self.troupe.launch()
            self._pause(1.5)
            self.troupe.kill_now()
            self.done.append("kill -9 daemon at its start")
        self.troupe.start(limit=SETTLE_SECONDS)

    def _pause(self, longest: float) -> None:
        time.sleep(self.random.uniform(0.0, longest))

    def _command(self) -> None:
        worker = self.random.choice(sorted(self.troupe.workers))
        word = self.random.choice(("restart", "restart", "stop", "start"))
        if self.book.wish[worker] == DOWN and self.random.random() < 0.7:
            word = "start"
        self._calls.append((worker, word, self.troupe.tell(word, worker)))
        self._touch(worker, word)

    def _kill_main(self) -> None:
        self._kill([one for one in self._members() if one.identity in self.book.main.values()])

    def _kill_any(self) -> None:
        self._kill(self._members())

    def _members(self) -> list[Seen]:
        return [one for one in self.troupe.seen() if one.life]

    def _kill(self, among: Collection[Seen]) -> None:
        if not among:
            return
        victim = self.random.choice(sorted(among))
        with suppress(ProcessLookupError):
            os.kill(victim.pid, signal.SIGKILL)
        if self._role(victim) not in NOT_MISSED:
            self._doomed.add(victim.life)
        self._touch(victim.worker, f"SIGKILL {victim.pid} of")

    def _role(self, victim: Seen) -> str:
        signed = roll(self.troupe.workers[victim.worker])
        return next((one.role for one in signed if (one.pid, one.ticks) == victim.identity), "")

    def _touch(self, worker: str, how: str) -> None:
        self.touched.add(worker)
        self.done.append(f"{how} {worker}")

    def _hear(self) -> None:
        """Which commands were taken, as far as anybody was told."""
        for worker, word, call in self._calls:
            try:
                call.result()
                self.book.wish[worker] = DOWN if word == "stop" else UP
            except grpc.RpcError as error:
                refused = error.code() is grpc.StatusCode.FAILED_PRECONDITION
                if not refused:
                    self.book.wish[worker] = None
        self._calls.clear()

    # The truth

    def settle(self) -> None:
        """Wait until each worker is where the operator wants it, and one life of each is there."""
        self._hear()
        wait_for(self._settled, SETTLE_SECONDS, self._where)

    def _settled(self) -> bool:
        self._status = self.troupe.status()
        if not all(map(self._at_rest, self._status.values())):
            return False
        seen = self.troupe.seen()
        return not self._not_as_told(seen) and not self._doomed & {one.life for one in seen}

    def _at_rest(self, worker: supervisor_pb2.Worker) -> bool:
        wish = self.book.wish[worker.name]
        if worker.state == "STOPPED":
            return wish != UP
        if worker.name == RESTLESS:
            return wish != DOWN and worker.state in ("HEALTHY", "RESTARTING", "DEAD", "STARTING")
        return worker.state == "HEALTHY" and wish != DOWN

    def _not_as_told(self, seen: Collection[Seen]) -> list[str]:
        """What differs between the process table and what the daemon says."""
        wrong = []
        for name, told in self._status.items():
            lives = {one.life for one in seen if one.worker == name and one.life}
            if name == RESTLESS and told.state != "STOPPED":
                continue
            if told.state == "STOPPED":
                if lives:
                    wrong.append(f"{name} is STOPPED and {lives} live")
            elif {str(number(life)) for life in lives} != {told.incarnation}:
                wrong.append(f"{name}: {told.incarnation} by its word, {lives} in truth")
            elif told.pid not in {one.pid for one in seen if one.worker == name}:
                wrong.append(f"{name}: no pid {told.pid}")
        return wrong

    def check(self) -> None:
        """Compare everything with the truth; the book then holds what is so now."""
        seen = self.troupe.seen()
        self._check_lives(seen)
        self._check_helpers()
        self._check_rests(seen)
        for name in self.troupe.workers:
            self._check_worker(name, self._status[name])
        self.troupe.assert_bystanders_untouched()
        self._write_book(seen)

    def _check_lives(self, seen: Collection[Seen]) -> None:
        """Never two lives of one worker at one time."""
        now = alive(seen)
        for name in self.troupe.workers:
            lives = {one.life for one in now if one.worker == name and one.life}
            if len(lives) > 1:
                # Seen one after the other or together? Those that still live do so together.
                still = {one.life for one in alive(now) if one.worker == name and one.life}
                assert len(still) <= 1, f"{name} is doubled: {still}"

    def _check_helpers(self) -> None:
        """No launcher and no log process of an earlier daemon or life is left."""
        wait_for(lambda: not self._strays(), 20, lambda: f"left over: {self._strays()}")

    def _strays(self) -> list[Seen]:
        nobodys = [one for one in self.troupe.seen() if not one.life]
        logs = [one for one in nobodys if "log_program" in one.command]
        ours = {self.troupe.pid}
        strays = [one for one in nobodys if one not in logs and one.pid not in ours]
        strays = [one for one in strays if one.ppid not in ours]
        up = self._status["printer"].state != "STOPPED"
        return strays + (logs[1:] if up else logs)

    def _check_rests(self, seen: Collection[Seen]) -> None:
        """Nothing that belongs to one life alone is left of an older one."""
        living = {one.life for one in seen if one.life and one.worker != RESTLESS}

        def old() -> list[str]:
            return [str(p) for p in self.troupe.rests() if not _is_current(p.name, living)]

        wait_for(lambda: not old(), 20, lambda: f"left of former lives: {old()}")

    def _check_worker(self, name: str, told: supervisor_pb2.Worker) -> None:
        book, directory = self.book, self.troupe.workers[name]
        overlap = directory / "overlap"
        assert not overlap.exists(), overlap.read_text()
        lives = [number(one.life) for one in roll(directory) if one.role == "main"]
        assert lives == sorted(set(lives)), f"{name}: its lives began in the order {lives}"
        incarnation = int(told.incarnation)
        assert incarnation >= book.incarnation.get(name, 0), f"{name} forgot its incarnations"
        assert told.deaths >= book.deaths.get(name, 0), f"{name} forgot deaths: {told}"
        main = book.main.get(name)
        if name in self.touched or name == RESTLESS or main is None:
            return
        assert lives_on(*main), f"{name} ended although nobody touched it: {told}"
        assert told.pid == main[0], f"{name} runs as {told.pid}, not as {main[0]} any more"
        assert self._signals(name) == book.signals[name], f"{name} was signalled: {told}"

    def _write_book(self, seen: Collection[Seen]) -> None:
        by_pid = {one.pid: one for one in seen}
        for name, told in self._status.items():
            self.book.wish[name] = DOWN if told.state == "STOPPED" else UP
            self.book.deaths[name] = told.deaths
            self.book.incarnation[name] = int(told.incarnation)
            self.book.signals[name] = self._signals(name)
            self.book.main.pop(name, None)
            if told.pid in by_pid and by_pid[told.pid].worker == name:
                self.book.main[name] = by_pid[told.pid].identity
        self.touched.clear()

    def _signals(self, name: str) -> int:
        path = self.troupe.workers[name] / "signals"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def _where(self) -> str:
        told = [f"{w.name} {w.state} {w.incarnation} ({w.sentence})" for w in self._status.values()]
        return f"settled; {told}; {self._not_as_told(self.troupe.seen())}; wish {self.book.wish}"


def _is_current(name: str, living: Collection[str]) -> bool:
    return name.removesuffix(".json") in living or name.startswith(f"{RESTLESS}.")


def variations(survival: Survival) -> dict[str, Callable[[], None]]:
    """The kinds of round, by name."""
    troupe = survival.troupe

    def hit() -> None:
        survival.disturb()
        survival.hit()
        survival.start()

    def hit_at_start() -> None:
        survival.disturb()
        survival.hit()
        survival.start(interrupted=True)

    def trees_die_meanwhile() -> None:
        survival.disturb(1)
        survival.hit()
        survival.kill_some()
        survival.start(interrupted=survival.random.random() < 0.3)

    def trees_die() -> None:
        survival.kill_some()

    def still() -> None:
        survival.disturb(1)
        survival.stand_still(STILL_SECONDS)

    def full() -> None:
        troupe.fill()
        survival.disturb()
        survival.hit()
        survival.start(interrupted=survival.random.random() < 0.3)
        survival.settle()
        troupe.make_room()

    known = {
        "hit": hit,
        "hit at start": hit_at_start,
        "trees die while it is down": trees_die_meanwhile,
        "trees die": trees_die,
        "still": still,
    }
    return {**known, "full": full} if troupe.can_fill else known
