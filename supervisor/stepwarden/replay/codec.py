"""The core's data as JSON and back, each number to the last bit.

    None, bool, int, float, str   as they are
    enum member                   ["E", class, value]
    tuple, frozenset              ["T", item, ...]   ["S", item, ...]
    mapping                       ["M", [key, value], ...]
    dataclass                     {"is": class, field: value, ...}, without what has its default

A recording of an earlier version may lack fields; they have their defaults. One of a later version
may have more; it is refused rather than read in part.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import stepwarden.core
from stepwarden.errors import ExitCode, StepwardenError

IS = "is"


class UnreadableError(StepwardenError):
    """A recording says something that this version does not know."""

    exit_code = ExitCode.USAGE


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """What the system says of a file that cannot be read is `UnreadableError` too."""
    try:
        yield
    except OSError as error:
        raise UnreadableError(f"{error.filename or path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnreadableError(f"{path}: it is no UTF-8 text") from None


@cache
def known_classes() -> Mapping[str, type[Any]]:
    """The dataclasses and enums of the core, by name. Names are unique there."""
    return {kind.__name__: kind for kind in data_classes()}


def data_classes() -> Iterator[type[Any]]:
    """Every dataclass and enum of the core, each once."""
    for module in pkgutil.iter_modules(stepwarden.core.__path__):
        full = f"stepwarden.core.{module.name}"
        for kind in vars(importlib.import_module(full)).values():
            if inspect.isclass(kind) and kind.__module__ == full and _is_data(kind):
                yield kind


def _is_data(kind: type[Any]) -> bool:
    return dataclasses.is_dataclass(kind) or issubclass(kind, Enum)


Fields = tuple[tuple[str, object], ...]
_FIELDS: dict[type[Any], Fields] = {}


def fields_of(kind: type[Any]) -> Fields:
    """The names of a dataclass' fields, each with its default; MISSING where there is none."""
    if kind not in _FIELDS:
        fields = dataclasses.fields(kind)
        _FIELDS[kind] = tuple((field.name, _default(field)) for field in fields)
    return _FIELDS[kind]


def _default(field: dataclasses.Field[Any]) -> object:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def encode(value: object) -> Any:
    """As JSON can have it; TypeError for what the core has no business with."""
    if isinstance(value, Enum):
        return ["E", type(value).__name__, value.value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tuple):
        return ["T", *map(encode, value)]
    if isinstance(value, frozenset):
        return ["S", *map(encode, sorted(value))]
    if isinstance(value, Mapping):
        return ["M", *([encode(key), encode(item)] for key, item in value.items())]
    if dataclasses.is_dataclass(value):
        return _encode_fields(value)
    raise TypeError(f"a {type(value).__name__} cannot be recorded")


def _encode_fields(value: object) -> dict[str, Any]:
    kind: type[Any] = type(value)
    made: dict[str, Any] = {IS: kind.__name__}
    for name, default in fields_of(kind):
        item = getattr(value, name)
        if item is not default and (item != default or type(item) is not type(default)):
            made[name] = encode(item)
    return made


def decode(told: Any) -> Any:
    """The value that `encode` was given; `UnreadableError` where it is of an unknown kind."""
    if isinstance(told, dict):
        return _dataclass(told)
    if not isinstance(told, list):
        return told
    if not told:
        raise UnreadableError("an empty list is no value of a recording")
    tag, items = told[0], told[1:]
    if tag == "T":
        return tuple(map(decode, items))
    if tag == "S":
        return frozenset(map(decode, items))
    if tag == "M":
        return {decode(key): decode(item) for key, item in items}
    if tag == "E":
        return _member(*items)
    raise UnreadableError(f"the recording has a value of the unknown kind {tag!r}")


def _dataclass(told: dict[str, Any]) -> Any:
    kind = _class(told.get(IS))
    given = {name: decode(item) for name, item in told.items() if name != IS}
    foreign = given.keys() - {name for name, _ in fields_of(kind)}
    if foreign:
        raise UnreadableError(
            f"the recording knows of {', '.join(sorted(foreign))} of a {kind.__name__}; it was made"
            " by a later version"
        )
    return kind(**given)


def _member(name: object, value: object) -> Any:
    try:
        return _class(name)(value)
    except ValueError:
        raise UnreadableError(f"the recording has the unknown {name} {value!r}") from None


def _class(name: object) -> Any:
    kind = known_classes().get(str(name))
    if kind is None:
        raise UnreadableError(f"the recording has the unknown kind {name!r}")
    return kind
