"""What the repository ships: examples, schema and reference agree with the loader."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from stepwarden.config import Config, load
from stepwarden.config.effective import effective_yaml
from stepwarden.config.loader import load_text
from stepwarden.config.nodes import Mapping, Node, Sequence, compose
from stepwarden.config.reference import markdown
from stepwarden.config.schema import json_schema
from stepwarden.config.values import parse_number, parse_whole
from support.loading import RICH
from support.published import ENVIRONMENT, ROOT, load_published

ANNOTATED = ROOT / "config" / "stepwarden.yaml"
FILES = sorted([*(ROOT / "config").glob("*.yaml"), *(ROOT / "config" / "examples").glob("*.yaml")])
NAMES = [str(path.relative_to(ROOT)) for path in FILES]


def as_editors_see(node: Node | None) -> Any:
    """The data that a YAML 1.2 reader hands to a schema checker."""
    if isinstance(node, Mapping):
        return {name: as_editors_see(entry.value) for name, entry in node.entries.items()}
    if isinstance(node, Sequence):
        return [as_editors_see(item) for item in node.items]
    if node is None or (node.plain and node.text in ("", "~", "null")):
        return None
    if node.plain and node.text in ("true", "false"):
        return node.text == "true"
    digits = node.text.removeprefix("-")
    number = parse_whole(digits)
    found = parse_number(digits) if number is None else number
    if found is None or not node.plain:
        return node.text
    return found if digits == node.text else -found


def schema_errors(text: str) -> list[str]:
    validator = jsonschema.Draft202012Validator(json_schema())
    data = as_editors_see(compose(text, "c.yaml").root)
    return [error.message for error in validator.iter_errors(data)]


def without_path(config: Config) -> tuple[object, ...]:
    return config.supervisor, config.workers, config.backends, config.groups


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_every_published_file_can_be_used_and_its_effective_form_says_the_same(
    path: Path, tmp_path: Path
) -> None:
    config = load_published(path, tmp_path)
    again = load_text(effective_yaml(config), path, ENVIRONMENT)
    assert without_path(again) == without_path(config)


def test_the_annotated_file_gives_no_warning() -> None:
    assert load(ANNOTATED, {}).warnings == ()


@pytest.mark.parametrize("path", FILES, ids=NAMES)
def test_the_schema_accepts_every_published_file(path: Path) -> None:
    assert schema_errors(path.read_text()) == []


def test_the_schema_accepts_every_key_of_a_worker() -> None:
    assert schema_errors(RICH) == []


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(json_schema())


@pytest.mark.parametrize(
    "text",
    [
        "worker: {w: {command: [a]}}",
        "workers: {}",
        "workers: {w: {comand: [a]}}",
        "workers: {w: {command: [a], shell: b}}",
        "workers: {w: {backend: cpu}}",
        "workers: {w: {command: a b}}",
        "workers: {w: {command: [a, 5]}}",
        "workers: {w: {command: [a], engine: vlm}}",
        "workers: {w: {command: [a], autostart: yes}}",
        "workers: {w: {command: [a], max_num_seqs: 0}}",
        "workers: {w: {command: [a], startup: {budget: 1:30}}}",
        "workers: {w: {command: [a], startup: {budget: 5 minutes}}}",
        'workers: {w: {command: [a], startup: {budget: "30"}}}',
        "workers: {w: {command: [a], startup: {budget: -5}}}",
        "workers: {w: {command: [a], startup: }}",
        "workers: {w: {command: [a], step: {base: 5, rows: {1: 5}}}}",
        "workers: {w: {command: [a], step: {rows: {010: 5}}}}",
        "workers: {w: {command: [a], env: {A: 5}}}",
        "workers: {w: {command: [a], env: {STEPWARDEN_X: a}}}",
        "workers: {'w 1': {command: [a]}}",
        "workers: {w: {command: [a], x-note: hi}}",
        "workers: {w: {unit: a.service, shell: b}}",
        "workers: {w: {unit: a.socket}}",
        "workers: {w: {attach: {}}}",
        "workers: {w: {command: [a], umask: 027}}",
        "workers: {w: {command: [a], nice: 20}}",
        "workers: {w: {command: [a], limits: {nofile: many}}}",
        "workers: {w: {command: [a], output: {mode: capture, max_file: 100 MiB}}}",
        "workers: {w: {command: [a], ready: {tcp: 'a:1', delay: 5s}}}",
        "workers: {w: {command: [a], ready: {http: 'ftp://a/'}}}",
        "workers: {w: {command: [a], env_file: []}}",
        "workers: {w: {command: [a], release: {ports: [0]}}}",
        "workers: {w: {command: [a], progress: {url: 'http://a/', counter: c}}}",
        "workers: {w: {command: [a]}}\ngroups: {g: {members: []}}",
        "workers: {w: {command: [a]}}\ngroups: {g: {members: [w], on_dead: all}}",
        'supervisor: {metrics: {listen: "127.0.0.1"}}\nworkers: {w: {command: [a]}}',
    ],
)
def test_the_schema_refuses_what_the_loader_refuses(text: str) -> None:
    assert schema_errors(text)
    with pytest.raises(Exception, match=r"c\.yaml"):
        load_text(text, Path("c.yaml"), {})


def test_the_committed_schema_and_reference_are_fresh() -> None:
    renew = "run: stepwarden schema > config/schema.json;"
    renew += " stepwarden schema --markdown > docs/configuration.md"
    # As data: the order of keys is pydantic's own affair.
    assert json.loads((ROOT / "config" / "schema.json").read_text()) == json_schema(), renew
    assert (ROOT / "docs" / "configuration.md").read_text() == markdown(), renew


def test_the_annotated_file_and_the_reference_explain_every_key() -> None:
    schema = json_schema()
    sections = [schema, *schema["$defs"].values()]
    keys = {key for section in sections for key in section.get("properties", {})}
    annotated = ANNOTATED.read_text()
    missing = [key for key in keys if not re.search(rf'^[ #]*(- )?"?{key}"?:', annotated, re.M)]
    assert not missing
    reference = markdown()
    assert not [key for key in keys if f"| `{key}` |" not in reference]


def test_the_annotated_file_says_the_shipped_defaults() -> None:
    said = load(ANNOTATED, {}).plain_worker
    assert said == load_text("workers: {w: {command: [a]}}", ANNOTATED, {}).plain_worker
