"""The host's count of out-of-memory kills."""

from __future__ import annotations

from pathlib import Path

from stepwarden.edge.oom_count import RECENT_SECONDS, OomCount


def test_only_kills_of_the_last_seconds_count(tmp_path: Path) -> None:
    place = tmp_path / "vmstat"
    place.write_text("nr_free_pages 5\noom_kill 7\n")
    count = OomCount(place)
    assert count.recent(100.0) == 0
    place.write_text("oom_kill 9\n")
    assert count.recent(101.0) == 2
    assert count.recent(101.0 + RECENT_SECONDS) == 2
    assert count.recent(101.5 + RECENT_SECONDS) == 0
    place.write_text("oom_kill 10\n")
    assert count.recent(200.0) == 1


def test_what_cannot_be_read_is_no_kill(tmp_path: Path) -> None:
    assert OomCount(tmp_path / "none").recent(1.0) == 0
    (tmp_path / "odd").write_text("oom_kill x\n")
    assert OomCount(tmp_path / "odd").recent(1.0) == 0
    OomCount().look(1.0)
