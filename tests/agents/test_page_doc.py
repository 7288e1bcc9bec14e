"""docs/page.md says what page.py says: a writer in C needs nothing else."""

from __future__ import annotations

import re
from pathlib import Path

from stepwarden_proto import page

DOC = (Path(__file__).resolve().parents[2] / "docs" / "page.md").read_text("utf-8")
ROW = re.compile(r"^\| (\d+) \| (\d+) \| ([A-Z_]+) \|", re.MULTILINE)


def table(title: str) -> dict[str, int]:
    """Word index by name in the table below `title`; the byte column must agree."""
    section = DOC.split(f"### {title}\n")[1].split("\n### ")[0]
    rows = [(int(byte), int(word), name) for byte, word, name in ROW.findall(section)]
    assert all(byte == word * page.WORD_BYTES for byte, word, _ in rows)
    return {name: word for _, word, name in rows}


def constants(prefix: str) -> dict[str, int]:
    return {
        name.removeprefix(prefix): value
        for name, value in vars(page).items()
        if name.startswith(prefix) and isinstance(value, int)
    }


def test_the_byte_tables_are_those_of_the_layout() -> None:
    assert table("Header") == constants("W_")
    assert table("Ring") == constants("S_")


def test_the_numbers_in_the_text_are_those_of_the_layout() -> None:
    start, size = page.HEADER_WORDS * page.WORD_BYTES, page.SLOT_WORDS * page.WORD_BYTES
    assert f"Slot i begins at byte {start} + {size} i, i = 0 to {page.RING_SLOTS - 1}." in DOC
    assert f"slot n mod {page.RING_SLOTS}" in DOC
    assert f"exactly {page.PAGE_BYTES} bytes" in DOC
    assert f"layout version {page.LAYOUT_VERSION}" in DOC
    assert "`" + page.MAGIC.to_bytes(8, "little").decode() + "`" in DOC
    last = page.W_LONG + page.LONG_STEPS * page.LONG_WORDS - 1
    assert f"Words {last + 1} to {page.HEADER_WORDS - 1} are reserved" in DOC


def test_the_phases_are_those_of_the_layout() -> None:
    rows = re.findall(r"^\| (\d) \| ([a-z]+) \|$", DOC, re.MULTILINE)
    assert tuple(name for _, name in sorted(rows)) == page.PHASES
