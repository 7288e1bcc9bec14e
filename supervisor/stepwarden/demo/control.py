"""One JSON line in, one JSON line out, over a unix socket: how the story directs the server."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from stepwarden.errors import ActionFailedError

Message = dict[str, object]
LINE_LIMIT = 64 * 1024
PEER_SECONDS = 5.0  # how long one caller may hold the server's only place


def listen(path: Path) -> socket.socket:
    """A listening socket at `path`, for this user only; a dead predecessor's is replaced."""
    with contextlib.suppress(FileNotFoundError):
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(8)
    return listener


def serve(listener: socket.socket, answer: Callable[[Message], Message]) -> None:
    """Answer one caller after the other, until an exception from outside ends it."""
    while True:
        peer, _ = listener.accept()
        with peer:
            peer.settimeout(PEER_SECONDS)
            with contextlib.suppress(OSError):
                peer.sendall(_encode(_answer_line(_read_line(peer), answer)))


def ask(path: Path, request: Mapping[str, object], seconds: float) -> Message:
    """Send one request. OSError: nobody is there; ActionFailedError: it was refused."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as peer:
        peer.settimeout(seconds)
        peer.connect(str(path))
        peer.sendall(_encode(request))
        line = _read_line(peer)
    if not line:
        raise ConnectionError("the server closed the connection without an answer")
    reply: Message = json.loads(line)
    if "error" in reply:
        raise ActionFailedError(f"the demo server refuses {dict(request)}: {reply['error']}")
    return reply


def _answer_line(line: bytes, answer: Callable[[Message], Message]) -> Message:
    try:
        request = json.loads(line)
        if not isinstance(request, dict):
            raise ValueError("a JSON object is expected")
        return answer(request)
    except (ValueError, TypeError) as error:
        return {"error": str(error)}


def _encode(message: Mapping[str, object]) -> bytes:
    return json.dumps(message).encode() + b"\n"


def _read_line(peer: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n") and len(received) < LINE_LIMIT:
        chunk = peer.recv(4096)
        if not chunk:
            break
        received += chunk
    return received
