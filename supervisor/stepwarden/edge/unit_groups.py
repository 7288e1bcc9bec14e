"""Which units of workers live, as the control groups alone show it: also while nobody answers."""

from __future__ import annotations

import os
from collections.abc import Iterator

from stepwarden.edge.cgroup import Cgroup, at_control_group
from stepwarden.edge.unit_names import SLICE, incarnation_of


def living_units(top: Cgroup | None = None) -> dict[str, tuple[str, Cgroup]]:
    """Worker and group by incarnation, of units that have processes; of whatever daemon they are.

    `top`: the slice of all of them; None: looked up. Empty where that cannot be seen.
    """
    group = at_control_group(f"/{SLICE}") if top is None else top
    return {} if group is None else dict(_living(group))


def _living(top: Cgroup) -> Iterator[tuple[str, tuple[str, Cgroup]]]:
    for folder, names, _ in os.walk(top.path):
        for name in names:
            whose = incarnation_of(name)
            if whose is not None:
                group = Cgroup(top.path.joinpath(folder, name))
                if group.populated:
                    yield whose[1], (whose[0], group)
