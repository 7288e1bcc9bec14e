"""Which control groups a service may make below its own, in a real systemd."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import stepwarden
from support import systemd_box
from support.systemd_box import SystemdBox
from support.systemd_init import SHARE

SYSTEM_PYTHON = "/usr/bin/python3"
# As a service: makes a group for a life, starts a process in there, kills it, clears up.
PROGRAM = """
import json, os, subprocess, sys
from stepwarden.edge.cgroup import make_cgroup, make_home, own_cgroup, remove_home
home, found = make_home(), None
if home is not None:
    life = make_cgroup(home, "w.1.abc")
    process = subprocess.Popen(["/bin/sleep", "600"])
    life.add(process.pid)
    populated, others = life.populated, life.processes() == {process.pid}
    killed = life.kill() and process.wait(10) == -9
    found = [populated, others, killed, life.oom_kills(), life.remove(), remove_home(home)]
print(json.dumps([str(home and home.relative_to(own_cgroup())), found]))
"""
UNIT = f"""\
[Service]
Type=oneshot
User={{user}}
Delegate={{delegate}}
ExecStart={SYSTEM_PYTHON} {SHARE}/program.py
StandardOutput=file:{SHARE}/{{name}}.out
"""


def unmet() -> str | None:
    """Why these tests cannot run here."""
    modern = "import sys; sys.exit(sys.version_info < (3, 11))"
    if (reason := systemd_box.missing()) is not None:
        return reason
    if subprocess.run([SYSTEM_PYTHON, "-c", modern], check=False, capture_output=True).returncode:
        return f"{SYSTEM_PYTHON} is older than 3.11"
    return None


REASON = unmet()
pytestmark = [
    pytest.mark.systemd,
    pytest.mark.timeout(300),
    pytest.mark.skipif(REASON is not None, reason=REASON or ""),
]


@pytest.fixture(scope="module")
def box() -> Iterator[SystemdBox]:
    folder = Path(tempfile.mkdtemp(prefix="sw-box-", dir="/var/tmp"))
    folder.chmod(0o755)
    try:
        with SystemdBox(folder) as box:
            source = Path(stepwarden.__file__).parent
            shutil.copytree(source, box.share / "stepwarden")
            (box.share / "program.py").write_text(PROGRAM)
            os.chmod(box.share, 0o755)
            yield box
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("user", ["root", "nobody"])
@pytest.mark.parametrize("delegated", [True, False])
def test_groups_of_lives_are_made_where_systemd_gave_its_own_away(
    box: SystemdBox, user: str, delegated: bool
) -> None:
    """Root could make them anywhere; what was not delegated stays systemd's all the same."""
    name = f"{user}-{delegated}"
    unit = UNIT.format(user=user, delegate="yes" if delegated else "no", name=name)
    (box.share / f"{name}.service").write_text(unit)
    box.run("cp", f"{SHARE}/{name}.service", "/run/systemd/system/")
    box.run("systemctl", "daemon-reload")
    box.run("systemctl", "start", f"{name}.service")
    home, found = json.loads((box.share / f"{name}.out").read_text())
    if delegated:
        assert (home, found) == ("workers", [True, True, True, found[3], True, True])
    else:
        assert (home, found) == ("None", None)
