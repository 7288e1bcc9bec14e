"""Values of any kind as what every log format can write: a record never raises into its caller."""

from __future__ import annotations

import math
from collections.abc import Callable

Plain = str | int | float | bool | None | list["Plain"] | dict[str, "Plain"]

MAX_DEPTH = 6
MAX_ITEMS = 100
_MAX_INT = 2**64  # larger ones are no numbers to many readers of JSON

Clean = Callable[[str], str]


def plain(value: object, clean: Clean = str, depth: int = MAX_DEPTH) -> Plain:
    """`value` as text, numbers, lists and mappings with text keys; never raises.

    Everything else becomes text, also infinities, huge integers, what lies deeper than `depth` and
    objects that cannot be shown. Only the first MAX_ITEMS of a collection are kept. `clean` is
    applied to each text: `output_tail.visible` for a terminal; JSON escapes by itself.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int | float) and _is_ordinary(value):
        return value
    if depth > 0 and isinstance(value, dict):
        pairs = list(value.items())[:MAX_ITEMS]
        return {clean(_text(key)): plain(item, clean, depth - 1) for key, item in pairs}
    if depth > 0 and isinstance(value, list | tuple | set | frozenset):
        return [plain(item, clean, depth - 1) for item in list(value)[:MAX_ITEMS]]
    return clean(_text(value))


def _is_ordinary(number: int | float) -> bool:
    return math.isfinite(number) if isinstance(number, float) else abs(number) < _MAX_INT


def _text(value: object) -> str:
    if isinstance(value, bytes | bytearray):
        return value.decode("utf-8", "replace")
    if isinstance(value, dict | list | tuple | set | frozenset):
        return f"<{type(value).__name__} of {len(value)}>"
    try:
        return str(value)
    except Exception as error:  # somebody else's code; whatever it does is no reason to stop
        return f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>"
