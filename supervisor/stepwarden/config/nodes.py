"""YAML text to a tree of nodes that keep their own text and place. No value is interpreted here.

PyYAML's resolution is not used: ``1:30``, ``on`` and ``010`` arrive as the text that was written.
Anchors and aliases are followed and ``<<`` merges mappings; explicit tags, several documents,
keys that are not text, self references and files that expand beyond `MAX_NODES` are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from stepwarden.config.problems import MAX_PROBLEMS, ConfigError, Path, Problem, dotted

MAX_NODES = 200_000
"""Nodes of the file with every alias written out: a thousand workers with 200 each."""
MAX_DEPTH = 32

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_MERGE = "<<"
_SHOWN_NAME = 40


@dataclass(frozen=True, slots=True)
class Scalar:
    """One piece of text; `plain` where it was written without quotes.

    Of every node, `weight` is the number of nodes and `depth` the number of levels in it, with all
    aliases written out.
    """

    text: str
    plain: bool
    line: int
    column: int
    weight: int = 1
    depth: int = 0


@dataclass(slots=True)
class Sequence:
    """A list."""

    line: int
    column: int
    items: list[Node] = field(default_factory=list)
    weight: int = 1
    depth: int = 1


@dataclass(frozen=True, slots=True)
class Entry:
    """One key with its value."""

    key: Scalar
    value: Node
    merged: bool = False


@dataclass(slots=True)
class Mapping:
    """Keys and values in the order of the file, each key once."""

    line: int
    column: int
    entries: dict[str, Entry] = field(default_factory=dict)
    weight: int = 1
    depth: int = 1


Node = Scalar | Sequence | Mapping


@dataclass(frozen=True, slots=True)
class Document:
    """What a file holds. `root` is None for an empty file; `problems` lists duplicate keys."""

    file: str
    root: Node | None
    problems: tuple[Problem, ...]


def compose(text: str, file: str) -> Document:
    """Read one YAML document. Raises ConfigError where reading cannot go on."""
    composer = _Composer(text, file)
    try:
        root = composer.document()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(text, file, error) from None
    except yaml.YAMLError as error:
        message = f"not valid YAML: {str(error).splitlines()[0]}"
        raise ConfigError([Problem("", message, file=file)]) from None
    return Document(file, root, tuple(composer.problems))


def _syntax_error(text: str, file: str, error: yaml.MarkedYAMLError) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line, column = (mark.line + 1, mark.column + 1) if mark else (None, None)
    texts = [text for text in (error.context, error.problem) if text]
    message = f"not valid YAML: {', '.join(texts)}"
    if mark and _stands_at_tab(text, mark):
        message = "not valid YAML: a tab stands here; indent with spaces"
    return ConfigError([Problem("", message, file=file, line=line, column=column)])


def _stands_at_tab(text: str, mark: Any) -> bool:
    """The parser's own words for this never name the tab."""
    lines = text.splitlines()
    line = lines[mark.line] if mark.line < len(lines) else ""
    return line[mark.column : mark.column + 1] == "\t"


