"""Errors that an operator sees as one line, and the exit code that goes with each."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """What every stepwarden command may exit with. Documented in docs/cli.md."""

    OK = 0
    INTERNAL = 1  # a fault of ours; the daemon ends with it when its loop cannot go on
    USAGE = 2  # the command line itself is wrong
    UNREACHABLE = 3  # no daemon answers at the socket, or not within the timeout
    UNKNOWN_WORKER = 4  # there is no worker, or no incident, of this name
    ACTION_FAILED = 5  # the daemon took the command and it did not come about
    REFUSED = 6  # the socket or a file may not be used by this user
    ALREADY_RUNNING = 7  # another daemon holds the state directory or the address
    NOT_WELL = 8  # status --check: a worker is not as it should be, or the daemon's loop stands
    LOOP_STUCK = 9  # the verdict loop stood still for supervisor.loop_limit
    CONFIG = 78  # the YAML file cannot be used (EX_CONFIG of sysexits.h)


class StepwardenError(Exception):
    """A refusal with one clear line: what, where, and what is accepted."""

    exit_code = ExitCode.INTERNAL
    prefix = "stepwarden: "
    """What the command line writes before the text."""


class UsageError(StepwardenError):
    """The command line asks for something that makes no sense."""

    exit_code = ExitCode.USAGE


class UnreachableError(StepwardenError):
    """No daemon answered."""

    exit_code = ExitCode.UNREACHABLE


class UnknownWorkerError(StepwardenError):
    """No worker of this name."""

    exit_code = ExitCode.UNKNOWN_WORKER


class ActionFailedError(StepwardenError):
    """A command was taken and did not come about."""

    exit_code = ExitCode.ACTION_FAILED


class RefusedError(StepwardenError):
    """Permission is missing."""

    exit_code = ExitCode.REFUSED


class AlreadyRunningError(StepwardenError):
    """Somebody else holds what we need to be alone with."""

    exit_code = ExitCode.ALREADY_RUNNING
