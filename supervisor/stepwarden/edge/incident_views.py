"""Bundles as the admin service and the command line hand them out. Reads files: in a thread."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from stepwarden_proto.v1 import supervisor_pb2 as pb

from stepwarden.edge.bundle import BundleError, Summary, raw_bundle, summaries

MOST_LISTED = 1000


def wanted(found: list[Summary], worker: str, since: float, limit: int) -> list[Summary]:
    """The newest of them that are asked for; one that cannot be read is of every worker."""
    of_worker = [s for s in found if not worker or s.error or s.head.get("worker") == worker]
    young = [s for s in of_worker if s.error or not since or _unix(s) >= since]
    return young[-limit:]


def _unix(summary: Summary) -> float:
    found = summary.head.get("unix")
    return float(found) if isinstance(found, int | float) else 0.0


def list_incidents(directory: Path | None, request: Any) -> Any:
    """The answer to ListIncidents. OSError where the directory cannot be read."""
    most = min(request.limit or MOST_LISTED, MOST_LISTED)
    found = [] if directory is None else summaries(directory)
    chosen = wanted(found, request.worker, request.since_unix_seconds, most)
    return pb.ListIncidentsResponse(incidents=[_message(summary) for summary in chosen])


def _message(summary: Summary) -> Any:
    return pb.Incident(
        id=summary.id,
        size=summary.size,
        head_json=json.dumps(dict(summary.head)),
        seal=summary.seal,
        error=summary.error,
    )


def incident_bytes(directory: Path | None, name: str) -> bytes:
    """The file of a bundle. BundleError where there is none."""
    if directory is None:
        raise BundleError(f"there is no incident {name}")
    return raw_bundle(directory, name)