class _Composer:
    """Turns the parser's events into nodes, as they come, so that a bomb is never unpacked."""

    def __init__(self, text: str, file: str) -> None:
        self._events: Iterator[Any] = iter(yaml.parse(text, Loader=_LOADER))
        self._file = file
        self._anchors: dict[str, Node | None] = {}
        self._path: list[str | int] = []
        self._read = 0
        self.problems: list[Problem] = []

    def document(self) -> Node | None:
        """The only document of the stream; None where there is none."""
        root: Node | None = None
        documents = 0
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                documents += 1
                if documents > 1:
                    raise self._refusal(event, "a second document starts here; only one is read")
            elif isinstance(event, yaml.NodeEvent):
                root = self._node(event)
        if isinstance(root, Scalar) and root.plain and not root.text:
            return None
        return root

    def _node(self, event: Any) -> Node:
        self._read += 1
        if self._read > MAX_NODES:
            raise self._refusal(event, f"the file holds more than {MAX_NODES} values")
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if event.tag is not None and event.tag != "!":
            raise self._refusal(event, "tags are not accepted; write the value without one")
        self._check_depth(event, 1)
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        node = self._compose(event)
        if node.weight > MAX_NODES:
            raise self._refusal(event, f"its aliases expand to more than {MAX_NODES} values")
        if event.anchor is not None:
            self._anchors[event.anchor] = node
        return node

    def _compose(self, event: Any) -> Node:
        line, column = _place(event)
        if isinstance(event, yaml.ScalarEvent):
            return Scalar(event.value, bool(event.implicit[0]), line, column)
        if isinstance(event, yaml.SequenceStartEvent):
            return self._sequence(Sequence(line, column))
        return self._mapping(Mapping(line, column))

    def _alias(self, event: Any) -> Node:
        name = _cut(event.anchor)
        if event.anchor not in self._anchors:
            raise self._refusal(event, f"the alias *{name} has no anchor before it")
        node = self._anchors[event.anchor]
        if node is None:
            raise self._refusal(event, f"the alias *{name} stands inside its own anchor")
        self._check_depth(event, node.depth)
        return node

    def _check_depth(self, event: Any, more: int) -> None:
        if len(self._path) + more > MAX_DEPTH:
            raise self._refusal(event, f"nested deeper than {MAX_DEPTH} levels")

    def _sequence(self, sequence: Sequence) -> Sequence:
        for event in self._events:
            if isinstance(event, yaml.SequenceEndEvent):
                break
            self._path.append(len(sequence.items))
            item = self._node(event)
            self._path.pop()
            sequence.items.append(item)
            sequence.weight += item.weight
            sequence.depth = max(sequence.depth, item.depth + 1)
        return sequence

    def _mapping(self, mapping: Mapping) -> Mapping:
        merges: list[tuple[Scalar, Node]] = []
        for event in self._events:
            if isinstance(event, yaml.MappingEndEvent):
                break
            key = self._key(event)
            self._path.append(key.text)
            value = self._node(next(self._events))
            mapping.weight += 1 + value.weight
            mapping.depth = max(mapping.depth, value.depth + 1)
            if key.text == _MERGE and key.plain:
                merges.append((key, value))
            elif key.text in mapping.entries:
                self._duplicate(mapping.entries[key.text].key, key)
            else:
                mapping.entries[key.text] = Entry(key, value)
            self._path.pop()
        for key, value in merges:
            self._merge(mapping, key, value)
        return mapping

    def _key(self, event: Any) -> Scalar:
        node = self._node(event)
        if isinstance(node, Scalar):
            return node
        raise self._refusal(event, "a key must be text, not a list or a mapping")

    def _merge(self, mapping: Mapping, key: Scalar, value: Node) -> None:
        for source in value.items if isinstance(value, Sequence) else [value]:
            if not isinstance(source, Mapping):
                message = "<< takes a mapping or a list of mappings"
                raise ConfigError([self._problem(key.line, key.column, message)])
            for name, entry in source.entries.items():
                mapping.entries.setdefault(name, Entry(entry.key, entry.value, merged=True))

    def _duplicate(self, first: Scalar, again: Scalar) -> None:
        if len(self.problems) > MAX_PROBLEMS:
            return  # as many as are listed, and one that tells that there are more
        message = f"the key is written twice: on line {first.line} and on line {again.line}"
        self.problems.append(self._problem(again.line, again.column, message))

    def _refusal(self, event: Any, message: str) -> ConfigError:
        return ConfigError([*self.problems, self._problem(*_place(event), message)])

    def _problem(self, line: int, column: int, message: str) -> Problem:
        path: Path = tuple(self._path)
        return Problem(dotted(path), message, file=self._file, line=line, column=column)


def _cut(name: str) -> str:
    return name if len(name) <= _SHOWN_NAME else f"{name[:_SHOWN_NAME]}..."


def _place(event: Any) -> tuple[int, int]:
    return event.start_mark.line + 1, event.start_mark.column + 1
