"""What a rank may be called; the name becomes part of file names, logs and metrics."""

from __future__ import annotations

import re
from typing import Final

MAX_RANK_CHARACTERS: Final = 64

RANK_NAME: Final = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{MAX_RANK_CHARACTERS - 1}}}")
"""Letters, digits and, not in front, ``_.-``; to be matched as a whole."""


def clean_rank(rank: object) -> str:
    """The name nearest to `rank` that fits."""
    text = re.sub(r"[^A-Za-z0-9_.-]", "_", str(rank)) or "0"
    fit = text if text[0].isalnum() else f"r{text}"
    return fit[:MAX_RANK_CHARACTERS]
