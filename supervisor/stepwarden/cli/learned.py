"""What was learned of a worker's steps, as lines of text and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stepwarden.cli.texts import message_dict, plain, table
from stepwarden.core.sentences import rank_name
from stepwarden.naming import counted

_HEADER = ("TOKENS", "USUAL", "STEPS")


def learned_dicts(learned: Iterable[Any]) -> list[dict[str, Any]]:
    """One JSON object for each rank."""
    return [message_dict(one) for one in learned]


def learned_lines(learned: Iterable[Any], width: int) -> list[str]:
    """A table for each rank; nothing where nothing is known."""
    lines: list[str] = []
    for one in learned:
        rows = [(f"<= {row.num_tokens}", f"{row.seconds:.3g}s", str(row.steps)) for row in one.rows]
        slow = f", {one.slow:.2g} times slower of late" if one.slow > 1.05 else ""
        seen = counted(sum(row.steps for row in one.rows), "step")
        lines += ["", f"usual for {plain(rank_name(one.rank))}, from {seen}{slow}:"]
        if one.of:
            lines.append(f"  {plain(one.of)}")
        lines += [f"  {line}" for line in table(_HEADER, rows, width - 2)]
    return lines
