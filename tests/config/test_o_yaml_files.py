"""Files that are no configuration: each is refused in one printable line, quickly."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from stepwarden.config import ConfigError, load, nodes

GOOD = b"workers:\n  w1: {command: [a], backend: cpu}\n"

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join(['*' + last] * 9)}]\n"
    for last, name in zip("abcdefgh", "bcdefghi", strict=True)
)
LADDER = "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [*a{n}]\n" for n in range(600))
REFUSED: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "only comments": (b"# nothing\n# here\n", "empty"),
    "list": (b"- a\n", "not a mapping"),
    "text": (b"just text\n", "not a mapping"),
    "two documents": (GOOD + b"---\n" + GOOD, ":3:1: error: a second document"),
    "latin-1": (b"# caf\xe9\n" + GOOD, ":1:6: error: byte 0xE9 is not UTF-8"),
    "utf-16": (GOOD.decode().encode("utf-16"), "UTF-16"),
    "nul": (b"workers:\n  a\0b: 1\n", ":2:4: error: control character 0x00"),
    "bell": (b"a: \x07\n", "control character 0x07"),
    "tab indent": (b"a:\n\tb: 1\n", ":2:1: error: not valid YAML: a tab stands here"),
    "tab further on": (b"a:\n  b: 1\n  \tc: 1\n", ":3:3: error: not valid YAML: a tab"),
    "python tag": (b"workers: !!python/object/apply:os.system [id]\n", "tags are not accepted"),
    "own tag": (b"workers: !ENV X\n", "tags are not accepted"),
    "complex key": (b"? [1, 2]\n: x\n", "a key must be text"),
    "undefined alias": (b"workers: *x\n", "has no anchor"),
    "bare directive": (b"a: %x\n", ":1:4:"),
    "unclosed quote": (b'a: "x\n', "not valid YAML"),
    "alias bomb": (BOMB.encode(), "aliases expand"),
    "deep brackets": (b"a: " + b"[" * 500 + b"]" * 500, "nested deeper"),
    "deep by aliases": (LADDER.encode(), "nested deeper"),
    "deep extension": (b"x-a: " + b"[" * 500 + b"]" * 500 + b"\n" + GOOD, "nested deeper"),
    "self reference": (b"a: &a [*a]\n", "inside its own anchor"),
    "worker in itself": (b"workers: &w {w1: *w}\n", "inside its own anchor"),
    "many values": (b"a: [" + b"x," * 300_000 + b"x]", "more than 200000 values"),
    "large": (b"#" * (5 * 1024 * 1024), "larger than 4 MiB"),
    "one long line": (b"a: " + b"x" * 1_000_000, "unknown key"),
    "merge of text": (b"workers: {<<: x}\n", "<< takes a mapping"),
    "name with an accent": ("workers: {\u00e9: {command: [a]}}".encode(), "\\xe9"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_o_yaml_5_and_4_files_that_are_no_configuration(case: str, tmp_path: Path) -> None:
    data, message = REFUSED[case]
    file = tmp_path / "c.yaml"
    file.write_bytes(data)
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    text = str(caught.value)
    assert message in text
    assert text.isascii()
    assert len(caught.value.problems) <= 2
    assert all(len(line) < 600 for line in text.splitlines())


@pytest.mark.parametrize("case", [name for name in REFUSED if len(REFUSED[name][0]) < 100_000])
def test_the_parser_in_plain_python_refuses_the_same(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nodes, "_LOADER", yaml.SafeLoader)
    test_o_yaml_5_and_4_files_that_are_no_configuration(case, tmp_path)


@pytest.mark.parametrize(
    "data",
    [b"\xef\xbb\xbf" + GOOD, GOOD.replace(b"\n", b"\r\n"), "# caf\u00e9\n".encode() + GOOD],
    ids=["byte order mark", "CRLF", "UTF-8 comment"],
)
def test_o_yaml_5_harmless_encodings_load(data: bytes, tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(data)
    assert list(load(file, {}).workers) == ["w1"]


def test_o_yaml_5_what_is_no_regular_file_is_refused_without_waiting(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    for path in (fifo, tmp_path, Path("/dev/zero"), Path("/dev/null")):
        with pytest.raises(ConfigError, match="is not a regular file"):
            load(path, {})
    with pytest.raises(ConfigError, match="cannot be opened: No such file"):
        load(tmp_path / "missing", {})
    with pytest.raises(ConfigError, match="NUL"):
        load(Path("a\0b"), {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_o_yaml_5_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_bytes(GOOD)
    file.chmod(0)
    with pytest.raises(ConfigError, match="Permission denied"):
        load(file, {})


def test_problems_are_sorted_by_place_and_printable(tmp_path: Path) -> None:
    file = tmp_path / "c\u00e9.yaml"
    file.write_text("workers:\n  w1: {comand: [a]}\nx: \u2028\n")
    with pytest.raises(ConfigError) as caught:
        load(file, {})
    lines = [problem.line for problem in caught.value.problems]
    assert lines == sorted(lines, key=lambda line: line or 0)
    assert str(caught.value).isascii()
