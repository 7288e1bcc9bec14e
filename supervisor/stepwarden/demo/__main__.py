"""`python -m stepwarden.demo`: a slow worker lives, a frozen one is replaced, in about a minute."""

from __future__ import annotations

import argparse
import signal
import sys
from collections.abc import Sequence

from stepwarden.clock import SystemClock
from stepwarden.errors import ExitCode, StepwardenError

INTERRUPTED = 130
ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main(argv: Sequence[str] | None = None) -> int:
    """Play the story; 0: all came out as it must, 130: interrupted, else one line says what."""
    parser = argparse.ArgumentParser(prog="python -m stepwarden.demo", description=__doc__)
    parser.parse_args(argv)
    for number in ENDINGS:
        signal.signal(number, signal.default_int_handler)
    try:
        return _play()
    except ModuleNotFoundError as error:
        name = error.name or ""
        if name.split(".")[0] == "stepwarden":
            raise
        return _fail(f"the package {name!r} is missing; pip install 'stepwarden[daemon,demo]'")


def _play() -> int:
    from stepwarden.demo.stage import Stage
    from stepwarden.demo.story import Story

    clock = SystemClock()
    failure, interrupted, trouble = "", False, ""
    stage = Stage(clock)
    try:
        Story(stage, clock, lambda line: print(line, flush=True)).play()
    except (StepwardenError, OSError) as error:
        failure = str(error)
        if stage.daemon_ended():
            failure += f"; the daemon's last words: {stage.last_words() or 'none'}"
    except KeyboardInterrupt:
        interrupted = True
    finally:
        for number in ENDINGS:  # the end is bounded; a second Ctrl-C must not cut it short
            signal.signal(number, signal.SIG_IGN)
        trouble = stage.close()
    if failure or trouble:
        return _fail("; ".join(text for text in (failure, trouble) if text))
    if interrupted:
        print("\nstepwarden demo: interrupted; nothing is left running", file=sys.stderr)
        return INTERRUPTED
    print("Done; nothing is left running.")
    return int(ExitCode.OK)


def _fail(text: str) -> int:
    print(f"stepwarden demo: {' '.join(text.split())}", file=sys.stderr)
    return int(ExitCode.INTERNAL)


if __name__ == "__main__":
    sys.exit(main())
