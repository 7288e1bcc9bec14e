"""The JSON Schema of the file (draft 2020-12), for editors.

It accepts what the loader accepts, and refuses the rest short of what only the loader can see:
references between sections, rows that must rise, ranges of durations with units.
"""

from __future__ import annotations

import json
from typing import Any

from stepwarden.config.model import File
from stepwarden.config.validate import EXTENSION_PREFIX
from stepwarden.config.values import (
    DURATION_FORMS,
    DURATION_PATTERN,
    SIZE_FORMS,
    SIZE_PATTERN,
    seconds_text,
    size_text,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
DURATION_REF = "#/$defs/DurationText"
SIZE_REF = "#/$defs/SizeText"

_SHAPES = ("command", "shell", "unit", "attach")
_PROBES = ("agent", "tcp", "http", "grpc", "command", "delay")
_TEXTS = {DURATION_PATTERN: DURATION_REF, SIZE_PATTERN: SIZE_REF}

_ROW_NAMES = {"pattern": "^[1-9][0-9]*$"}


def json_schema() -> dict[str, Any]:
    """The schema as plain data."""
    schema: dict[str, Any] = _simplify(File.model_json_schema())
    definitions = schema.pop("$defs")
    definitions["DurationText"] = {
        "type": "string",
        "pattern": DURATION_PATTERN,
        "description": f"A duration: {DURATION_FORMS}.",
    }
    definitions["SizeText"] = {
        "type": "string",
        "pattern": SIZE_PATTERN,
        "description": f"A size: {SIZE_FORMS}.",
    }
    definitions["WorkerSection"]["oneOf"] = _one_of(_SHAPES)
    definitions["ReadySection"]["oneOf"] = _one_of(_PROBES)
    step = definitions["StepSection"]
    step["properties"]["rows"] |= {"propertyNames": _ROW_NAMES, "minProperties": 1}
    step["not"] = {
        "anyOf": [
            {"required": [formula, rows]}
            for formula in ("base", "per_seq")
            for rows in ("rows", "beyond")
        ]
    }
    return {
        "$schema": DIALECT,
        "title": "stepwarden configuration",
        **schema,
        "patternProperties": {f"^{EXTENSION_PREFIX}": True},
        "$defs": dict(sorted(definitions.items())),
    }


def _one_of(keys: tuple[str, ...]) -> list[dict[str, Any]]:
    return [{"required": [key]} for key in keys]


def schema_text() -> str:
    """The schema as the committed file holds it."""
    return json.dumps(json_schema(), indent=2) + "\n"


def _simplify(node: Any) -> Any:
    """What pydantic writes, without what only pydantic needs."""
    if isinstance(node, list):
        return [_simplify(item) for item in node]
    if isinstance(node, float) and node.is_integer():
        return int(node)
    if not isinstance(node, dict):
        return node
    if node.get("pattern") in _TEXTS:
        return {"$ref": _TEXTS[node["pattern"]]}
    plain = {name: _simplify(value) for name, value in node.items()}
    if isinstance(plain.get("title"), str):
        del plain["title"]
    if plain.get("default", 0) is None or isinstance(plain.get("default"), dict):
        del plain["default"]
    if len(plain.get("allOf", ())) == 1:  # how older pydantic writes a described reference
        plain.update(plain.pop("allOf")[0])
    _without_null(plain)
    _with_names(plain)
    if {"$ref": DURATION_REF} in plain.get("anyOf", []) and "default" in plain:
        plain["default"] = seconds_text(plain["default"])
    if {"$ref": SIZE_REF} in plain.get("anyOf", []) and "default" in plain:
        plain["default"] = size_text(plain["default"])
    return plain


def _without_null(node: dict[str, Any]) -> None:
    """An optional key may be left out; it may not be written as null."""
    choices = [choice for choice in node.get("anyOf", []) if choice != {"type": "null"}]
    if len(choices) == 1:
        del node["anyOf"]
        node.update(choices[0])


def _with_names(node: dict[str, Any]) -> None:
    """Keys that do not match the one pattern are refused, not ignored."""
    patterns = node.pop("patternProperties", None)
    if patterns:
        ((pattern, values),) = patterns.items()
        node["propertyNames"] = {"pattern": pattern}
        node["additionalProperties"] = values
