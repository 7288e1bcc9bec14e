"""Files that are no configuration, as they lie on disks: what O-YAML-4 and O-YAML-5 list.

Run as a program with a directory it checks each file in there with `stepwarden check`, and prints
one JSON object: of each the exit code, the lines, the seconds of CPU and the growth of memory.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import resource
import sys
import time
from pathlib import Path

GOOD = b"workers:\n  w1: {command: [a], backend: cpu}\n"
MIB = 1 << 20

BOMB = b"a: &a [x,x,x,x,x,x,x,x,x]\n" + b"".join(
    b"%c: &%c [%s]\n" % (name, name, b",".join([b"*%c" % last] * 9))
    for last, name in zip(b"abcdefgh", b"bcdefghi", strict=True)
)

# O-YAML-4
HUGE: dict[str, bytes] = {
    "alias bomb": BOMB,
    "alias bomb in a worker": BOMB + b"workers: {w: *i}\n",
    "alias bomb in an extension": BOMB.replace(b"a: &a", b"x-a: &a", 1) + GOOD,
    "deep brackets": b"[" * 500 + b"]" * 500,
    "deep brackets below a key": b"a: " + b"[" * 500 + b"]" * 500,
    "very deep brackets": b"[" * 100_000,
    "deep braces": b"{a: " * 5000 + b"}" * 5000,
    "deep indentation": b"".join(b" " * n + b"a:\n" for n in range(500)),
    "self reference": b"a: &a [*a]\n",
    "worker in itself": b"workers: &w {w1: *w}\n",
    "merge of itself": b"workers: &w {<<: *w}\n",
    "50 MB": b"# comment\n" * (5 * MIB),
    "1 MB in a line": b"x" * MIB,
    "1 MB in a value": b"workers: {w1: {command: [" + b"x" * MIB + b"], backend: cpu}, w1: 5}\n",
    "1 MB in a key": b"? " + b"x" * MIB + b"\n: 1\n",
    "1 MB in an anchor": b"a: &" + b"x" * MIB + b" 1\n",
    "1 MB in a wrong value": b"supervisor: {runner: " + b"x" * MIB + b"}\n" + GOOD,
    "1 MB in a worker's name": b"workers: {" + b"x" * MIB + b": {command: [a]}}\n",
    "1 MB in a duration": b"defaults: {stop: {grace: " + b"9" * MIB + b"s}}\n" + GOOD,
}

# Not in the list, and each wrong in thousands of places.
MANY: dict[str, bytes] = {
    "wrong keys": GOOD + b"".join(b"k%d: 1\n" % number for number in range(40_000)),
    "double keys": GOOD + b"a: 1\n" * 40_000,
    "workers without a command": b"workers:\n"
    + b"".join(b"  w%d: {}\n" % number for number in range(10_000)),
    "workers of no backend": b"backends:\n"
    + b"".join(b"  b%d: {step: {rows: {1: 5s}}}\n" % number for number in range(3000))
    + b"workers:\n"
    + b"".join(b"  w%d: {command: [a], backend: c}\n" % number for number in range(3000)),
    "numbers for texts": b"workers: {w: {backend: cpu, command: [" + b"5," * 40_000 + b"5]}}\n",
}

# O-YAML-5
MALFORMED: dict[str, bytes] = {
    "latin-1": b"# caf\xe9\n" + GOOD,
    "utf-16": GOOD.decode().encode("utf-16"),
    "utf-16 without a mark": GOOD.decode().encode("utf-16-le"),
    "nul": b"workers:\n  a\0b: 1\n",
    "bell": b"a: \x07\n",
    "tab indent": b"a:\n\tb: 1\n",
    "tab after colon": b"a:\tb\n",
    "empty": b"",
    "only comments": b"# nothing\n# here\n",
    "only a byte order mark": b"\xef\xbb\xbf",
    "list": b"- a\n",
    "text": b"just text\n",
    "two documents": GOOD + b"---\n" + GOOD,
    "python tag": b"!!python/object/apply:os.system [id]\n",
    "python tag below a key": b"workers: !!python/object/apply:os.system [id]\n",
    "own tag": b"workers: !ENV X\n",
    "complex key": b"? [1,2]\n: x\n",
    "undefined alias": b"workers: *x\n",
    "key without space": b"{a:1}\n",
    "bare directive": b"a: %x\n",
    "unclosed quote": b'a: "x\n',
    "an accent in a key": "workers: {\u00e9t\u00e9: {command: [a]}}\n".encode(),
    "an accent in a value": "supervisor: {runner: \u00e9t\u00e9}\n".encode() + GOOD,
    "escapes for a terminal": b'supervisor: {runner: "\\e[31mred\\u2028\\uD800"}\n' + GOOD,
}

LOADS: dict[str, bytes] = {
    "good": GOOD,
    "byte order mark": b"\xef\xbb\xbf" + GOOD,
    "line ends of Windows": GOOD.replace(b"\n", b"\r\n"),
    "comment with an accent": "# caf\u00e9\n".encode() + GOOD,
    "byte order mark and line ends": b"\xef\xbb\xbf" + GOOD.replace(b"\n", b"\r\n"),
}

PLACED = frozenset(MALFORMED) - {"empty", "only comments", "only a byte order mark"}
"""Their messages name line and column."""

SPECIAL = ("pipe", "directory", "zeros", "missing", "mode 000")
WATCHED_BYTES = 50 * MIB


def write_all(directory: Path) -> dict[str, Path]:
    """Make every file; the path of each by its name."""
    contents = HUGE | MANY | MALFORMED | LOADS
    paths = {name: directory / f"{name.replace(' ', '-')}.yaml" for name in (*contents, *SPECIAL)}
    for name, data in contents.items():
        paths[name].write_bytes(data)
    os.mkfifo(paths["pipe"])
    paths["directory"].mkdir()
    paths["zeros"].symlink_to("/dev/zero")
    paths["mode 000"].write_bytes(GOOD)
    paths["mode 000"].chmod(0)
    return paths


def _check(path: Path) -> dict[str, object]:
    from stepwarden.cli.main import main

    out = io.TextIOWrapper(raw := io.BytesIO(), encoding=sys.stdout.encoding, errors="strict")
    before = _peak()
    begin = time.process_time()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = main(["check", str(path)])
    seconds = time.process_time() - begin
    out.flush()
    text = raw.getvalue().decode("ascii", "surrogateescape")
    return {"code": code, "text": text, "seconds": seconds, "grown": _peak() - before}


def _peak() -> int:
    """Bytes of memory that this process ever had."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _check_all(directory: Path) -> None:
    _check(directory / "good.yaml")  # imports are not what is measured
    found = {}
    # The mode of a file holds back a user, not root; nothing is checked as root after this.
    for path in sorted(directory.iterdir(), key=lambda path: path.name == "mode-000.yaml"):
        if path.name == "mode-000.yaml" and os.geteuid() == 0:
            os.seteuid(65534)
        found[path.stem] = _check(path)
    found["missing"] = _check(directory / "missing.yaml")
    print(json.dumps(found))


if __name__ == "__main__":
    _check_all(Path(sys.argv[1]))
