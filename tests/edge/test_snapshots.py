"""Whom one snapshot serves, and whom it must not."""

from __future__ import annotations

import asyncio
import errno
import signal

import pytest
from stepwarden.clock import SystemClock
from stepwarden.core.evidence import ProcessId
from stepwarden.edge.burial import bury
from stepwarden.edge.family import Family
from stepwarden.edge.launcher import LaunchSpec
from stepwarden.edge.process_probe import alive
from stepwarden.edge.process_table import ProcessTable
from stepwarden.edge.snapshots import Snapshots
from support.clocks import FakeClock
from support.process_world import BASE_ENV, run, world


def test_a_snapshot_is_shared_for_a_moment_and_never_with_what_came_after_it() -> None:
    clock = FakeClock()
    snapshots = Snapshots(clock, shared=0.01)
    first = snapshots.table(clock.now)
    clock.advance(0.009)
    assert snapshots.table(clock.now - 0.009) is first
    second = snapshots.table(clock.now)  # an exit that was seen just now
    assert second is not first
    clock.advance(0.011)
    assert snapshots.table(0.0) is not second


def test_a_pass_that_fails_leaves_no_snapshot_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> ProcessTable:
        raise OSError(errno.EMFILE, "Too many open files")

    clock = FakeClock()
    snapshots = Snapshots(clock)
    first = snapshots.table(0.0)
    with monkeypatch.context() as patch:
        patch.setattr(ProcessTable, "scan", fail)
        for _ in range(2):
            with pytest.raises(OSError, match="Too many"):
                snapshots.table(clock.now + 1.0)
    assert snapshots.table(0.0) is not first


def test_burials_that_run_together_share_their_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        async with world() as here:
            clock = SystemClock()
            spec = LaunchSpec(["/bin/sleep", "600"], BASE_ENV)
            crowd = [await here.start(spec) for _ in range(40)]
            passes = 0
            scan = ProcessTable.scan

            def counted() -> ProcessTable:
                nonlocal passes
                passes += 1
                return scan()

            monkeypatch.setattr(ProcessTable, "scan", counted)
            snapshots = Snapshots(clock)
            ordered_at = clock.monotonic()

            async def end(process: ProcessId) -> None:
                family = Family(process, "w-1", barred=lambda: [p.pid for p in crowd])
                left = await bury(
                    family,
                    60.0,
                    10.0,
                    clock,
                    lambda _: None,
                    snapshots=snapshots,
                    ordered_at=ordered_at,
                )
                assert left == frozenset()
                assert not alive(process)

            await asyncio.gather(*map(end, crowd))
            assert passes < 2 * len(crowd)  # of four looks each
            assert (await here.exit_of(crowd[0])).signal == signal.SIGTERM

    run(story())
