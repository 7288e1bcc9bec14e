"""The kinds of values that keys take: each checks a written scalar and describes itself.

Every kind is an annotation for a pydantic field. It sees the `Scalar` as it was written, so that
all surprises of YAML are judged in one place, and gives the JSON Schema that editors use.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from stepwarden.config.nodes import Scalar
from stepwarden.config.values import (
    DURATION_FORMS,
    DURATION_PATTERN,
    needs_quotes,
    parse_duration,
    parse_number,
    parse_whole,
    seconds_text,
)
from stepwarden.naming import nearest, shown

ADDRESS_PATTERN = r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9][A-Za-z0-9.-]*):(?P<port>[0-9]{1,5})"

REFUSED = "refused"
"""Type of every pydantic error that our own kinds raise."""


def refuse(message: str, accepted: str, suggestion: str = "") -> PydanticCustomError:
    """The error that says what is wrong with one value."""
    context = {"message": message, "accepted": accepted, "suggestion": suggestion}
    return PydanticCustomError(REFUSED, "{message}", context)


class Kind(ABC):
    """What all kinds share: the way into pydantic."""

    @abstractmethod
    def _accepts(self) -> str:
        """What is accepted, for people."""

    @abstractmethod
    def _read(self, scalar: Scalar) -> object:
        """The value, or `refuse(...)` raised."""

    @abstractmethod
    def _json_schema(self) -> dict[str, Any]:
        """The same rule for editors."""

    def accepts(self) -> str:
        """What is accepted, for people."""
        return self._accepts()

    def read(self, scalar: Scalar) -> object:
        """The value of a scalar; raises the refusal as pydantic's own error."""
        return self._read(scalar)

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of one value."""
        return self._json_schema()

    def __get_pydantic_core_schema__(self, _: Any, __: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(self, _: Any, __: GetJsonSchemaHandler) -> dict[str, Any]:
        return self._json_schema()

    def _validate(self, value: object) -> object:
        if isinstance(value, str):  # a key, which is always text
            value = Scalar(value, True, 0, 0)
        if not isinstance(value, Scalar):
            found = "a list" if isinstance(value, list) else "a mapping"
            raise refuse(f"{found} stands where one value is expected", self._accepts())
        if value.plain and value.text in ("", "~"):
            raise refuse("nothing is written here", self._accepts())
        return self._read(value)


@dataclass(frozen=True)
class Duration(Kind):
    """Seconds between `low` and `high`; `zero` says what 0 means where it is allowed."""

    low: float
    high: float
    zero: str = ""

    def _accepts(self) -> str:
        bounds = f"from {seconds_text(self.low)} to {seconds_text(self.high)}"
        return f"{DURATION_FORMS}; {bounds}" + (f"; 0 {self.zero}" if self.zero else "")

    def _read(self, scalar: Scalar) -> float:
        quoted_number = not scalar.plain and parse_number(scalar.text) is not None
        seconds = None if quoted_number else parse_duration(scalar.text)
        if seconds is None:
            why = "is quoted text, not a number" if quoted_number else "is not a duration"
            raise refuse(f"{shown(scalar.text)} {why}", self._accepts())
        if not (self.low <= seconds <= self.high or (self.zero and seconds == 0)):
            raise refuse(f"{shown(scalar.text)} is out of range", self._accepts())
        return seconds

    def _json_schema(self) -> dict[str, Any]:
        low = 0 if self.zero else self.low
        number = {"type": "number", "minimum": low, "maximum": self.high}
        return {"anyOf": [number, {"type": "string", "pattern": DURATION_PATTERN}]}


@dataclass(frozen=True)
class Number(Kind):
    """A decimal number between `low` and `high`."""

    low: float
    high: float

    def _accepts(self) -> str:
        return f"a number such as 5 or 2.5, from {self.low:g} to {self.high:g}"

    def _read(self, scalar: Scalar) -> float:
        number = parse_number(scalar.text) if scalar.plain else None
        if number is None:
            raise refuse(f"{shown(scalar.text)} is not a number as written here", self._accepts())
        if not self.low <= number <= self.high:
            raise refuse(f"{shown(scalar.text)} is out of range", self._accepts())
        return number

    def _json_schema(self) -> dict[str, Any]:
        return {"type": "number", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Whole(Kind):
    """A whole number between `low` and `high`."""

    low: int
    high: int

    def _accepts(self) -> str:
        return f"a whole number in plain digits, from {self.low} to {self.high}"

    def _read(self, scalar: Scalar) -> int:
        sign, digits = 1, scalar.text
        if self.low < 0 and digits.startswith("-"):
            sign, digits = -1, digits[1:]
        number = parse_whole(digits) if scalar.plain else None
        if number is None:
            raise refuse(f"{shown(scalar.text)} is not a whole number", self._accepts())
        number *= sign
        if not self.low <= number <= self.high:
            raise refuse(f"{shown(scalar.text)} is out of range", self._accepts())
        return number

    def _json_schema(self) -> dict[str, Any]:
        return {"type": "integer", "minimum": self.low, "maximum": self.high}


@dataclass(frozen=True)
class Flag(Kind):
    """true or false."""

    def _accepts(self) -> str:
        return "true or false"

    def _read(self, scalar: Scalar) -> bool:
        if scalar.plain and scalar.text in ("true", "false"):
            return scalar.text == "true"
        raise refuse(f"{shown(scalar.text)} is neither true nor false", self._accepts())

    def _json_schema(self) -> dict[str, Any]:
        return {"type": "boolean"}


@dataclass(frozen=True)
class Choice(Kind):
    """One of a few words."""

    words: tuple[str, ...]

    def _accepts(self) -> str:
        return ", ".join(self.words)

    def _read(self, scalar: Scalar) -> str:
        if scalar.text in self.words:
            return scalar.text
        said = scalar.text.lower()
        meant = nearest(said, self.words) or next((w for w in self.words if w.lower() == said), "")
        raise refuse(f"{shown(scalar.text)} is not known here", self._accepts(), meant)

    def _json_schema(self) -> dict[str, Any]:
        return {"type": "string", "enum": list(self.words)}


@dataclass(frozen=True)
class Text(Kind):
    """Text that matches `pattern` wholly; `says` is the pattern for people.

    Secret text is never shown.
    """

    says: str = "text"
    pattern: str = ""
    secret: bool = False
    key: bool = False  # a key is text as it stands, a value must not look like something else
    empty: bool = False

    def _accepts(self) -> str:
        return self.says

    def _read(self, scalar: Scalar) -> str:
        if scalar.plain and not self.key and needs_quotes(scalar.text):
            message = "reads as something else than text to YAML; write it in quotes"
            raise refuse(f"{self._quoted(scalar)} {message}", self._accepts())
        if "\0" in scalar.text or not (scalar.text or self.empty):
            raise refuse("a NUL character" if scalar.text else "empty text", self._accepts())
        if self.pattern and not re.fullmatch(self.pattern, scalar.text):
            raise refuse(f"{self._quoted(scalar)} cannot be used here", self._accepts())
        return scalar.text

    def _quoted(self, scalar: Scalar) -> str:
        return "the value" if self.secret else shown(scalar.text)

    def _json_schema(self) -> dict[str, Any]:
        schema: dict[str, Any] = {"type": "string"}
        if not self.empty:
            schema["minLength"] = 1
        if self.pattern:
            schema["pattern"] = f"^(?:{self.pattern})$"
        return schema


@dataclass(frozen=True)
class Address(Kind):
    """A TCP address to listen on. `asked`: one that is asked instead, which needs a real port."""

    asked: bool = False

    def _accepts(self) -> str:
        if self.asked:
            return '"HOST:PORT" such as "127.0.0.1:8000" or "[::1]:8000"'
        return '"HOST:PORT" such as "127.0.0.1:50051" or "[::1]:50051"; port 0: any free one'

    def _read(self, scalar: Scalar) -> str:
        host, port = split_address(scalar.text)
        number = parse_whole(port)
        if not host or number is None or number > 65535 or (self.asked and number == 0):
            raise refuse(f"{shown(scalar.text)} is not an address with a port", self._accepts())
        return scalar.text

    def _json_schema(self) -> dict[str, Any]:
        # Named groups are Python's own spelling; editors need the plain one.
        return {"type": "string", "pattern": re.sub(r"\?P<\w+>", "", f"^{ADDRESS_PATTERN}$")}


def split_address(text: str) -> tuple[str, str]:
    """Host and port of ``HOST:PORT``; two empty texts where it is not an address."""
    found = re.fullmatch(ADDRESS_PATTERN, text, re.ASCII)
    return (found["host"], found["port"]) if found else ("", "")
