"""The files that a service of the host is made of, as they are shipped."""

from __future__ import annotations

from pathlib import Path

import stepwarden
from stepwarden.errors import StepwardenError

_PACKAGE = Path(stepwarden.__file__).resolve().parent
_IN_WHEEL = _PACKAGE / "service_files"
_IN_SOURCES = _PACKAGE.parents[1] / "systemd"


def folder() -> Path:
    """Where they lie: in the installed package, or in the source tree that it runs from."""
    return _IN_WHEEL if _IN_WHEEL.is_dir() else _IN_SOURCES


def text_of(name: str) -> str:
    """The text of one of them. Raises StepwardenError where the installation is not whole."""
    path = folder() / name
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise StepwardenError(f"cannot read the shipped file {path}: {error.strerror}") from None
