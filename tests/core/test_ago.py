from __future__ import annotations

import math

import pytest
from stepwarden.core.deadline import ago


@pytest.mark.parametrize(
    ("age", "instant"), [(0.0, 100.0), (30.5, 69.5), (-1.0, 100.0), (math.nan, 100.0)]
)
def test_an_age_never_reaches_ahead(age: float, instant: float) -> None:
    assert ago(age, 100.0) == instant
