"""Configuration texts as they load, and what is wrong with them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from stepwarden.config import Config, ConfigError
from stepwarden.config.loader import load_text


def loaded(text: str, environment: Mapping[str, str] | None = None) -> Config:
    """What a text says."""
    return load_text(text, Path("c.yaml"), environment or {})


def errors(text: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every error of a text that cannot be used, by path, as the operator reads it."""
    with pytest.raises(ConfigError) as caught:
        loaded(text, environment)
    return {p.path: str(p) for p in caught.value.problems if p.severity == "error"}


def warnings(text: str, environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Every warning of a text that can be used, by path."""
    return {p.path: p.message for p in loaded(text, environment).warnings}
