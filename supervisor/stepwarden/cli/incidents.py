"""`stepwarden incidents`: the proof that was kept of what went wrong.

A daemon that answers is asked; without one the state directory is read, where nothing is changed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from stepwarden.cli.arguments import path as path_argument
from stepwarden.cli.client import add_connection_arguments, connect, state_directory
from stepwarden.cli.output import OutputError, complain
from stepwarden.cli.since import add_since_argument
from stepwarden.cli.texts import as_json, plain, table
from stepwarden.errors import (
    ExitCode,
    RefusedError,
    UnknownWorkerError,
    UnreachableError,
    UsageError,
)

ACTIONS = ("list", "show", "export")
_HEADER = ("INCIDENT", "WHEN", "CAUSE", "STACKS", "SIZE")
WIDTH = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `incidents`."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=ACTIONS,
        default="list",
        metavar="ACTION",
        help=f"one of {', '.join(ACTIONS)} (default: %(default)s)",
    )
    parser.add_argument("id", nargs="?", metavar="ID", help="of show and export: which one")
    parser.add_argument(
        "file",
        nargs="?",
        metavar="FILE",
        help="of export: a new file, or - for standard output (default: ID.tar.gz)",
    )
    parser.add_argument("--worker", default="", metavar="NAME", help="of this worker only")
    add_since_argument(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.add_argument(
        "--state-dir",
        type=path_argument,
        metavar="DIR",
        help="read here, and ask no daemon",
    )
    add_connection_arguments(parser)


def run(options: argparse.Namespace) -> ExitCode:
    """List, show or export."""
    _check(options)
    if options.action == "list":
        _list(options)
        return ExitCode.OK
    data = _data(options)
    if options.action == "export":
        _export(options.id, options.file or f"{options.id}.tar.gz", data)
        return ExitCode.OK
    _show(options, data)
    return ExitCode.OK


def _check(options: argparse.Namespace) -> None:
    if options.action == "list" and options.id is not None:
        raise UsageError("incidents list takes no ID; see incidents show ID")
    if options.action != "list" and options.id is None:
        raise UsageError(f"incidents {options.action} needs an ID; `stepwarden incidents` has them")
    if options.action != "export" and options.file is not None:
        raise UsageError(f"incidents {options.action} writes no file; see incidents export")


# Where they are read


def _list(options: argparse.Namespace) -> None:
    found = _from_daemon(options)
    if found is None:
        found = _from_disk(options)
    if options.json:
        print(as_json(found))
    elif found:
        print("\n".join(table(_HEADER, [_row(one) for one in found], WIDTH)))
    else:
        print("no incidents are kept")


def _from_daemon(options: argparse.Namespace) -> list[dict[str, Any]] | None:
    """None where no daemon is asked or answers, and the disk is to be read."""
    if options.state_dir is not None:
        return None
    try:
        with connect(options) as client:
            request = client.pb.ListIncidentsRequest(
                worker=options.worker, since_unix_seconds=options.since
            )
            answer = client.call("ListIncidents", request)
    except UnreachableError as silent:
        _fall_back(options, silent)
        return None
    return [
        _told(one.id, one.size, json.loads(one.head_json or "{}"), one.seal, one.error)
        for one in answer.incidents
    ]


def _fall_back(options: argparse.Namespace, silent: UnreachableError) -> None:
    if state_directory(options) is None:
        raise silent
    complain(f"stepwarden: {silent}; read from {_directory(options)}")


def _directory(options: argparse.Namespace) -> Path:
    given = options.state_dir
    directory = state_directory(options) if given is None else Path(given)
    assert directory is not None
    return directory / "incidents"


def _from_disk(options: argparse.Namespace) -> list[dict[str, Any]]:
    from stepwarden.edge.bundle import summaries
    from stepwarden.edge.incident_views import MOST_LISTED, wanted

    try:
        found = summaries(_directory(options))
    except OSError as error:
        raise _refused(options, error) from error
    chosen = wanted(found, options.worker, options.since, MOST_LISTED)
    return [_told(s.id, s.size, s.head, s.seal, s.error) for s in chosen]


def _refused(options: argparse.Namespace, error: OSError) -> RefusedError:
    return RefusedError(f"{_directory(options)} cannot be read: {error.strerror}")


def _told(name: str, size: int, head: Mapping[str, Any], seal: str, error: str) -> dict[str, Any]:
    return {"id": name, "size": size, **head, "seal": seal or None, "error": error or None}


def _data(options: argparse.Namespace) -> bytes:
    if options.state_dir is None:
        try:
            with connect(options) as client:
                request = client.pb.ExportIncidentRequest(id=options.id)
                return b"".join(one.chunk for one in client.stream("ExportIncident", request))
        except UnreachableError as silent:
            _fall_back(options, silent)
    from stepwarden.edge.bundle import BundleError, raw_bundle

    try:
        return raw_bundle(_directory(options), options.id)
    except BundleError as error:
        raise UnknownWorkerError(str(error)) from error


# What is done with them


def _export(name: str, file: str, data: bytes) -> None:
    if file == "-":
        try:
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"cannot write the output: {error.strerror}") from error
        return
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(file, flags, 0o600)
    except OSError as error:
        raise RefusedError(f"cannot write {file}: {error.strerror}") from error
    try:
        with open(descriptor, "wb") as whole:
            whole.write(data)
    except OSError as error:
        with suppress(OSError):
            os.unlink(file)
        raise OutputError(f"cannot write {file}: {error.strerror}") from error
    print(f"{name}: {len(data)} bytes in {plain(file)}")


def _show(options: argparse.Namespace, data: bytes) -> None:
    from stepwarden.cli.incident_text import document, lines
    from stepwarden.edge.bundle import BundleError, unpack

    try:
        found = unpack(options.id, data)
    except BundleError as error:
        raise RefusedError(str(error)) from error
    print(as_json(document(found)) if options.json else "\n".join(lines(found)))
    for fault in found.faults:
        complain(f"stepwarden: the seal of {options.id} is broken: {plain(fault)}")
    if found.faults:
        raise RefusedError(f"{options.id} is not what was sealed")


def _row(one: Mapping[str, Any]) -> tuple[str, ...]:
    if one["error"]:
        return (plain(one["id"]), "-", plain(str(one["error"])), "-", "-")
    stacks = sorted(set(dict(one.get("stacks") or {}).values()) - {"unknown"})
    cells = (
        one["id"],
        str(one.get("time", ""))[:19].replace("T", " "),
        str(one.get("cause") or "-"),
        ", ".join(stacks) or ("seen" if one.get("stacks_seen") else "-"),
        f"{one['size'] / 1024:.0f} KiB",
    )
    return tuple(plain(str(cell)) for cell in cells)
