"""Where the Python of a worker's engine is, found without running anything of the operator's.

The program is looked up as the launcher would, its first lines name its interpreter, and the
interpreter's place tells where its packages are.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_HEAD_BYTES = 4096
_PYTHON = re.compile(r"(?:python|pypy)(\d(?:\.\d+)?)?")
_LONG_SHEBANG = re.compile(rb"^'''exec' (?:\"([^\"]+)\"|(\S+)) ", re.MULTILINE)
_WRAPPERS = frozenset(
    {"sh", "bash", "dash", "docker", "podman", "nerdctl", "uv", "conda", "mamba", "micromamba"}
    | {"env", "nice", "numactl", "srun", "mpirun", "taskset"}
)


@dataclass(frozen=True, slots=True)
class Home:
    """An interpreter and the directories that it finds its packages in, the first ones first."""

    python: Path
    folders: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Nowhere:
    """Why nobody can tell where it is. `missing`: the program itself is not there."""

    why: str
    missing: bool = False


def find_home(
    argv: tuple[str, ...], cwd: str | None, environment: Mapping[str, str]
) -> Home | Nowhere:
    """The home of a command's engine."""
    name = Path(argv[0]).name
    if name in _WRAPPERS:
        return Nowhere(f"its command is a wrapper ({name}), whose engine is not looked for")
    program = _program(argv[0], cwd, environment)
    if program is None:
        place = "" if "/" in argv[0] else " on the PATH that it would have"
        return Nowhere(f"there is no program {argv[0]}{place}", missing=True)
    if _PYTHON.fullmatch(program.name):
        return _home_of(program, environment)
    interpreter = _interpreter(program, environment)
    if interpreter is None:
        return Nowhere(f"{program} is no Python program")
    return _home_of(interpreter, environment)


def _program(word: str, cwd: str | None, environment: Mapping[str, str]) -> Path | None:
    if "/" in word:
        path = Path(cwd or "/") / word
        return path if path.is_file() else None
    found = shutil.which(word, path=environment.get("PATH", os.defpath))
    return None if found is None else Path(found)


def _interpreter(program: Path, environment: Mapping[str, str]) -> Path | None:
    """Whom the first line names; where that would be too long, pip writes three lines."""
    try:
        with program.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    except OSError:
        return None
    if not head.startswith(b"#!"):
        return None
    words = head[2:].split(b"\n", 1)[0].decode("utf-8", "replace").split()
    long = _LONG_SHEBANG.search(head)
    if long is not None:
        words = [os.fsdecode(long[1] or long[2])]
    if words and Path(words[0]).name == "env":
        rest = [word for word in words[1:] if not word.startswith("-")]
        found = shutil.which(rest[0], path=environment.get("PATH", os.defpath)) if rest else None
        words = [] if found is None else [found]
    is_python = bool(words) and _PYTHON.fullmatch(Path(words[0]).name) is not None
    return Path(words[0]) if is_python and Path(words[0]).exists() else None


def _home_of(python: Path, environment: Mapping[str, str]) -> Home:
    extra = [Path(part) for part in environment.get("PYTHONPATH", "").split(":") if part]
    own = python.parent.parent
    settings = _settings(own / "pyvenv.cfg")
    if settings is None:
        return Home(python, (*extra, *_base_folders(python)))
    folders = list(_packages(own, ""))
    if settings.get("include-system-site-packages", "").lower() == "true":
        folders += _base_folders(python)
    return Home(python, (*extra, *folders))


def _settings(path: Path) -> dict[str, str] | None:
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return None
    pairs = (line.partition("=") for line in lines)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _base_folders(python: Path) -> Iterator[Path]:
    """Those of an interpreter that is no virtual environment."""
    real = Path(os.path.realpath(python))
    match = _PYTHON.fullmatch(real.name)
    version = (match[1] if match else None) or ""
    version = version if "." in version else ""
    for prefix in dict.fromkeys((Path("/usr/local"), real.parent.parent)):
        yield from _packages(prefix, version)
    debian = Path("/usr/lib/python3/dist-packages")
    if real.parent == Path("/usr/bin") and debian.is_dir():
        yield debian


def _packages(prefix: Path, version: str) -> Iterator[Path]:
    for folder in ("site-packages", "dist-packages"):
        for lib in ("lib", "lib64"):
            for path in sorted((prefix / lib).glob(f"python{version or '3*'}/{folder}")):
                if not path.parent.parent.is_symlink():  # lib64 is most often lib itself
                    yield path
