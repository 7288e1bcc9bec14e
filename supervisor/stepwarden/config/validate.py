"""Nodes to the pydantic model: all problems at once, each with its place and a suggestion."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from stepwarden.config.fields import REFUSED
from stepwarden.config.findings import Findings
from stepwarden.config.model import (
    BackendSection,
    File,
    StepSection,
    SupervisorSection,
    WorkerSection,
)
from stepwarden.config.nodes import Document, Mapping, Node, Sequence
from stepwarden.config.problems import Path
from stepwarden.config.sections import Section, keys_of
from stepwarden.config.shape_sections import GroupSection
from stepwarden.naming import nearest

EXTENSION_PREFIX = "x-"
"""Top-level keys that start so are yours: for anchors and notes; nothing reads them."""

_NAMED: dict[str, type[Section]] = {
    "workers": WorkerSection,
    "backends": BackendSection,
    "groups": GroupSection,
}
"""The sections that stand below names of the operator's own."""
_MOVED = {"supervisor.agent_listen": "supervisor.agents.listen"}
"""Keys of earlier versions, and what they are called now."""
_KEY_MARK = "[key]"
_MAX_ROUNDS = 5
_MISSING = ("missing", "too_short")
_WANTED = {
    "model_type": "a mapping (key: value lines)",
    "dict_type": "a mapping (key: value lines)",
    "list_type": "a list, such as [one, two]",
}


def validate(document: Document, findings: Findings) -> File | None:
    """The model of all that is right; `findings` says what is not. None where nothing is."""
    root = document.root
    if not isinstance(root, Mapping):
        found = "the file is empty" if root is None else "the file is not a mapping"
        findings.error((), f"{found}; it must hold at least a section workers:")
        return None
    data = {
        name: _plain(entry.value)
        for name, entry in root.entries.items()
        if not name.startswith(EXTENSION_PREFIX)
    }
    for turn in range(_MAX_ROUNDS):
        try:
            return File.model_validate(data)
        except ValidationError as error:
            details = error.errors(include_url=False)
        for detail in details:
            # Later, a part is missing because it was refused and taken out.
            if turn == 0 or detail["type"] not in _MISSING:
                _report(detail, findings)
        # What is left of the file is looked at too, so that all problems are told at once.
        # Backwards, so that the positions in lists stay true.
        remains = [_prune(data, detail) for detail in reversed(details)]
        if not all(remains):
            return None
    return None


def _prune(data: dict[str, Any], detail: ErrorDetails) -> bool:
    """Take the refused part out of `data`; False where nothing would be left."""
    path = [step for step in detail["loc"] if step != _KEY_MARK]
    if detail["type"] == "missing":
        path.pop()
    if not path:
        return False
    place: Any = data
    for step in path[:-1]:
        if isinstance(place, dict) and step not in place:
            return True
        place = place[step]
    if isinstance(place, list):
        del place[int(path[-1])]
        return True
    place.pop(path[-1], None)
    return True


def _plain(node: Node) -> Any:
    if isinstance(node, Mapping):
        return {name: _plain(entry.value) for name, entry in node.entries.items()}
    if isinstance(node, Sequence):
        return [_plain(item) for item in node.items]
    return node


def _report(detail: ErrorDetails, findings: Findings) -> None:
    path: Path = tuple(step for step in detail["loc"] if step != _KEY_MARK)
    if findings.full:
        findings.error(path, "")  # counts, and spoils what lies above it
        return
    kind = detail["type"]
    context = detail.get("ctx", {})
    if kind == REFUSED:
        at_key = detail["loc"][-1] == _KEY_MARK
        message = f"{'this key' if at_key else ''} {context['message']}".strip()
        findings.error(path, message, context["accepted"], context["suggestion"], at_key)
    elif kind == "extra_forbidden":
        _unknown_key(path, findings)
    elif kind == "missing":
        findings.error(path[:-1], f"the key {path[-1]} is missing")
    elif kind in _WANTED:
        line = _is_line_for_shell(path, detail["input"])
        findings.error(path, _found(detail["input"]), _WANTED[kind], "shell" if line else "", line)
    elif kind == "too_short":
        findings.error(path, "is empty; at least one is needed")
    else:
        findings.error(path, detail["msg"])


def _found(value: object) -> str:
    if isinstance(value, dict | list):
        return f"a {'mapping' if isinstance(value, dict) else 'list'} stands here"
    empty = not getattr(value, "text", "")
    return "nothing is written here" if empty else "text stands here"


def _is_line_for_shell(path: Path, value: object) -> bool:
    """Whether a worker's command is written as one line of text: there is another key for that."""
    text = not isinstance(value, dict | list) and bool(getattr(value, "text", ""))
    return text and len(path) == 3 and (path[0], path[2]) == ("workers", "command")


def _unknown_key(path: Path, findings: Findings) -> None:
    section = _section_at(path[:-1])
    known = list(keys_of(section)) if section else []
    name = str(path[-1])
    moved = _MOVED.get(".".join(map(str, path)), "")
    suggestion = moved or _like(name.lower(), known) or _elsewhere(name, str(path[0]))
    findings.error(path, "unknown key", ", ".join(known), suggestion, at_key=True)


def _like(name: str, known: list[str]) -> str:
    """The known key that `name` looks like, or begins with; empty where there is none."""
    begun = (word for word in known if name.startswith(f"{word}_"))
    return nearest(name, known, 0.65) or next(begun, "")


def _elsewhere(name: str, top: str) -> str:
    """Where a key of this name, or nearly so, belongs, best below `top`; empty where nowhere."""
    places = sorted(_all_keys(), key=lambda place: not place[0].startswith(f"{top}."))
    near = nearest(name.lower(), [key for _, key in places], 0.8)
    return next((f"{place}{key}" for place, key in places if key == near), "")


def _all_keys() -> Iterator[tuple[str, str]]:
    tops: list[tuple[str, type[Section]]] = [
        ("", File),
        ("workers.NAME.", WorkerSection),
        ("supervisor.", SupervisorSection),
        ("backends.NAME.", BackendSection),
        ("backends.NAME.step.", StepSection),
        ("groups.NAME.", GroupSection),
    ]
    for place, section in tops:
        for key, name in keys_of(section).items():
            yield place, key
            inner = _section_of(section.model_fields[name].annotation)
            if inner and section in (WorkerSection, SupervisorSection):
                yield from ((f"{place}{key}.", below) for below in keys_of(inner))


def _section_of(annotation: Any) -> type[Section] | None:
    """The section that a key takes, one that may be left out included; None: no section."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, Section):
            return kind
    return None


def _section_at(path: Path) -> type[Section] | None:
    """The model that stands at this path of the file."""
    section: type[Section] = File
    steps = list(path)
    while steps:
        name = str(steps.pop(0))
        if section is File and name in _NAMED:
            section = _NAMED[name]
            steps = steps[1:]
            continue
        field = section.model_fields.get(name)
        inner = _section_of(field.annotation) if field else None
        if inner is None:
            return None
        section = inner
    return section
