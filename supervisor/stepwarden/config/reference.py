"""docs/configuration.md, made from the JSON Schema: ``python -m stepwarden.config.reference``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from stepwarden.config.nodes import MAX_DEPTH, MAX_NODES
from stepwarden.config.quantities import UNLIMITED
from stepwarden.config.schema import DURATION_REF, SIZE_REF, json_schema
from stepwarden.config.source import MAX_FILE_BYTES
from stepwarden.config.values import seconds_text, size_text

_HEAD = f"""\
# Configuration reference

<!-- Made from the JSON Schema: stepwarden schema --markdown > docs/configuration.md -->

One YAML file. `stepwarden check FILE` names all its problems at once, as
`file:line:column: error: path: message`, and exits with 78 where there is one (0 where there are
only warnings; with `--strict` warnings count too). `stepwarden check --effective FILE` prints what
holds after defaults. `config/stepwarden.yaml` is an annotated file to start from, and
`config/schema.json` lets an editor check while you type.

## How values are written

One rule each, the same at every key. A value is judged as it is written; what a YAML reader would
make of it does not matter.

| kind | accepted | refused, among others |
|---|---|---|
| duration | `30s`, `500ms`, `5m`, `1h30m`, `2d`; plain seconds: `30`, `2.5` | `"30"`, `30 s`, \
`5 minutes`, `1:30`, `30min` |
| size | `100MiB`, `1.5GiB`, `1GB` (KiB MiB GiB TiB: powers of 1024; KB MB GB TB: of 1000); \
plain bytes: `1048576` | `"5"`, `100 MiB`, `100M`, `100mb` |
| number | `5`, `2.5` | `+5`, `-5`, `010`, `1_000`, `1,000`, `1e3`, `0x1F`, `.inf`, `"5"` |
| whole number | `64` | as above, and `64.0` |
| yes or no | `true`, `false` | `yes`, `no`, `on`, `off`, `True`, `1` |
| text | `any words`, `"8"` | `8`, `on`, `null`, `2026-01-02` without quotes: quote them |
| key | taken as text, as it is written | a key written twice, lists or mappings as keys |

- Units of a duration go from large to small (`d h m s ms`), each at most once, with nothing between
  number and unit. 0 is refused except where the table below gives it a meaning.
- Nothing after a key (`startup:`), `~` and `null` are refused: leave the key out instead.
- Unknown keys are refused at every level. At the top level only, keys that start with `x-` are
  yours: nothing reads them, and anchors may live there.
- Anchors and aliases work, and `<<` merges mappings (keys written beside it win). Tags, several
  documents in one file, files above {MAX_FILE_BYTES // 1024 // 1024} MiB, more than {MAX_NODES}
  values with all aliases written out, and nesting deeper than {MAX_DEPTH} are refused.
- UTF-8, with or without a byte order mark, with any line ends.
- `command` expands no variables; `shell` is a line for `/bin/sh -c`, which does.

## Which value holds

What a worker says goes over `defaults:`, which goes over the shipped defaults below; key by key,
inside sections too. A worker's `step:` goes over its backend's `step:` in the same way; where one
changes from a formula to rows or back, the keys of the other form fall away. `gpu` and `cpu` exist
with the shipped numbers even if the file does not name them.

Every cause has a hard cap: `max(budget + window, min(busy_factor * budget, max))`; a `hard_cap:`
replaces the second part. `stepwarden explain` shows the arithmetic for any batch.

With `engine: vllm` and `agent: required` the worker's environment gets
`VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS` (largest hard cap of a step plus `stop.grace`, rounded up) and
`VLLM_ENGINE_READY_TIMEOUT_S` (hard cap of the start), unless `env:` or the supervisor's own
environment sets them. Otherwise the engine's time-outs are left alone.
"""

_PLACES = (
    ("Top level", "", ""),
    ("supervisor", "SupervisorSection", ""),
    ("supervisor.health", "HealthSection", ""),
    ("supervisor.log", "LogSection", ""),
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
    parts = [_HEAD]
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
