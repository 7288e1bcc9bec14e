"""The real daemon and what surrounds it: who may reach its sockets, and the ways it is ended."""

from __future__ import annotations

import grp
import os
import signal
import stat

import pytest
from support.daemon import Daemon

SLEEPER = """\
workers:
  sleeper: {backend: cpu, agent: none, command: [sleep, "1000"]}
"""


def another_group() -> grp.struct_group:
    """A group that a file of ours may be given to, not our own if there is one."""
    mine = [1] if os.geteuid() == 0 else os.getgroups()
    others = [gid for gid in mine if gid != os.getegid()]
    return grp.getgrgid(others[0] if others else os.getegid())


def test_both_sockets_have_the_mode_and_group_of_the_file() -> None:
    group = another_group()
    lines = f'  socket_mode: "0660"\n  socket_group: {group.gr_name}\n'
    with Daemon(SLEEPER, supervisor=lines) as daemon:
        sockets = sorted((daemon.directory / "run").glob("*.sock"))
        assert [path.name for path in sockets] == ["admin.sock", "agent.sock"]
        facts = [path.stat() for path in sockets]
        assert [(stat.S_IMODE(f.st_mode), f.st_gid) for f in facts] == [(0o660, group.gr_gid)] * 2


def test_without_a_word_only_our_user_reaches_the_sockets() -> None:
    with Daemon(SLEEPER) as daemon:
        sockets = (daemon.directory / "run").glob("*.sock")
        assert {stat.S_IMODE(path.stat().st_mode) for path in sockets} == {0o600}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_and_term_leave_nothing(number: signal.Signals) -> None:
    with Daemon(SLEEPER) as daemon:
        daemon.wait_state("sleeper", "HEALTHY")
        assert "sleep" in {process.name() for process in daemon.tree()}
        os.kill(daemon.pid, number)
        assert daemon.process is not None
        assert daemon.process.wait(30) == 0
        daemon.process = None
        daemon.assert_nothing_left()
