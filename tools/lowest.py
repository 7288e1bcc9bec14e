"""Print the lowest version that pyproject.toml allows of each runtime dependency.

The output is a constraints file for pip: ``name==version`` for each ``name>=version``.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
RUNTIME_EXTRAS = ("daemon", "demo")
BOUND = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)>=(?P<version>[0-9.]+)$")


def lowest(requirements: list[str]) -> list[str]:
    """``name==version`` lines; a requirement without a plain lower bound is an error."""
    lines = []
    for requirement in requirements:
        match = BOUND.match(requirement)
        if match is None:
            raise SystemExit(f"lowest: {requirement!r} in {PROJECT.name} is not NAME>=VERSION")
        lines.append(f"{match['name']}=={match['version']}")
    return lines


def main() -> int:
    """Print the constraints."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    requirements = list(project["dependencies"])
    for extra in RUNTIME_EXTRAS:
        requirements += project["optional-dependencies"][extra]
    print("\n".join(lowest(requirements)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
