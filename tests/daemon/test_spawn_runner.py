"""Spawning a life, without a process."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest
from stepwarden.config import load
from stepwarden.daemon.life import Life
from stepwarden.daemon.spawn_runner import SpawnRunner
from stepwarden.edge.launcher import SpawnFailed
from stepwarden.edge.page_reader import PageReader


class Refusing:
    """Stands for a launcher that cannot start anything."""

    async def spawn(self, _spec: object, _limit: float, _chosen: object) -> None:
        raise SpawnFailed("no such program")


def test_a_start_that_failed_leaves_no_control_group(tmp_path: Path) -> None:
    """Nobody ran in it, so no burial comes and takes it away."""
    file = tmp_path / "f.yaml"
    file.write_text("workers: {w: {command: [a], agent: none}}\n")
    home = tmp_path / "workers"
    home.mkdir()
    nothing = cast(Any, None)
    runner = SpawnRunner(cast(Any, Refusing()), nothing, home, None, *[nothing] * 4)
    life = Life("w", 1, "w.1.abc", tmp_path, PageReader(tmp_path), spawned_at=1.0)
    runner.reserve(life)
    assert [entry.name for entry in home.iterdir()] == ["w.1.abc"]
    with pytest.raises(SpawnFailed):
        asyncio.run(runner.start(life, load(file).workers["w"], {}))
    runner.release(life)
    assert list(home.iterdir()) == []
