"""For what a table of usual times holds: the same work on the same cores, and nothing else."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Subject:
    """One rank of one worker, and what its times depend on. "": not known.

    `model` is the engine's own word for it, else what its command says. `cpus`: on which CPUs its
    process may run, such as "0-3,8".
    """

    worker: str
    rank: str
    model: str = ""
    engine: str = ""
    engine_version: str = ""
    dtype: str = ""
    backend: str = ""
    cpus: str = ""

    def sentence(self) -> str:
        """The same for people, without worker and rank."""
        engine = f"{self.engine} {self.engine_version}".strip()
        cpus = f"CPUs {self.cpus}" if self.cpus else ""
        parts = (self.model, engine, self.dtype, self.backend, cpus)
        return ", ".join(part for part in parts if part)


def ranges(numbers: frozenset[int]) -> str:
    """Numbers as people write them: 0-3,8."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in spans)
