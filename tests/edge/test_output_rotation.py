"""Captured output that somebody else appends to is kept within its size."""

from __future__ import annotations

import asyncio
from pathlib import Path

from stepwarden.clock import SystemClock
from stepwarden.edge.log_program import CURRENT
from stepwarden.edge.output_rotation import OutputRotation


def look_until(folder: Path, done: str, keep: int = 2) -> list[str]:
    """Let it look until that name is there or something is told; what it told."""
    told: list[str] = []

    async def run() -> None:
        rotation = OutputRotation(folder, 10, keep, SystemClock(), told.append)
        rotation.start()
        async with asyncio.timeout(20):
            while not told and not (folder / done).exists():
                await asyncio.sleep(0.01)
        await rotation.close()

    asyncio.run(run())
    return told


def test_o_logs_1_a_file_that_has_its_size_is_copied_and_emptied(tmp_path: Path) -> None:
    (tmp_path / CURRENT).write_text("0123456789")
    with (tmp_path / CURRENT).open("a") as writer:
        assert look_until(tmp_path, f"{CURRENT}.1") == []
        writer.write("next")
    assert (tmp_path / f"{CURRENT}.1").read_text() == "0123456789"
    assert (tmp_path / CURRENT).read_text() == "next"


def test_what_is_no_plain_file_is_told_once(tmp_path: Path) -> None:
    (tmp_path / CURRENT).mkdir()
    (text,) = look_until(tmp_path, "never")
    assert text.startswith(f"the output in {tmp_path} cannot be kept within its size: ")
