"""Kinds of values for running a process: sizes, resource limits, accounts, one or several texts."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from stepwarden.config.fields import Kind, refuse
from stepwarden.config.nodes import Scalar
from stepwarden.config.values import SIZE_FORMS, SIZE_PATTERN, parse_size, parse_whole, size_text
from stepwarden.naming import shown

ACCOUNT_NAME = "[A-Za-z_][A-Za-z0-9_.-]{0,31}[$]?"
UNLIMITED = "unlimited"
MAX_ID = 2**32 - 2
"""The largest user or group number; the next one means "nobody in particular" to the kernel."""


@dataclass(frozen=True)
class Size(Kind):
    """Bytes between `low` and `high`. `unlimited`: that word is accepted too, and read as None."""

    low: int
    high: int
    unlimited: bool = False

    def _accepts(self) -> str:
        word = f"; or {UNLIMITED}" if self.unlimited else ""
        return f"{SIZE_FORMS}; from {size_text(self.low)} to {size_text(self.high)}{word}"

    def _read(self, scalar: Scalar) -> int | None:
        if self.unlimited and scalar.text == UNLIMITED:
            return None
        quoted_number = not scalar.plain and parse_whole(scalar.text) is not None
        size = None if quoted_number else parse_size(scalar.text)
        if size is None:
            why = "is quoted text, not a number" if quoted_number else "is not a size"
            raise refuse(f"{shown(scalar.text)} {why}", self._accepts())
        if not self.low <= size <= self.high:
            raise refuse(f"{shown(scalar.text)} is out of range", self._accepts())
        return size

    def _json_schema(self) -> dict[str, Any]:
        number = {"type": "integer", "minimum": self.low, "maximum": self.high}
        forms = [number, {"type": "string", "pattern": SIZE_PATTERN}]
        return {"anyOf": [*forms, {"const": UNLIMITED}] if self.unlimited else forms}


@dataclass(frozen=True)
class Count(Kind):
    """A number of things that is limited, or the word unlimited, read as None."""

    high: int = 2**31 - 1

    def _accepts(self) -> str:
        return f"a whole number in plain digits, up to {self.high}, or {UNLIMITED}"

    def _read(self, scalar: Scalar) -> int | None:
        if scalar.text == UNLIMITED:
            return None
        number = parse_whole(scalar.text) if scalar.plain else None
        if number is None or number > self.high:
            raise refuse(f"{shown(scalar.text)} cannot be used here", self._accepts())
        return number

    def _json_schema(self) -> dict[str, Any]:
        number = {"type": "integer", "minimum": 0, "maximum": self.high}
        return {"anyOf": [number, {"const": UNLIMITED}]}


@dataclass(frozen=True)
class Account(Kind):
    """A user or a group by name or number, kept as text."""

    what: str

    def _accepts(self) -> str:
        return f"a {self.what} name, or its number"

    def _read(self, scalar: Scalar) -> str:
        number = parse_whole(scalar.text)
        if number is not None and number <= MAX_ID:
            return scalar.text
        if number is None and re.fullmatch(ACCOUNT_NAME, scalar.text):
            return scalar.text
        raise refuse(f"{shown(scalar.text)} is not a {self.what}", self._accepts())

    def _json_schema(self) -> dict[str, Any]:
        number = {"type": "integer", "minimum": 0, "maximum": MAX_ID}
        digits = {"type": "string", "pattern": "^(?:0|[1-9][0-9]*)$"}
        return {"anyOf": [number, {"type": "string", "pattern": f"^{ACCOUNT_NAME}$"}, digits]}


@dataclass(frozen=True)
class WordOr:
    """One word that stands for the section with nothing said, or the section, which says more.

    `says`: the section, for people.
    """

    word: str
    says: str

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_before_validator_function(self._word_read, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {"anyOf": [{"const": self.word}, {**handler(schema), "minProperties": 1}]}

    def _word_read(self, value: object) -> object:
        accepted = f"{self.word}, or {self.says}"
        if isinstance(value, dict):
            if not value:
                # Said once: later it may be empty because its keys were refused.
                raise PydanticCustomError("too_short", "empty")
            return value
        if not isinstance(value, Scalar):
            raise refuse("a list stands here", accepted)
        if value.text != self.word:
            raise refuse(f"{shown(value.text)} is not known here", accepted)
        return {}


@dataclass(frozen=True)
class OneOrMore(Kind):
    """One value, or a list of some, read as a list. `none`: the list may be empty."""

    item: Kind
    none: bool = False

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        items = core_schema.list_schema(self.item.__get_pydantic_core_schema__(source, handler))
        return core_schema.no_info_wrap_validator_function(self._one_or_more, items)

    def _accepts(self) -> str:
        return f"{self.item.accepts()}, or a list of such"

    def _one_or_more(self, value: object, read_list: Callable[[object], object]) -> object:
        if not isinstance(value, list):
            return [self._validate(value)]
        if not value and not self.none:
            raise refuse("the list is empty", self._accepts())
        return read_list(value)  # by pydantic, which tells each item by its position

    def _read(self, scalar: Scalar) -> object:
        return self.item.read(scalar)

    def _json_schema(self) -> dict[str, Any]:
        one = self.item.schema()
        least = {} if self.none else {"minItems": 1}
        return {"anyOf": [one, {"type": "array", "items": one, **least}]}
