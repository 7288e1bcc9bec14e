"""Where the daemon is found although an edit broke its file."""

from __future__ import annotations

from pathlib import Path

import pytest
from stepwarden.config.problems import ConfigError
from stepwarden.config.sockets import find_admin_socket, find_state_dir

HEAD = """# ours
supervisor:
  runtime_dir: /run/ours

  # what outlives a reboot
  state_dir: /var/lib/ours
"""


@pytest.mark.parametrize(
    "rest",
    [
        "workers: [\n",
        "workers:\n  a: {command: [x]}\n  a: {command: [y]}\n",
        "workers:\n\ta: 1\n",
        "workers: {a: &x [*x]}\n",
    ],
    ids=["open bracket", "duplicate", "tab", "alias in itself"],
)
def test_a_file_that_is_broken_elsewhere_still_says_where_its_daemon_is(
    tmp_path: Path, rest: str
) -> None:
    file = tmp_path / "f.yaml"
    for text in (HEAD + rest, rest + HEAD if "[\n" not in rest else HEAD + rest):
        file.write_text(text)
        assert find_admin_socket(file) == Path("/run/ours/admin.sock")
        assert find_state_dir(file) == Path("/var/lib/ours")


@pytest.mark.parametrize("text", ["workers: [\n", "supervisor: {runtime_dir: [\n"])
def test_one_that_does_not_say_it_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "f.yaml").write_text(text)
    with pytest.raises(ConfigError):
        find_admin_socket(tmp_path / "f.yaml")
