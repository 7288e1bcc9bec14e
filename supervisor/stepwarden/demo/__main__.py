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
    except KeyboardInterrupt:
        print("\nstepwarden demo: interrupted; nothing is left running", file=sys.stderr)
        return INTERRUPTED
    except StepwardenError as error:
        print(f"stepwarden demo: {error}", file=sys.stderr)
        return int(error.exit_code)
    except ModuleNotFoundError as error:
        print(
            f"stepwarden demo: the package {error.name!r} is missing; the demo needs"
            " pip install 'stepwarden[daemon,demo]'",
            file=sys.stderr,
        )
        return int(ExitCode.USAGE)


def _play() -> int:
    from stepwarden.demo.stage import Stage
    from stepwarden.demo.story import Story

    clock = SystemClock()
    stage = Stage(clock)
    try:
        Story(stage, clock, lambda line: print(line, flush=True)).play()
    except StepwardenError as error:
        words = stage.last_words() if stage.daemon_ended() else ""
        raise type(error)(
            f"{error}; the daemon's last line: {words}" if words else str(error)
        ) from error
    finally:
        for number in ENDINGS:  # the end is bounded; a second Ctrl-C must not cut it short
            signal.signal(number, signal.SIG_IGN)
        stage.close()
    return int(ExitCode.OK)


if __name__ == "__main__":
    sys.exit(main())
