"""Leases, header, settings, facts, activity and messages: the parts of the agent one by one."""

from __future__ import annotations

import os
import time

import pytest
from stepwarden_agent import Agent, facts, link
from stepwarden_agent.beats import QUIET_SECONDS, Activity
from stepwarden_agent.header import Header
from stepwarden_agent.leases import MAX_HELD, Lease, LeaseBook, cut
from stepwarden_agent.message import About, BeatMaker
from stepwarden_agent.page_file import private_page
from stepwarden_agent.progress import Ring
from stepwarden_agent.settings import Settings, read_settings
from stepwarden_proto import channel, page
from stepwarden_proto.phases import PHASE_CODES, effective_phase, phase_name
from stepwarden_proto.ranks import RANK_NAME, clean_rank
from stepwarden_proto.v1 import agent_pb2

SETTINGS = Settings("w", "w-1", "unix:/nowhere", "token", "")


def test_no_environment_asks_for_nothing() -> None:
    assert read_settings({}) is None
    assert read_settings({page.ENV_WORKER: "w", page.ENV_TOKEN: "t"}) is None
    assert read_settings({page.ENV_PAGE_DIR: "/x"}) is not None


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("0", "0"),
        (3, "3"),
        ("tp/1", "tp_1"),
        ("../x", "r.._x"),
        ("-1", "r-1"),
        ("", "0"),
        ("é", "r_"),
        ("a" * 99, "a" * 64),
    ],
)
def test_a_rank_is_made_fit_for_a_file_name(given: object, kept: str) -> None:
    assert clean_rank(given) == kept
    assert RANK_NAME.fullmatch(kept), "the supervisor would refuse it"


def test_phases_agree_with_the_messages() -> None:
    for name, code in PHASE_CODES.items():
        assert agent_pb2.Phase.Value(f"PHASE_{name.upper()}") == code
        assert phase_name(code) == name
    assert phase_name(99) == phase_name(-1) == "unknown"


def test_reasons_agree_with_the_messages() -> None:
    for name in ("TICK", "ATTACH", "PHASE", "BUSY", "IDLE", "LEASE", "BYE"):
        assert agent_pb2.BeatReason.Value(f"BEAT_REASON_{name}") == getattr(link, name)


@pytest.mark.parametrize(
    ("declared", "step", "effective"),
    [
        ("loading", None, "loading"),
        ("warmup", "decode", "warmup"),
        ("draining", "decode", "draining"),
        ("idle", None, "idle"),
        ("decode", None, "idle"),
        ("idle", "prefill", "prefill"),
        ("prefill", "unknown", "prefill"),
        ("idle", "unknown", "unknown"),
        ("unknown", None, "idle"),
    ],
)
def test_effective_phase(declared: str, step: str | None, effective: str) -> None:
    assert effective_phase(declared, step) == effective


def test_the_lease_that_runs_out_last_is_shown() -> None:
    book = LeaseBook()
    long, short = Lease("long", 100.0, book.remove), Lease("short", 1.0, book.remove)
    book.add(long)
    book.add(short)
    assert book.shown() is long
    long.release()
    assert book.shown() is short
    short.release()
    short.release()
    assert book.shown() is None


def test_leases_that_are_never_given_back_do_not_pile_up() -> None:
    book = LeaseBook()
    leases = [Lease(str(n), 1000.0 - n, book.remove) for n in range(MAX_HELD + 9)]
    for lease in leases:
        book.add(lease)
    assert book.shown() is leases[0]
    for lease in leases[: MAX_HELD - 1]:
        lease.release()
    assert book.shown() is leases[MAX_HELD - 1]
    leases[MAX_HELD - 1].release()
    assert book.shown() is None


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan")])
def test_a_lease_without_a_length_extends_nothing(seconds: float) -> None:
    assert Lease("x", seconds, lambda _: None).seconds == 0.0


def test_an_endless_lease_fits_its_word() -> None:
    lease = Lease("x", float("inf"), lambda _: None)
    words = private_page("idle").words
    Header(words).set_lease(lease.begin_ns, lease.end_ns - lease.begin_ns)
    assert words[page.W_LEASE_BEGIN_NS] == lease.begin_ns
    assert words[page.W_LEASE_NS] > 0


def test_texts_are_cut_at_a_character() -> None:
    assert cut("é" * 40, 64) == "é" * 32
    assert cut("xé", 2) == "x"
    assert len(cut("\ud800" * 100, 64).encode()) <= 64


