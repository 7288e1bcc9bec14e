"""How many files the daemon may hold open: enough for every worker's pages, streams and ends.

A shell's usual 1024 is used up by some three hundred ranks. Workers get the former limit back:
programs that use select() break above 1024.
"""

from __future__ import annotations

import resource
from contextlib import suppress

WANTED = 65_536
"""More than this nobody needs, and some containers have a hard limit of a thousand million."""


def raise_limit() -> int:
    """Raise our own soft limit as far as we may and want; returns the former one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED if hard == resource.RLIM_INFINITY else min(WANTED, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft
