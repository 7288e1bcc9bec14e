"""Pages made from real ones by a hundred thousand accidents: none raises, none grows anything."""

from __future__ import annotations

import os
import time
from pathlib import Path
from random import Random

import pytest
from stepwarden_agent.page_file import fill_header
from stepwarden_agent.progress import Ring
from stepwarden_proto import page
from support.fuzz import FIXED_SEED, IN_SOAK, IN_TEST, Hunt, first_seed, mutated
from support.fuzzed_worker import FuzzedWorker, fuzzed_worker

WORDS = page.PAGE_BYTES // 8
HEADER = 4  # words that make a file a page at all; most inputs leave them alone
LIMITS = (0, 1, -1, 2**31, 2**62, 2**63 - 1, -(2**63), 1_000_000_000)
SCRAPS = [limit.to_bytes(8, "little", signed=True) for limit in LIMITS]


def real_page(rng: Random) -> bytes:
    """What an agent could have left: steps over and open, a lease, work."""
    raw = bytearray(page.PAGE_BYTES)
    words = memoryview(raw).cast("q")
    fill_header(words, rng.choice(page.PHASES))
    ring = Ring(lambda: None)
    ring.attach(words)
    handles = [ring.begin(rng.randrange(-1, 300), rng.randrange(9000), "decode") for _ in range(3)]
    for handle in handles[: rng.randrange(4)]:
        ring.end(handle)
    for _ in range(rng.choice((0, 1, 20))):
        ring.end(ring.begin(rng.randrange(300), 1, "prefill"))
    if rng.random() < 0.5:
        words[page.W_LEASE_NS] = rng.randrange(10**12)
        words[page.W_LEASE_BEGIN_NS] = time.monotonic_ns()
    words[page.W_UNFINISHED] = rng.choice((-1, 0, 7))
    words[page.W_LOOP_NS] = words[page.W_UNFINISHED_NS] = time.monotonic_ns()
    words[page.W_TICK] = rng.randrange(1000)
    return bytes(raw)


def spoilt(rng: Random) -> bytes:
    """A page with some of its words, or its bytes, changed."""
    raw = bytearray(rng.choice(SAMPLES))
    if rng.random() < 0.1:
        return mutated(rng, [bytes(raw)], SCRAPS)
    words = memoryview(raw).cast("q")
    for _ in range(rng.choice((1, 2, 5, 50))):
        near = words[rng.randrange(WORDS)]
        value = rng.choice((*LIMITS, rng.getrandbits(64) - 2**63, near, max(near - 1, -(2**63))))
        words[rng.randrange(0 if rng.random() < 0.02 else HEADER, WORDS)] = value
    return bytes(raw)


SAMPLES = [real_page(Random(number)) for number in range(30)]


class Pages:
    """The files of a worker's directory, and what the daemon makes of them."""

    def __init__(self, directory: Path, worker: FuzzedWorker) -> None:
        self.worker = worker
        self._paths = [directory / page.page_name(rank, os.getpid()) for rank in ("0", "a.b")]
        self._turn = 0
        self.seen = 0

    def try_one(self, data: bytes) -> None:
        self._turn += 1
        path = self._paths[self._turn % 7 == 0]
        if self._turn % 50 == 0:
            path.unlink(missing_ok=True)  # a fresh file, which is opened and checked anew
        # In place, as a writer stores: the reader keeps it open, and may find it cut short.
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        os.pwrite(descriptor, data, 0)
        os.ftruncate(descriptor, len(data))
        os.close(descriptor)
        evidence = self.worker.turn()
        self.seen += any(rank.page_readable for rank in evidence.ranks.values())


def hunt(count: int, seed: int, directory: Path) -> Hunt:
    found = Hunt(count, seed)
    with fuzzed_worker(directory) as worker:
        pages = Pages(directory, worker)
        found.run(spoilt, pages.try_one)
        assert pages.seen > count / 2
        assert worker.ended > 0
        assert set(worker.life.ranks) <= {"0", "a.b"}
    return found


def test_a_few_spoilt_pages(tmp_path: Path) -> None:
    hunt(IN_TEST, FIXED_SEED, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_hundred_thousand_spoilt_pages(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = first_seed()
    with capsys.disabled():
        print(f"\n{IN_SOAK} pages: STEPWARDEN_SEED={seed} makes them again")
    hunt(IN_SOAK, seed, tmp_path).assert_steady()
