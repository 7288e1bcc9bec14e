"""docs/configuration.md, made from the JSON Schema: ``python -m stepwarden.config.reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from stepwarden.config.nodes import MAX_DEPTH, MAX_NODES
from stepwarden.config.quantities import UNLIMITED
from stepwarden.config.reference_text import HEAD
from stepwarden.config.schema import DURATION_REF, SIZE_REF, json_schema
from stepwarden.config.values import seconds_text, size_text
from stepwarden.plain_file import MAX_CONFIG_BYTES

_PLACES = (
    ("Top level", "", ""),
    ("supervisor", "SupervisorSection", ""),
    ("supervisor.governor", "GovernorSection", ""),
    ("supervisor.health", "HealthSection", ""),
    ("supervisor.reload", "ReloadSection", ""),
    ("ready: of supervisor.health", "ReadyRuleSection", ""),
    ("supervisor.agents", "AgentsSection", ""),
    ("tls: of a listener", "TlsSection", ""),
    ("supervisor.metrics", "MetricsSection", ""),
    ("supervisor.log", "LogSection", ""),
    ("supervisor.incidents", "IncidentsSection", ""),
    ("supervisor.recording", "RecordingSection", ""),
    ("backends.NAME", "BackendSection", ""),
    ("step: of a backend or a worker", "StepSection", ""),
    ("workers.NAME", "WorkerSection", "SharedSection"),
    ("defaults, and each worker", "SharedSection", ""),
    ("heartbeat", "HeartbeatSection", ""),
    ("startup", "StartupSection", ""),
    ("retry", "RetrySection", ""),
    ("restart", "RestartSection", ""),
    ("stop", "StopSection", ""),
    ("output", "OutputSection", ""),
    ("limits", "LimitsSection", ""),
    ("attach", "AttachSection", ""),
    ("pre_start", "PreStartSection", ""),
    ("ready", "ReadySection", ""),
    ("progress", "ProgressSection", ""),
    ("release", "ReleaseSection", ""),
    ("groups.NAME", "GroupSection", ""),
    ("restart of a group", "RestartTimes", ""),
)


def markdown() -> str:
    """The whole page."""
    schema = json_schema()
    parts = [_head()]
    for title, name, without in _PLACES:
        section = schema["$defs"][name] if name else schema
        hidden = schema["$defs"][without]["properties"] if without else {}
        rows = "\n".join(_rows(section, schema, set(hidden)))
        text = _one_line(section["description"])
        parts.append(
            f"## {title}\n\n{text}\n\n| key | takes | default | meaning |\n|---|---|---|---|"
        )
        parts[-1] += f"\n{rows}\n"
    return "\n".join(parts)


def _head() -> str:
    """The text before the tables, with the limits put in; its braces are those of the file."""
    limits = {
        "MAX_MIB": MAX_CONFIG_BYTES // 1024 // 1024,
        "MAX_NODES": MAX_NODES,
        "MAX_DEPTH": MAX_DEPTH,
    }
    text = HEAD
    for name, limit in limits.items():
        text = text.replace(name, str(limit))
    return text


def _rows(section: dict[str, Any], schema: dict[str, Any], hidden: set[str]) -> Iterator[str]:
    for key, field in section["properties"].items():
        if key not in hidden:
            needed = "needed" if key in section.get("required", ()) else _default(field)
            meaning = field.get("description") or _target(field, schema).get("description", "")
            yield f"| `{key}` | {_takes(field)} | {needed} | {_one_line(meaning)} |"


def _target(field: dict[str, Any], schema: dict[str, Any]) -> dict[str, Any]:
    name = field.get("$ref", "").rpartition("/")[2]
    return schema["$defs"].get(name, {}) if name else {}


def _default(field: dict[str, Any]) -> str:
    if "default" not in field:
        return ""
    value = field["default"]
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    if isinstance(value, list):
        return f"`[{', '.join(value)}]`"
    return f"`{value}`"


def _takes(field: dict[str, Any]) -> str:
    """What a key takes, in a few words."""
    choices = field.get("anyOf", [])
    if {"$ref": DURATION_REF} in choices:
        number = choices[0]
        return f"duration, {_seconds(number['minimum'])} to {_seconds(number['maximum'])}"
    if {"$ref": SIZE_REF} in choices:
        low, high = (size_text(choices[0][bound]) for bound in ("minimum", "maximum"))
        return f"size, {low} to {high}" + _or_unlimited(choices)
    if choices:
        return _of_several(choices)
    if "enum" in field:
        return ", ".join(f"`{word}`" for word in field["enum"])
    kind = field.get("type", "section")
    if kind in ("number", "integer"):
        word = "number" if kind == "number" else "whole number"
        return f"{word}, {field['minimum']} to {field['maximum']}"
    names = {"string": "text", "boolean": "yes or no", "array": "list", "object": "mapping"}
    return names.get(kind, "section")


def _of_several(choices: list[dict[str, Any]]) -> str:
    """A key that takes one of several kinds of values."""
    if choices[-1].get("$ref", "").endswith("Section"):
        return f"`{choices[0]['const']}`, or section"
    if any(choice.get("type") == "array" for choice in choices):
        return "text, or a list of such"
    if any("pattern" in choice for choice in choices):
        return "name, or whole number"
    return _takes(choices[0]) + _or_unlimited(choices)


def _or_unlimited(choices: list[dict[str, Any]]) -> str:
    return f", or `{UNLIMITED}`" if {"const": UNLIMITED} in choices else ""


def _seconds(value: float) -> str:
    return "0" if value == 0 else seconds_text(value)


def _one_line(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(markdown())
