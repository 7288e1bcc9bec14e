"""From real pages to what is usual: which steps teach, what is kept, and what is dropped."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest
from stepwarden.config import load
from stepwarden.core.deadline import Deadline
from stepwarden.core.event import Event, Kind
from stepwarden.core.evidence import ProcessId
from stepwarden.core.heartbeat import BeatFacts, accept
from stepwarden.core.lifecycle import State
from stepwarden.core.subject import Subject
from stepwarden.core.usual import Usual
from stepwarden.core.worker import Outcome, WorkerState
from stepwarden.daemon import gather
from stepwarden.daemon.learning import KEEP_SECONDS, Learning
from stepwarden.daemon.lesson import Lesson
from stepwarden.daemon.life import Life
from stepwarden.daemon.subjects import cpus_of, model_in
from stepwarden.daemon.unit import Unit
from stepwarden.edge.learned_text import from_text, subject_of_key, to_text
from stepwarden.edge.page_reader import PageReader
from stepwarden.edge.step_samples import StepSample
from stepwarden_agent.page_file import create_page
from stepwarden_agent.progress import Ring

FILE = """
workers:
  a: {command: [vllm, serve, gemma, --dtype, bf16], backend: cpu, engine: vllm}
"""
SECOND = 1_000_000_000


class Shelf:
    """Tables as the store keeps them."""

    def __init__(self) -> None:
        self.bodies: dict[str, str] = {}
        self.forgotten: list[str] = []

    def learned(self, key: str) -> str | None:
        return self.bodies.get(key)

    def note_learned(self, key: str, worker: str, body: str) -> None:
        assert worker == "a"
        self.bodies[key] = body

    def forget_learned(self, key: str) -> None:
        self.forgotten.append(key)
        self.bodies.pop(key, None)


class Stage:
    """A rank with a real page whose clock is moved by hand, and who learns from it."""

    def __init__(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        file = tmp_path / "f.yaml"
        file.write_text(FILE)
        self.now = 1000.0
        self._ns = 5 * SECOND
        monkeypatch.setattr("stepwarden_agent.progress.time.monotonic_ns", lambda: self._ns)
        self.unit = Unit(load(file).workers["a"], WorkerState("a", State.HEALTHY, incarnation=1))
        self.shelf = Shelf()
        self.told: list[Event] = []
        self.learning = Learning(self.shelf, self.told.append)
        self._pages = tmp_path / "pages"
        self._pages.mkdir()
        self.begin_life()

    def begin_life(self, adopted: bool = False) -> None:
        for old in self._pages.iterdir():
            old.unlink()
        pages = PageReader(self._pages)
        self.life = Life("a", 1, "a.1.x", self._pages, pages, spawned_at=self.now)
        self.life.adopted = adopted
        self.unit.life = self.life
        page = create_page(str(self._pages), "0", "idle")
        self.ring = Ring(lambda: None)
        self.ring.attach(page.words)
        self._page = page
        self._seq = 0

    def beat(self, start_ticks: int = 5, **facts: str) -> None:
        gather.take_beat(
            self.life,
            BeatFacts("0", self._next(), os.getpid(), start_ticks, self.now, False, **facts),  # type: ignore[arg-type]
            self.now,
        )

    def _next(self) -> int:
        self._seq += 1
        return self._seq

    def step(self, seconds: float, tokens: int = 8) -> None:
        """One whole step, long enough to be stamped where it is above the limit."""
        handle = self.ring.begin(4, tokens, "decode")
        self._ns += int(seconds * SECOND)
        self.ring.watch()
        self.ring.end(handle)
        self._ns += SECOND // 100

    def look(self, seconds: float = 1.0) -> None:
        self.now += seconds
        gather.read_pages(self.life, lambda _process: True, self.now)
        self.learning.look(self.unit, self.life, self.now)

    def steps(self, count: int, seconds: float, tokens: int = 8) -> None:
        for _ in range(count):
            self.step(seconds, tokens)
            self.look()

    @property
    def usual(self) -> Usual:
        known = self.life.ranks["0"].usual
        assert known is not None
        return known

    def usual_seconds(self, tokens: int = 8) -> float:
        guess = self.usual.guess(tokens)
        assert guess is not None
        return guess.seconds


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(tmp_path, monkeypatch)


def test_steps_of_a_page_teach_and_the_first_of_a_life_does_not(stage: Stage) -> None:
    stage.beat()
    stage.steps(1, 50.0)
    assert stage.usual.guess(8) is None
    stage.steps(4, 2.0)
    assert stage.usual_seconds() == pytest.approx(2.0)
    guess = stage.usual.guess(8)
    assert guess is not None
    assert guess.steps == 4
    assert stage.usual.lived == 5


def test_nothing_is_learned_before_anybody_said_what_runs_there(stage: Stage) -> None:
    stage.steps(3, 2.0)
    assert stage.life.ranks["0"].usual is None
    stage.beat()
    stage.steps(3, 2.0)
    assert stage.usual_seconds() == pytest.approx(2.0)


def test_off_learns_nothing_and_keeps_what_is_known(stage: Stage) -> None:
    stage.beat()
    stage.steps(5, 2.0)
    config = stage.unit.config
    stage.unit.config = replace(config, policy=replace(config.policy, learn="off"))
    stage.look()
    assert stage.life.ranks["0"].usual is None
    assert len(stage.shelf.bodies) == 1
    stage.unit.config = config
    stage.steps(1, 2.0)
    assert stage.usual_seconds() == pytest.approx(2.0)


def test_a_table_is_kept_for_what_runs_where(stage: Stage) -> None:
    stage.beat(engine_version="0.33", model="google/gemma")
    stage.steps(3, 2.0)
    assert stage.shelf.bodies == {}
    stage.look(KEEP_SECONDS)
    (key,) = stage.shelf.bodies
    told = subject_of_key(key)
    assert told is not None
    assert replace(told, cpus="") == Subject(
        "a", "0", "google/gemma", "vllm", "0.33", "bf16", "cpu"
    )
    assert len(stage.shelf.bodies[key]) < 300


def test_the_end_of_a_life_and_of_the_daemon_keep_what_is_new(stage: Stage) -> None:
    stage.beat()
    stage.steps(3, 2.0)
    stage.unit.state = replace(stage.unit.state, lifecycle=State.DEAD)
    stage.learning.follow(stage.unit, Outcome(stage.unit.state), stage.now)
    (body,) = stage.shelf.bodies.values()
    stage.unit.state = replace(stage.unit.state, lifecycle=State.HEALTHY)
    stage.steps(3, 3.0)
    stage.learning.close([stage.unit])
    assert stage.shelf.bodies != {"": body}
    (kept,) = stage.shelf.bodies.values()
    assert kept != body


def kept_by_an_earlier_life(stage: Stage, seconds: float, slow: float = 2.0) -> None:
    stage.beat()
    stage.steps(12, seconds)
    stage.learning.close([stage.unit])
    ((key, body),) = stage.shelf.bodies.items()
    usual = from_text(body)
    assert usual is not None
    stage.shelf.bodies[key] = to_text(replace(usual, slow=slow))


@pytest.mark.parametrize(("adopted", "slow"), [(False, 1.0), (True, 2.0)])
def test_the_next_life_goes_on_with_it_and_an_adopted_one_with_its_mood_too(
    stage: Stage, adopted: bool, slow: float
) -> None:
    kept_by_an_earlier_life(stage, 2.0)
    stage.begin_life(adopted)
    stage.beat()
    stage.steps(1, 2.0)
    assert stage.usual_seconds() == pytest.approx(2.0)
    assert stage.usual.slow == pytest.approx(slow)
    guess = stage.usual.guess(8)
    assert guess is not None
    assert guess.steps == 11


@pytest.mark.parametrize(("seconds", "word"), [(9.0, "slower"), (0.4, "faster")])
def test_a_table_that_does_not_fit_the_first_steps_is_dropped(
    stage: Stage, seconds: float, word: str
) -> None:
    kept_by_an_earlier_life(stage, 2.0 if word == "slower" else 5.0)
    stage.begin_life()
    stage.beat()
    stage.steps(4, seconds)
    (event,) = [event for event in stage.told if event.kind is Kind.LEARNED]
    assert event.rank == "0"
    assert word in event.sentence
    assert "that is dropped" in event.sentence
    assert len(stage.shelf.forgotten) == 1
    assert stage.usual_seconds() == pytest.approx(seconds)
    stage.steps(6, seconds)
    assert len(stage.told) == 1


def test_a_table_that_is_off_by_less_is_kept_and_one_odd_step_drops_nothing(stage: Stage) -> None:
    kept_by_an_earlier_life(stage, 2.0)
    stage.begin_life()
    stage.beat()
    for seconds in (2.0, 30.0, 3.0, 2.0, 2.0):
        stage.steps(1, seconds)
    assert stage.told == []
    assert stage.shelf.forgotten == []


def test_another_process_of_the_rank_begins_a_lesson_of_its_own(stage: Stage) -> None:
    stage.beat()
    stage.steps(5, 2.0)
    stage.beat(start_ticks=9)
    stage.look()
    lesson = stage.life.ranks["0"].lesson
    assert lesson is not None
    assert lesson.process.start_ticks == 9
    assert stage.usual_seconds() == pytest.approx(2.0)


def test_a_fault_in_it_is_told_once_and_the_yaml_holds(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.beat()
    stage.steps(5, 2.0)

    def fail(*_: object) -> None:
        raise ZeroDivisionError("rows")

    monkeypatch.setattr(Lesson, "take", fail)
    stage.steps(3, 2.0)
    assert [event.kind for event in stage.told] == [Kind.DAEMON]
    assert stage.life.ranks["0"].usual is None


def test_of_short_steps_the_shortest_interval_of_each_row_counts(stage: Stage) -> None:
    beats, _ = accept(None, BeatFacts("0", 1, 7, 7, 1.0, False), 1.0)
    lesson = Lesson(beats.process, Subject("a", "0"), Usual(), None, Deadline.never())
    short = [StepSample(n, 0.1 * (n % 3 + 1), num_tokens=4) for n in range(8, 13)]
    lesson.take(([StepSample(13, 0.9, num_tokens=64)], short), stage.unit.policy)
    small, large = lesson.usual.guess(4), lesson.usual.guess(64)
    assert small is not None
    assert large is not None
    assert (small.steps, large.steps) == (1, 1)
    assert small.seconds == pytest.approx(0.1)
    assert large.seconds == pytest.approx(0.9)
    assert lesson.usual.lived == 13


@pytest.mark.parametrize(
    ("argv", "model"),
    [
        (("vllm", "serve", "google/gemma", "--port", "1"), "google/gemma"),
        (("python", "-m", "sglang.launch_server", "--model-path=qwen"), "qwen"),
        (("llama-server", "-m", "/models/x.gguf"), "/models/x.gguf"),
        ((), ""),
    ],
)
def test_the_model_is_what_the_command_names(argv: tuple[str, ...], model: str) -> None:
    assert model_in(argv) == model


def test_a_command_that_names_no_model_is_known_by_itself() -> None:
    one, other = model_in(("serve-it", "--x", "1")), model_in(("serve-it", "--x", "2"))
    assert one.startswith("command ")
    assert one != other
    assert model_in(("vllm", "serve", "--port", "1")).startswith("command ")


def test_the_cpus_of_a_process_are_asked_of_the_kernel() -> None:
    assert cpus_of(ProcessId(os.getpid(), 1)) != ""
    assert cpus_of(ProcessId(2**22 + 7, 1)) == ""
