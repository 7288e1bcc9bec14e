"""`supervisor.incidents`: what is kept as proof of what went wrong."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from stepwarden.config.fields import Choice, Duration, Flag, Whole
from stepwarden.config.quantities import Size
from stepwarden.config.sections import KIB, MINUTE, SHORTEST, TIB, Section
from stepwarden.config.settings import IncidentSettings

MIB = KIB * KIB


class IncidentsSection(Section):
    """Stacks and bundles: the proof of each UNHEALTHY and DEAD (docs/incidents.md)."""

    keep: Annotated[int, Whole(0, 10_000)] = Field(
        default=100, description="So many bundles are kept, the newest. 0: none is written."
    )
    max_size: Annotated[int, Size(MIB, TIB)] = Field(
        default=256 * MIB, description="All of them together; the oldest go first."
    )
    stacks: Annotated[str, Choice(("auto", "off"))] = Field(
        default="auto",
        description="auto: py-spy looks at the ranks of a worker under suspicion, where it is"
        " installed and may. off: /proc alone tells.",
    )
    native: Annotated[bool, Flag()] = Field(
        default=False,
        description="With the frames of C code. py-spy then stops each process for a moment.",
    )
    output_lines: Annotated[int, Whole(0, 1000)] = Field(
        default=100, description="So many of the last lines of captured output are in a bundle."
    )
    limit: Annotated[float, Duration(SHORTEST, MINUTE)] = Field(
        default=5.0,
        description="One capture takes no longer, and the ending of a dead worker waits no longer"
        " for its proof.",
    )


def build_incidents(section: IncidentsSection) -> IncidentSettings:
    """The settings that it says."""
    return IncidentSettings(
        keep=section.keep,
        max_size=section.max_size,
        stacks=section.stacks == "auto",
        native=section.native,
        output_lines=section.output_lines,
        limit=section.limit,
    )
