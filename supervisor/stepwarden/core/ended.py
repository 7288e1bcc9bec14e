"""Why something has ended: by itself, or for lack of memory."""

from __future__ import annotations

import signal

from stepwarden.core.evidence import Exit
from stepwarden.core.finding import Diagnosis

Ended = tuple[Diagnosis, str]


def end_of_main(exit_: Exit, text: str, kills: int) -> Ended:
    """`text`: how the main process ended. `kills`: the host's kills for memory just before that."""
    if exit_.oom:
        return Diagnosis.OOM, f"{text}; the kernel counted it in its control group"
    if kills > 0 and exit_.signal == signal.Signals.SIGKILL:
        return Diagnosis.OOM, f"{text}; {_counted(kills)}"
    return Diagnosis.EXITED, text


def end_of_rank(text: str, kills: int) -> Ended:
    """How a rank ended that is not the main process: nobody could see its exit status."""
    if kills > 0:
        return Diagnosis.OOM, f"{text}; {_counted(kills)}"
    return Diagnosis.EXITED, text


def _counted(kills: int) -> str:
    noun = "kill" if kills == 1 else "kills"
    return f"the kernel counted {kills} {noun} for lack of memory on this host just before"
