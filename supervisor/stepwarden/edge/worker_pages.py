"""The list of workers in pages, so that no answer is too large for an ordinary client."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from stepwarden_proto.v1 import supervisor_pb2 as pb

from stepwarden.edge.views import WorkerView

MAX_PAGE_BYTES = 1024 * 1024
MAX_PAGE_WORKERS = 1000
"""Of one page, whatever is asked for; the loop makes it in a few milliseconds."""


class ListChangedError(Exception):
    """The worker after which a page begins is not there any more."""


def page_of(
    views: Sequence[WorkerView], request: Any, make: Callable[[WorkerView], pb.Worker]
) -> pb.ListWorkersResponse:
    """The page that `request` asks for, at least one worker where there is one.

    A token is the name of the last worker of the page before. Raises ListChangedError.
    """
    first = _place_after(views, request.page_token)
    most = min(request.page_size or MAX_PAGE_WORKERS, MAX_PAGE_WORKERS)
    answer = pb.ListWorkersResponse(total=len(views))
    size = 0
    for view in views[first : first + most]:
        message = make(view)
        size += message.ByteSize()
        if answer.workers and size > MAX_PAGE_BYTES:
            break
        answer.workers.append(message)
    if first + len(answer.workers) < len(views):
        answer.next_page_token = answer.workers[-1].name
    return answer


def _place_after(views: Sequence[WorkerView], token: str) -> int:
    if not token:
        return 0
    for place, view in enumerate(views):
        if view.name == token:
            return place + 1
    raise ListChangedError
