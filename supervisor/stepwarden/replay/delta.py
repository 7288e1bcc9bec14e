"""What has changed between two values: of a worker at rest that is a few numbers a second.

nothing changed                    None
some fields of a dataclass         {"~": {field: change, ...}}
a long tuple                       {"kept": how many of the first, "more": [what follows]}
some entries of a mapping by text  {"~m": {key: change, ...}, "gone": [key, ...]}
anything else                      {"=": the encoded new value}
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from stepwarden.replay.codec import decode, encode, fields_of

Change = dict[str, Any] | None

SHORT = 4
"""A tuple of so many items is written whole."""


def change(old: object, new: object) -> Change:
    """What makes `new` of `old`; None where they are the same."""
    if new is old:
        return None
    if type(new) is type(old):
        if dataclasses.is_dataclass(new):
            return _of_fields(old, new)
        if isinstance(new, Mapping) and isinstance(old, Mapping) and _by_text(old, new):
            return _of_entries(old, new)
        if new == old:
            return None
        if isinstance(new, tuple) and isinstance(old, tuple) and len(new) > SHORT:
            return _of_tail(old, new)
    return {"=": encode(new)}


def changed(old: object, told: Change) -> Any:
    """`old` with this change made."""
    if told is None:
        return old
    if "=" in told:
        return decode(told["="])
    if "kept" in told:
        assert isinstance(old, tuple)
        return (*old[: told["kept"]], *map(decode, told["more"]))
    if "~" in told:
        fields = {name: changed(getattr(old, name), inner) for name, inner in told["~"].items()}
        return dataclasses.replace(old, **fields)  # type: ignore[type-var]
    assert isinstance(old, Mapping)
    kept = {key: item for key, item in old.items() if key not in told["gone"]}
    return kept | {key: changed(old.get(key), inner) for key, inner in told["~m"].items()}


def _of_fields(old: object, new: object) -> Change:
    inner: dict[str, Any] = {}
    kind: type[Any] = type(new)
    for name, _ in fields_of(kind):
        before, after = getattr(old, name), getattr(new, name)
        if before is not after:
            told = change(before, after)
            if told is not None:
                inner[name] = told
    return {"~": inner} if inner else None


def _of_tail(old: tuple[object, ...], new: tuple[object, ...]) -> Change:
    """Of a long row that grows at its end, what is new there."""
    same = next((n for n, (was, now) in enumerate(zip(old, new, strict=False)) if was != now), None)
    kept = min(len(old), len(new)) if same is None else same
    return {"kept": kept, "more": [encode(item) for item in new[kept:]]}


def _by_text(old: Mapping[Any, object], new: Mapping[Any, object]) -> bool:
    return all(isinstance(key, str) for key in (*old, *new))


def _of_entries(old: Mapping[str, object], new: Mapping[str, object]) -> Change:
    inner = {
        key: told for key, item in new.items() if (told := change(old.get(key), item)) is not None
    }
    inner |= {key: {"=": None} for key, item in new.items() if item is None and key not in old}
    gone = [key for key in old if key not in new]
    return {"~m": inner, "gone": gone} if inner or gone else None
