"""What one written value means. One rule each, the same at every key, judged on the text itself.

- A number is decimal digits with at most one point: ``30``, ``2.5``. No sign, exponent, leading
  zero, underscore, comma, hexadecimal, no quotes.
- A duration is a number of seconds, or numbers with units from large to small: ``1h30m``, ``30s``,
  ``500ms`` (units d h m s ms; nothing between number and unit).
- A size is a number of bytes, or a number with one unit: ``100MiB``, ``1GB`` (KiB MiB GiB TiB count
  in 1024, KB MB GB TB in 1000).
- Yes and no are ``true`` and ``false``.
- Text that some YAML reader takes for a number, a date, a truth value or nothing needs quotes.
"""

from __future__ import annotations

import re

_NUMBER = r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?"
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_MAX_LENGTH = 32

DURATION_PATTERN = "^(?=.)" + "".join(f"(?:{_NUMBER}{unit})?" for unit in _UNITS) + "$"
"""A duration with units, as a regular expression that JSON Schema understands too."""
DURATION_FORMS = "30s, 500ms, 5m, 1h30m or plain seconds such as 30 or 2.5"

_SIZE_UNITS = {
    f"{letter}{tail}": base**power
    for tail, base in (("iB", 1024), ("B", 1000))
    for power, letter in enumerate("KMGT", 1)
}
SIZE_PATTERN = f"^{_NUMBER}(?:[KMGT]i?B)$"
"""A size with a unit, as a regular expression that JSON Schema understands too."""
SIZE_FORMS = "100MiB, 1.5GiB, 1GB or plain bytes such as 1048576"

_WHOLE = re.compile(r"0|[1-9][0-9]*", re.ASCII)
_PLAIN_NUMBER = re.compile(_NUMBER)
_SIZE = re.compile(f"({_NUMBER})([KMGT]i?B)")
_DURATION = re.compile("".join(f"(?:({_NUMBER}){unit})?" for unit in _UNITS))
_LOOKS_LIKE_NUMBER = re.compile(r"[-+]?(?:[0-9][0-9_]*\.?[0-9_]*|\.[0-9_]+)(?:e[-+]?[0-9]+)?", re.I)
_LOOKS_LIKE_OTHER = re.compile(
    r"~|=|<<|null|true|false|yes|no|on|off|y|n"  # nothing, truth values, special keys
    r"|[-+]?0[xob][0-9a-f_]+|[-+]?\.inf|\.nan"
    r"|[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?"  # base 60
    r"|[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:[Tt \t].*)?",  # dates
    re.I,
)


def parse_whole(text: str) -> int | None:
    """A whole number; None where the text is not one."""
    return int(text) if len(text) <= _MAX_LENGTH and _WHOLE.fullmatch(text) else None


def parse_number(text: str) -> float | None:
    """A number; None where the text is not one."""
    return float(text) if len(text) <= _MAX_LENGTH and _PLAIN_NUMBER.fullmatch(text) else None


def parse_duration(text: str) -> float | None:
    """Seconds; None where the text is not a duration."""
    seconds = parse_number(text)
    if seconds is not None or not text or len(text) > _MAX_LENGTH:
        return seconds
    found = _DURATION.fullmatch(text)
    if not found:
        return None
    parts = zip(found.groups(), _UNITS.values(), strict=True)
    return sum(float(number) * unit for number, unit in parts if number is not None)


def parse_size(text: str) -> int | None:
    """Bytes; None where the text is not a size."""
    plain = parse_whole(text)
    if plain is not None or len(text) > _MAX_LENGTH:
        return plain
    found = _SIZE.fullmatch(text)
    return round(float(found[1]) * _SIZE_UNITS[found[2]]) if found else None


def needs_quotes(text: str) -> bool:
    """True for plain text that some YAML reader takes for something else than text."""
    return (
        not text
        or _LOOKS_LIKE_NUMBER.fullmatch(text) is not None
        or _LOOKS_LIKE_OTHER.fullmatch(text) is not None
    )


def seconds_text(seconds: float) -> str:
    """A duration as people write it: ``30m``, ``2.5s``, ``200ms``."""
    for unit in ("d", "h", "m"):
        if seconds >= _UNITS[unit] and seconds % _UNITS[unit] == 0:
            return f"{seconds / _UNITS[unit]:g}{unit}"
    if 0 < seconds < 1:
        return f"{round(seconds * 1000, 6):g}ms"
    return f"{seconds:.12g}s"


def size_text(size: int) -> str:
    """A size as people write it: ``100MiB``, ``1500B`` as plain ``1500``."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        if size and size % _SIZE_UNITS[unit] == 0:
            return f"{size // _SIZE_UNITS[unit]}{unit}"
    return str(size)
