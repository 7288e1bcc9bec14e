"""Calls into the core, as data: what was asked of it, so that the same can be asked again.

Each function that says what becomes of a worker leaves in its `Outcome` how it was called. A
recording is the row of these calls, and a replay makes them again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec

from stepwarden.core.worker import Call, Outcome, WorkerState

P = ParamSpec("P")
OfState = Callable[Concatenate[WorkerState, P], Outcome]

CALLS: dict[str, Callable[..., Outcome]] = {}
"""Every function that can be in a recording, by its name."""


def recorded(*names: str) -> Callable[[OfState[P]], OfState[P]]:
    """Have a function note in its outcome how it was called.

    `names`: what it takes besides the state, in the order of its signature.
    """

    def of(function: OfState[P]) -> OfState[P]:
        @wraps(function)
        def noted(state: WorkerState, /, *args: P.args, **kwargs: P.kwargs) -> Outcome:
            outcome = function(state, *args, **kwargs)
            given = {**dict(zip(names, args, strict=False)), **kwargs}
            outcome.call = Call(function.__name__, state, given)
            return outcome

        CALLS[function.__name__] = noted
        return noted

    return of
