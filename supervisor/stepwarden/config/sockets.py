"""Where the daemon of a configuration file is found, without checking the rest of the file."""

from __future__ import annotations

import re
from pathlib import Path

from stepwarden.config.findings import Findings
from stepwarden.config.nodes import Document, Mapping, Scalar, compose
from stepwarden.config.problems import ConfigError
from stepwarden.config.source import read_text

DEFAULT_RUNTIME_DIR = "/run/stepwarden"
DEFAULT_STATE_DIR = "/var/lib/stepwarden"
ADMIN_SOCKET = "admin.sock"


def find_admin_socket(path: Path) -> Path:
    """The admin socket that this file names, or the shipped one.

    Raises ConfigError where the file cannot be read or the two keys are no absolute paths. Cheap
    on purpose: the rest of the file is not looked at, since the daemon has checked it. An edit that
    broke it somewhere else must not keep the operator from asking the daemon what is wrong.
    """
    document = _document(path)
    socket = _path(document, "admin_socket")
    if socket is not None:
        return Path(socket)
    return Path(_path(document, "runtime_dir") or DEFAULT_RUNTIME_DIR) / ADMIN_SOCKET


def find_state_dir(path: Path) -> Path:
    """The state directory that this file names, or the shipped one. ConfigError as above."""
    document = _document(path)
    return Path(_path(document, "state_dir") or DEFAULT_STATE_DIR)


def _document(path: Path) -> Document:
    """The file; of one that is no good YAML, its `supervisor` section as far as it can be read."""
    text = read_text(path)
    try:
        return compose(text, str(path))
    except ConfigError:
        start = re.search(r"^supervisor:.*\n(?:[ \t#].*\n|\n)*", text, re.MULTILINE)
        if start is None:
            raise
        try:
            return compose(start[0], str(path))
        except ConfigError:
            pass
        raise


def _path(document: Document, key: str) -> str | None:
    """The path that stands at supervisor.KEY; None where nothing does."""
    findings = Findings(document)
    node = document.root
    if node is None:
        return None
    for step in ("supervisor", key):
        if not isinstance(node, Mapping):
            findings.error(("supervisor",), "is not a mapping")
            raise ConfigError(findings.problems())
        if step not in node.entries:
            return None
        node = node.entries[step].value
    if not isinstance(node, Scalar) or not node.text.startswith("/") or "\0" in node.text:
        findings.error(("supervisor", key), "is not a path", "an absolute path")
        raise ConfigError(findings.problems())
    return node.text
