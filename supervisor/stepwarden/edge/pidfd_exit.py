"""How a process ended that is not our child.

From Linux 6.14 on a pidfd that was opened while the process lived tells its exit status once its
parent has reaped it. Before that, /proc shows the status of one that waits to be reaped, to those
who may see it. Otherwise nobody but the parent can know.
"""

from __future__ import annotations

import fcntl
import os
import struct

from stepwarden.core.evidence import Exit, ProcessId

# struct pidfd_info of linux/pidfd.h, in its first version of 64 bytes:
#   u64 mask, cgroupid; u32 pid, tgid, ppid, ruid, rgid, euid, egid, suid, sgid, fsuid, fsgid;
#   s32 exit_code
_INFO = struct.Struct("=QQ11Ii")
_MASK = struct.Struct("=Q")
_EXIT = 1 << 3  # PIDFD_INFO_EXIT
_GET_INFO = 3 << 30 | _INFO.size << 16 | 0xFF << 8 | 11  # _IOWR(0xFF, 11, struct pidfd_info)

_STATE, _EXIT_CODE = 0, 49  # positions behind the command name, see proc_pid_stat(5)
_START = 19


def reaped_exit(descriptor: int) -> Exit | None:
    """The exit that the kernel keeps with a pidfd; None: not reaped yet, or an older kernel."""
    request = bytearray(_INFO.size)
    _MASK.pack_into(request, 0, _EXIT)
    try:
        fcntl.ioctl(descriptor, _GET_INFO, request)
    except OSError:  # ENOTTY, EINVAL: kernels before 6.13, 6.14
        return None
    fields = _INFO.unpack(request)
    return _exit_of(fields[-1]) if fields[0] & _EXIT else None


def unreaped_exit(process: ProcessId) -> Exit | None:
    """The exit that /proc shows of one that waits to be reaped; None where it does not.

    Whoever may not see it is shown 0, so that is an answer for a process of our own user alone.
    """
    try:
        with open(f"/proc/{process.pid:d}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        if fields[_STATE] != b"Z" or int(fields[_START]) != process.start_ticks:
            return None
        status = int(fields[_EXIT_CODE])
        ours = os.stat(f"/proc/{process.pid:d}").st_uid == os.geteuid()
    except (OSError, IndexError, ValueError):
        return None
    return _exit_of(status) if ours or status else None


def _exit_of(status: int) -> Exit:
    """A wait status as `Exit`."""
    if os.WIFSIGNALED(status):
        return Exit(signal=os.WTERMSIG(status))
    return Exit(code=os.WEXITSTATUS(status))
