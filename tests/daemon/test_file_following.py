"""Whose settings the file is followed by where one configuration comes right after another."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest
from stepwarden.clock import SystemClock
from stepwarden.config import Config, load
from stepwarden.daemon.file_following import FileFollowing

TEXT = "supervisor: {reload: {watch: true, interval: 1s}}\nworkers: {w: {command: [sleep, '1']}}\n"


@pytest.fixture
def config(tmp_path: Path) -> Config:
    path = tmp_path / "stepwarden.yaml"
    path.write_text(TEXT)
    return load(path)


def watching(config: Config, interval: float, watch: bool = True) -> Config:
    settings = replace(config.supervisor, reload_watch=watch, reload_interval=interval)
    return replace(config, supervisor=settings)


async def _ignore(_trigger: str) -> None:
    """Nobody's reload."""


def looks() -> int:
    """How many periodic looks go on."""
    return sum("Periodic._go_on" in repr(task) for task in asyncio.all_tasks())


async def _overtaken(first: Config, *later: Config) -> tuple[FileFollowing, int]:
    following = FileFollowing(_ignore, SystemClock(), lambda _event: None)
    await following.follow(first)
    await asyncio.gather(*(following.follow(config) for config in later))
    return following, looks()


def test_the_last_of_two_configurations_says_whether_the_file_is_watched(config: Config) -> None:
    async def story() -> None:
        off = watching(config, 1.0, watch=False)
        following, count = await _overtaken(config, watching(config, 2.0), off)
        assert count == 0
        await following.close()

    asyncio.run(story())


def test_two_configurations_at_once_leave_one_watch(config: Config) -> None:
    async def story() -> None:
        later = watching(config, 2.0), watching(config, 3.0)
        following, count = await _overtaken(config, *later)
        assert count == 1
        await following.close()
        assert looks() == 0

    asyncio.run(story())


def test_nothing_is_followed_once_closed(config: Config) -> None:
    async def story() -> None:
        following = FileFollowing(_ignore, SystemClock(), lambda _event: None)
        await following.follow(config)
        await asyncio.gather(following.follow(watching(config, 2.0)), following.close())
        assert looks() == 0

    asyncio.run(story())
