"""Collects problems and finds the place of each in the file."""

from __future__ import annotations

from collections.abc import Iterable

from stepwarden.config.nodes import Document, Mapping, Node, Scalar, Sequence
from stepwarden.config.problems import ERROR, MAX_PROBLEMS, WARNING, Path, Problem, dotted


class Findings:
    """The problems of one file, in the order of the file, each said once.

    Of each severity MAX_PROBLEMS are kept, and a last one says that there are more.
    """

    def __init__(self, document: Document) -> None:
        self.document = document
        self._problems: dict[Problem, None] = {}
        self._room = {ERROR: MAX_PROBLEMS, WARNING: MAX_PROBLEMS}
        self._unsaid: set[str] = set()
        self._spoilt: set[Path] = set()
        self._keep(document.problems)

    def error(
        self,
        path: Path,
        message: str,
        accepted: str = "",
        suggestion: str = "",
        at_key: bool = False,
    ) -> None:
        """Something that keeps the file from being used; `at_key`: it is the key that is wrong."""
        self._spoilt.update(path[:length] for length in range(len(path) + 1))
        self._add(path, message, ERROR, accepted, suggestion, at_key)

    def consequence(self, path: Path, message: str, accepted: str = "") -> None:
        """An error that may only follow from another at or below this path: then unsaid."""
        if path not in self._spoilt:
            self.error(path, message, accepted)

    def warning(self, path: Path, message: str) -> None:
        """Something that works, though hardly as it is meant."""
        self._add(path, message, WARNING)

    def problems(self, severity: str | None = None) -> tuple[Problem, ...]:
        """What was found so far, by place; of one severity only, where it is given."""
        chosen = [p for p in self._problems if severity in (None, p.severity)]
        chosen.sort(key=lambda p: (p.line or 0, p.column or 0))
        unsaid = sorted(self._unsaid if severity is None else self._unsaid & {severity})
        return (*chosen, *(self._more(kind) for kind in unsaid))

    def _more(self, severity: str) -> Problem:
        text = f"there are more than {MAX_PROBLEMS} {severity}s; the others are not listed"
        return Problem("", text, severity, self.document.file)

    @property
    def full(self) -> bool:
        """True once a further error is not listed: no need to say how it could be mended."""
        return not self._room[ERROR]

    def written(self, path: Path) -> bool:
        """True where the file itself holds this path."""
        node: Node | None = self.document.root
        for step in path:
            node = _child(node, step)
            if node is None:
                return False
        return True

    def home(self, worker: str, *keys: str) -> Path:
        """Where a shared key is written: at the worker or in the defaults; nowhere: the worker."""
        own: Path = ("workers", worker, *keys)
        shared: Path = ("defaults", *keys)
        if self.written(own):
            return own
        return shared if self.written(shared) else own[:2]

    def elsewhere(self, problems: Iterable[Problem]) -> None:
        """Problems of another file that this one names."""
        self._spoilt.add(())
        self._keep(problems)

    def _keep(self, problems: Iterable[Problem]) -> None:
        for problem in problems:
            if problem in self._problems:
                continue
            if self._room[problem.severity]:
                self._problems[problem] = None
                self._room[problem.severity] -= 1
            else:
                self._unsaid.add(problem.severity)

    def _add(
        self,
        path: Path,
        message: str,
        severity: str,
        accepted: str = "",
        suggestion: str = "",
        at_key: bool = False,
    ) -> None:
        if not self._room[severity]:
            self._unsaid.add(severity)
            return
        line, column = self._place(path, at_key)
        problem = Problem(
            dotted(path),
            message,
            severity,
            self.document.file,
            line,
            column,
            accepted,
            suggestion,
        )
        self._keep([problem])

    def _place(self, path: Path, at_key: bool) -> tuple[int, int]:
        """Of the value where it is text, else of its key; of the nearest one above else.

        `at_key`: of the key in any case.
        """
        node = self.document.root
        if node is None:
            return 1, 1
        place = (node.line, node.column)
        for step in path:
            child = _child(node, step)
            if child is None:
                break
            key: Node = child
            is_text = isinstance(child, Scalar) and child.text
            if isinstance(node, Mapping) and (at_key or not is_text):
                key = node.entries[str(step)].key
            place = (key.line, key.column)
            node = child
        return place


def _child(node: Node | None, step: str | int) -> Node | None:
    if isinstance(node, Mapping):
        entry = node.entries.get(str(step))
        return entry.value if entry else None
    if isinstance(node, Sequence) and isinstance(step, int) and step < len(node.items):
        return node.items[step]
    return None
