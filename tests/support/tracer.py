"""Holds on to a process so that whoever waits for its end waits for ever; ends with a signal.

A traced process that is killed stays a zombie until its tracer looks. The first process of a pid
namespace ends only when every other one in there is gone: with one of them traced, not even KILL
ends it. That is as near to a hung driver as a test can come.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PTRACE_SEIZE = 0x4206


def main() -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
    if libc.ptrace(PTRACE_SEIZE, int(sys.argv[1]), None, None) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    print("holding", flush=True)
    signal.pause()


if __name__ == "__main__":
    main()
