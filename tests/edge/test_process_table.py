from __future__ import annotations

import os

import pytest
from stepwarden.core.evidence import ProcessId
from stepwarden.edge.process_table import Proc, ProcessTable, parse_stat, read_process

TAIL = b" S 7 42 43 0 -1 4194560 1 2 3 4 100 50 30 20 20 0 3 0 9876 1 2 3 4 5\n"


@pytest.mark.parametrize(
    "name", [b"python3", b"tmux: server", b"a) R 1 1 (b", b")))", b"", b"new\nline", b"\xff\xfe"]
)
def test_the_command_name_may_hold_anything(name: bytes) -> None:
    entry = parse_stat(b"12 (" + name + b")" + TAIL)
    assert entry == Proc(12, 7, 43, 9876, "S", 3, 200 / os.sysconf("SC_CLK_TCK"))
    assert entry is not None
    assert entry.process == ProcessId(12, 9876)


def test_threads_of_the_kernel_are_left_out() -> None:
    assert parse_stat(b"3 (kworker/0:0)" + TAIL.replace(b"4194560", b"69238880")) is None


@pytest.mark.parametrize("line", [b"", b"12 (x", b"12 (x) S 1", b"x (x)" + TAIL, b"\0" * 80])
def test_what_is_no_stat_line_is_none(line: bytes) -> None:
    assert parse_stat(line) is None


def proc(pid: int, ppid: int, session: int = 1, start: int = 5, state: str = "S") -> Proc:
    return Proc(pid, ppid, session, start, state, 1, 0.0)


def test_descendants_stop_at_what_is_barred_and_at_other_identities() -> None:
    table = ProcessTable([proc(10, 1), proc(11, 10), proc(12, 11), proc(13, 10), proc(14, 13)])
    assert {p.pid for p in table.descendants([ProcessId(10, 5)])} == {10, 11, 12, 13, 14}
    assert {p.pid for p in table.descendants([ProcessId(10, 5)], frozenset({13}))} == {10, 11, 12}
    assert table.descendants([ProcessId(10, 6)]) == {}


def test_a_zombie_leader_with_running_threads_is_not_gone() -> None:
    assert Proc(1, 0, 1, 1, "Z", 1, 0.0).gone
    assert not Proc(1, 0, 1, 1, "Z", 2, 0.0).gone
    assert not Proc(1, 0, 1, 1, "D", 1, 0.0).gone


def test_a_scan_finds_ourselves_and_nobody_is_none() -> None:
    me = read_process(os.getpid())
    assert me is not None
    table = ProcessTable.scan()
    assert table.find(me.process) is not None
    assert me.pid in {entry.pid for entry in table.children(os.getppid())}
    assert me.pid in {entry.pid for entry in table.in_session(me.session)}
    assert read_process(2**22 + 5) is None