def test_queue_words_say_when_it_last_rose_from_zero() -> None:
    words = private_page("idle").words
    header = Header(words)
    assert words[page.W_UNFINISHED] == -1
    header.set_unfinished(2)
    since = words[page.W_UNFINISHED_NS]
    header.set_unfinished(5)
    assert (words[page.W_UNFINISHED], words[page.W_UNFINISHED_NS]) == (5, since)
    header.set_unfinished(0)
    assert (words[page.W_UNFINISHED], words[page.W_UNFINISHED_NS]) == (0, 0)
    header.set_unfinished(1)
    assert words[page.W_UNFINISHED_NS] >= since > 0


def test_facts_of_this_process() -> None:
    ticks = facts.start_ticks()
    with open(f"/proc/{os.getpid()}/stat", encoding="ascii", errors="replace") as file:
        assert ticks == int(file.read().rsplit(")", 1)[1].split()[19])
    assert (facts.rss_bytes() or 0) > 1_000_000
    assert facts.cpu_seconds() is not None
    assert facts.boot_id_words(facts.boot_id()) != (0, 0)
    assert facts.boot_id_words("no boot id") == facts.boot_id_words("") == (0, 0)


def test_activity_tells_each_change_once() -> None:
    words = private_page("idle").words
    steps = Ring(lambda: None)
    steps.attach(words)
    activity = Activity()
    assert activity.look(words, 0.0) is None
    steps.end(steps.begin(1, 1, "decode"))
    assert activity.look(words, 1.0) == link.BUSY
    steps.end(steps.begin(1, 1, "decode"))
    assert activity.look(words, 1.5) is None
    handle = steps.begin(1, 1, "decode")
    assert activity.look(words, 9.0) is None
    steps.end(handle)
    assert activity.look(words, 9.0 + QUIET_SECONDS / 2) is None
    assert activity.look(words, 9.0 + QUIET_SECONDS) == link.IDLE
    assert activity.look(words, 20.0) is None


def test_o_grpc_5_long_texts_are_cut_and_the_message_stays_small() -> None:
    words = private_page("idle").words
    lease = Lease("n" * 5_000_000, 10.0, lambda _: None)
    maker = BeatMaker(SETTINGS, "0", "0.1.page")
    beat = maker.make(agent_pb2, link.TICK, words, lease, "x" * 5 * 1024 * 1024)
    assert len(beat.detail) == channel.MAX_DETAIL_BYTES
    assert len(beat.lease.name) == channel.MAX_LEASE_NAME_BYTES
    assert beat.ByteSize() < channel.MAX_BEAT_BYTES


def test_what_runs_is_told_cut_to_its_length_and_absent_where_nobody_said() -> None:
    words = private_page("idle").words
    maker = BeatMaker(SETTINGS, "0", "")
    about = About("vllm", "0.33.0", "m" * 5_000, "bfloat16")
    beat = maker.make(agent_pb2, link.TICK, words, None, "", about)
    assert (beat.engine, beat.engine_version, beat.dtype) == ("vllm", "0.33.0", "bfloat16")
    assert len(beat.model) == channel.MAX_ABOUT_BYTES
    assert maker.make(agent_pb2, link.TICK, words, None, "").model == ""


def test_an_agent_takes_whatever_it_is_told_of_what_runs() -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError("no words")

    agent = Agent(SETTINGS, "0", "idle")
    agent.about(model=Odd(), dtype=None)  # type: ignore[arg-type]
    agent.about(engine="mine", engine_version=3)  # type: ignore[arg-type]


def test_o_psut_1_unreadable_facts_are_absent_not_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "cpu_seconds", lambda: None)
    monkeypatch.setattr(facts, "rss_bytes", lambda: None)
    maker = BeatMaker(SETTINGS, "0", "")
    beat = maker.make(agent_pb2, link.TICK, private_page("idle").words, None, "")
    assert not beat.HasField("cpu_seconds")
    assert not beat.HasField("rss_bytes")


def test_a_message_carries_the_oldest_open_step() -> None:
    words = private_page("idle").words
    steps = Ring(lambda: None)
    steps.attach(words)
    steps.end(steps.begin(9, 9, "prefill"))
    steps.begin(3, 30, "prefill")
    steps.begin(4, -5, "decode")
    maker = BeatMaker(SETTINGS, "1", "1.1.page")
    beat = maker.make(agent_pb2, link.BUSY, words, None, "")
    assert (beat.steps_begun, beat.steps_ended, beat.in_flight) == (3, 1, 2)
    assert (beat.oldest.number, beat.oldest.num_seqs, beat.oldest.num_tokens) == (2, 3, 30)
    assert beat.phase == agent_pb2.PHASE_PREFILL
    assert 0 < beat.oldest.begin_ns <= beat.clock.now_ns <= time.monotonic_ns()
    assert not beat.HasField("work")
    assert maker.make(agent_pb2, link.TICK, words, None, "").seq == beat.seq + 1
