"""The progress page: the byte layout, version 1, of the file that a rank writes and we only read.

The page is a regular file of `PAGE_BYTES` bytes on tmpfs, one per rank. Every field is one
aligned little-endian signed 64-bit word, so a single store is never seen half done. Times are
nanoseconds of the writer's CLOCK_MONOTONIC; 0 means "never". -1 in a count means "unknown".

Header words are independent of each other. A ring slot is written by the stepping thread in the
order FIRST, BEGIN_NS ... PHASE, LAST and is whole when FIRST == LAST; whichever thread finishes the
step writes END. A slot is open while END != FIRST. The end of a long step is stamped too: END_NS is
written before END, and holds for this step where it is not below BEGIN_NS. Slots are soon used
again, so the last few long steps are kept in the header: NUMBER is set to 0, then BEGIN_NS and
END_NS are written, then NUMBER. The reader accepts a word or a slot when two reads agree on it,
because stores are not ordered everywhere.
"""

from __future__ import annotations

from typing import Final

PAGE_BYTES: Final = 4096
WORD_BYTES: Final = 8
LAYOUT_VERSION: Final = 1
MAGIC: Final = int.from_bytes(b"STWPAGE1", "little")

# Header: index of the word; its byte offset is 8 x the index.
W_MAGIC: Final = 0  # MAGIC, stored last when the page is made
W_VERSION: Final = 1
W_SLOTS: Final = 2  # RING_SLOTS of the writer
W_PID: Final = 3  # in the writer's own pid namespace
W_START_TICKS: Final = 4  # field 22 of /proc/self/stat
W_BOOT_ID_HIGH: Final = 5  # the two halves of the boot id, big-endian, as signed words
W_BOOT_ID_LOW: Final = 6
W_TIME_NAMESPACE: Final = 7  # inode of /proc/self/ns/time, 0 where there is none
W_TICK: Final = 8  # rises by 1 with each turn of the beat thread
W_TICK_NS: Final = 9
W_PHASE: Final = 10  # PHASES.index(name)
W_PHASE_NS: Final = 11
W_LEASE_BEGIN_NS: Final = 12  # 0: no lease is held
W_LEASE_NS: Final = 13  # how long it asks for
W_UNFINISHED: Final = 14  # requests an engine core has not finished; -1: not an engine core
W_UNFINISHED_NS: Final = 15  # when that last rose from 0
W_LOOP_TURNS: Final = 16
W_LOOP_NS: Final = 17
W_OVERFLOWS: Final = 18  # begins that found their ring slot still open and were not recorded
W_CLOSED: Final = 19  # 1 after a clean end (bye)
W_LONG: Final = 20  # LONG_STEPS records of NUMBER, BEGIN_NS, END_NS: the last long steps
LONG_STEPS: Final = 4
LONG_WORDS: Final = 3
HEADER_WORDS: Final = 48

# Ring slot: word offset inside the slot. Step number n lives in slot n % RING_SLOTS.
RING_SLOTS: Final = 16
SLOT_WORDS: Final = 8
S_FIRST: Final = 0  # step number, counts from 1
S_BEGIN_NS: Final = 1
S_NUM_SEQS: Final = 2
S_NUM_TOKENS: Final = 3
S_PHASE: Final = 4
S_LAST: Final = 5
S_END_NS: Final = 6  # of the last step here that was long enough to have its end stamped
S_END: Final = 7  # number of the step that ended here

PHASES: Final = (
    "unknown",
    "loading",
    "compiling",
    "warmup",
    "prefill",
    "decode",
    "idle",
    "draining",
)
"""Phase names; the index is the code on the page and in `stepwarden.v1.Phase`."""

STARTUP_PHASES: Final = frozenset({"loading", "compiling", "warmup"})
"""A rank in one of these has not come up yet: its startup budget stands guard."""

# What the supervisor puts into the environment of a worker.
ENV_WORKER: Final = "STEPWARDEN_WORKER"
ENV_INCARNATION: Final = "STEPWARDEN_INCARNATION"
ENV_TARGET: Final = "STEPWARDEN_TARGET"  # gRPC target of the agent service, "unix:/..." as a rule
ENV_TOKEN: Final = "STEPWARDEN_TOKEN"
ENV_PAGE_DIR: Final = "STEPWARDEN_PAGE_DIR"  # directory of this incarnation's pages
ENV_MAIN: Final = "STEPWARDEN_MAIN_PID"  # main process of this incarnation, where we spawned it
TOKEN_METADATA_KEY: Final = "stepwarden-token"

# For a TCP target only, set by the operator: TLS is spoken where ENV_CA is set.
ENV_CA: Final = "STEPWARDEN_CA"  # PEM file of the authorities that the supervisor is believed by
ENV_CERT: Final = "STEPWARDEN_CERT"  # PEM file of our own certificate, where it wants one
ENV_KEY: Final = "STEPWARDEN_KEY"  # PEM file of its key; without it: in ENV_CERT too
ENV_SERVER_NAME: Final = "STEPWARDEN_SERVER_NAME"  # name in its certificate, if not the target's

ENV_INTERVAL: Final = "STEPWARDEN_INTERVAL"  # seconds between two beats, and between two ticks
ENV_ATTACH: Final = "STEPWARDEN_ATTACH"  # instead of all of these: directory with an INVITATION
INVITATION: Final = "life.json"  # worker, incarnation, target, socket, token, interval
ATTACHED_PAGES: Final = "pages"  # beside it: pages of all lives, for a process may see several

PAGE_SUFFIX: Final = ".page"


def page_name(rank: str, pid: int) -> str:
    """File name of the page that process `pid` keeps for `rank`."""
    return f"{rank}.{pid}{PAGE_SUFFIX}"
