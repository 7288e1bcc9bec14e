"""What has become of captures and bundles since the daemon started, for the metrics."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class IncidentCounts:
    """`captured`: processes whose stacks were seen. `stacks_available`: whether they can be."""

    captured: int = 0
    not_captured: int = 0
    kept: int = 0
    not_kept: int = 0
    stacks_available: bool = False
