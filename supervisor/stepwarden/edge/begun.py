"""What a runner gives back for a worker that it has started."""

from __future__ import annotations

from dataclasses import dataclass

from stepwarden.core.evidence import ProcessId


@dataclass(frozen=True, slots=True)
class Begun:
    """A worker that was started.

    `main`: None where it has ended again already. `cgroup`: its own control group as the kernel
    writes it ("/system.slice/x.service"), "" for none. `unit`: the systemd unit, "" for none.
    """

    main: ProcessId | None
    cgroup: str = ""
    unit: str = ""
