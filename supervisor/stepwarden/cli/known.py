"""What is usual, for `explain` and `calibrate`: asked of the daemon, or read from its state."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass

from stepwarden.cli.client import Client, connect, state_directory
from stepwarden.core.usual import Usual
from stepwarden.errors import RefusedError, UnreachableError


@dataclass(frozen=True, slots=True)
class Known:
    """One table of one worker. `lived`: steps of the present life, None of a table from disk."""

    worker: str
    rank: str
    of: str
    usual: Usual
    lived: int | None = None


@dataclass(frozen=True, slots=True)
class Found:
    """All that is known, and from where: "the daemon at ..." or a file."""

    source: str
    tables: tuple[Known, ...]


def find_learned(options: argparse.Namespace, worker: str) -> Found:
    """What is known of one worker, or of all ("").

    UnreachableError where neither a daemon nor its state can be had; UnknownWorkerError from a
    daemon that has no such worker; RefusedError.
    """
    try:
        with connect(options) as client:
            names = [worker] if worker else _names(client)
            told = Found("the daemon", tuple(k for n in names for k in _of_daemon(client, n)))
    except UnreachableError as error:
        return _from_disk(options, worker, error)
    if told.tables:
        return told
    try:  # what an earlier life learned is on the disk alone, until there are steps
        return _from_disk(options, worker, UnreachableError("the daemon knows nothing yet"))
    except (UnreachableError, RefusedError):
        return told


def _names(client: Client) -> list[str]:
    answer = client.call("ListWorkers", client.pb.ListWorkersRequest())
    return [worker.name for worker in answer.workers]


def _of_daemon(client: Client, name: str) -> Iterator[Known]:
    from stepwarden.edge.learned_views import view_of

    answer = client.call("GetWorker", client.pb.GetWorkerRequest(name=name))
    for message in answer.learned:
        view = view_of(message)
        yield Known(name, view.rank, view.of, view.usual, view.steps)


def _from_disk(options: argparse.Namespace, worker: str, silent: UnreachableError) -> Found:
    from stepwarden.edge.learned_history import read_learned

    directory = state_directory(options)
    if directory is None:
        raise silent
    try:
        kept = read_learned(directory)
    except FileNotFoundError as error:
        raise UnreachableError(f"{silent}; and there is no state in {directory}") from error
    except (OSError, ValueError) as error:
        raise RefusedError(f"{silent}; and the state cannot be read: {error}") from error
    return Found(f"the state in {directory}", _tables(kept, worker))


def _tables(kept: dict[str, str], worker: str) -> tuple[Known, ...]:
    """Of each rank the one that was used last: what it ran before is another matter."""
    from stepwarden.edge.learned_text import from_text, subject_of_key

    found: dict[tuple[str, str], Known] = {}
    for key, body in kept.items():
        subject, usual = subject_of_key(key), from_text(body)
        if subject is None or usual is None or worker not in ("", subject.worker):
            continue
        whose = subject.worker, subject.rank
        found[whose] = Known(*whose, subject.sentence(), usual)
    return tuple(found[whose] for whose in sorted(found))
