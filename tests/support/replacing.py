"""The ways in which a file gets new content: editors, tools, the kubelet.

Each takes the path and what is to be there. `pause`: seconds between two looks of whoever watches.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

Change = Callable[[Path, bytes, float], Coroutine[Any, Any, None]]


async def write_in_place(path: Path, data: bytes, _pause: float) -> None:
    path.write_bytes(data)


async def write_in_place_slowly(path: Path, data: bytes, pause: float) -> None:
    """As a slow editor or a copy over a network does: at no time is it still for an interval."""
    size = 1 + len(data) // 9
    with path.open("wb", buffering=0) as file:
        for at in range(0, len(data), size):
            file.write(data[at : at + size])
            await asyncio.sleep(pause / 3)


async def rename_over(path: Path, data: bytes, _pause: float) -> None:
    new = path.with_name("new")
    new.write_bytes(data)
    new.rename(path)


async def rename_away_and_create(path: Path, data: bytes, _pause: float) -> None:
    path.rename(path.with_name("cfg.yaml~"))
    path.write_bytes(data)


async def delete_pause_create(path: Path, data: bytes, pause: float) -> None:
    path.unlink()
    await asyncio.sleep(10 * pause)
    path.write_bytes(data)


async def swap_the_link(path: Path, data: bytes, _pause: float) -> None:
    """As the kubelet updates a ConfigMap: one rename of `..data`, then the old directory goes."""
    mount, old = path.parent, (path.parent / "..data").resolve()
    fresh = mount / f"..{time.monotonic_ns()}"
    fresh.mkdir()
    (fresh / path.name).write_bytes(data)
    (mount / "..data_tmp").symlink_to(fresh.name)
    (mount / "..data_tmp").rename(mount / "..data")
    shutil.rmtree(old)


async def with_a_time_of_the_past(path: Path, data: bytes, _pause: float) -> None:
    path.write_bytes(data)
    os.utime(path, (1.0, 1.0))


async def with_the_same_time_and_size(path: Path, data: bytes, _pause: float) -> None:
    before = path.stat()
    path.write_bytes(data.ljust(before.st_size))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def put_behind_links(path: Path) -> None:
    """Make the file at `path` one of a ConfigMap: PATH -> ..data/NAME, ..data -> ..first."""
    folder = path.parent / "..first"
    folder.mkdir()
    path.rename(folder / path.name)
    (path.parent / "..data").symlink_to(folder.name)
    path.symlink_to(f"..data/{path.name}")


ALL: tuple[Change, ...] = (
    write_in_place,
    write_in_place_slowly,
    rename_over,
    rename_away_and_create,
    delete_pause_create,
    swap_the_link,
    with_a_time_of_the_past,
    with_the_same_time_and_size,
)
"""`swap_the_link` wants a file that `put_behind_links` has treated."""
