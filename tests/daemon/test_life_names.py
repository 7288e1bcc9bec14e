"""The incarnation that a life's name holds."""

from __future__ import annotations

import pytest
from stepwarden.daemon.life import new_name, number_in


@pytest.mark.parametrize("worker", ["w", "gemma-cpu", "a.b", "a.5.b", "7"])
def test_a_name_tells_its_incarnation(worker: str) -> None:
    assert number_in(new_name(worker, 12)) == 12


@pytest.mark.parametrize("name", ["", "w", "w.1", "w.x.abcd", "..", "w.-1.ab"])
def test_other_names_tell_none(name: str) -> None:
    assert number_in(name) == 0
