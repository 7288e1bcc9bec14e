"""What one process of a rank teaches: from the steps that its page shows to what is usual."""

from __future__ import annotations

from dataclasses import dataclass

from stepwarden.core.deadline import Deadline
from stepwarden.core.evidence import ProcessId
from stepwarden.core.policy import WorkerPolicy
from stepwarden.core.step_bounds import size_of_step
from stepwarden.core.subject import Subject
from stepwarden.core.trial import Trial
from stepwarden.core.usual import Usual, row_of
from stepwarden.daemon.step_reader import Samples
from stepwarden.edge.step_samples import StepSample


@dataclass(slots=True)
class Lesson:
    """`trial` None: nothing was taken over from an earlier life, or it has proved to fit.

    `keep_at`: when what is new is to be kept; never while nothing is.
    """

    process: ProcessId
    subject: Subject
    usual: Usual
    trial: Trial | None
    keep_at: Deadline

    def take(self, samples: Samples, policy: WorkerPolicy) -> float | None:
        """Learn from these; the factor by which what was known does not fit, where it was dropped.

        Steps count from 1 in each process, so that each number tells how old the life was.
        """
        misfit = None
        for sample in _in_order(samples, policy):
            size = _size(sample, policy)
            if self.trial is not None:
                misfit = self._tried(self.trial, size, sample) or misfit
            self.usual = self.usual.learn(size, sample.seconds, sample.number - 1)
        return misfit

    def _tried(self, trial: Trial, size: int, sample: StepSample) -> float | None:
        """Compare one of the first steps; where they do not fit, what was known is forgotten."""
        guess = self.usual.guess(size)
        if guess is None or guess.steps == 0 or sample.number == 1:
            return None
        self.trial = trial = trial.with_step(guess.seconds, sample.seconds)
        if not trial.over:
            return None
        self.trial, misfit = None, trial.misfit
        if misfit is not None:
            self.usual = Usual()
        return misfit


def _in_order(samples: Samples, policy: WorkerPolicy) -> list[StepSample]:
    """Each long step, and of the short ones the shortest of each row, by number.

    The time from one begin to the next holds the rest after the step too: the shortest of some is
    nearest to the truth.
    """
    long, short = samples
    if not short:
        return sorted(long, key=_number)
    shortest: dict[int, StepSample] = {}
    for sample in short:
        row = row_of(_size(sample, policy))
        if row not in shortest or sample.seconds < shortest[row].seconds:
            shortest[row] = sample
    return sorted((*long, *shortest.values()), key=_number)


def _size(sample: StepSample, policy: WorkerPolicy) -> int:
    return size_of_step(policy, sample.num_seqs, sample.num_tokens)


def _number(sample: StepSample) -> int:
    return sample.number
