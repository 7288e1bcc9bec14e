"""An engine without an agent, as seen from outside: `page_server.py PORT DIR [spin]`.

GET /NAME gives the file DIR/NAME with status 200, or 503 where there is none. It listens after the
file DIR/listen is there. With `spin` it burns one core while the file DIR/spin is there.
"""

from __future__ import annotations

import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

DIRECTORY = Path(sys.argv[2])


class Pages(BaseHTTPRequestHandler):
    """Serves the files."""

    def do_GET(self) -> None:
        """One page."""
        try:
            body, status = (DIRECTORY / self.path.strip("/")).read_bytes(), 200
        except OSError:
            body, status = b"loading", 503
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing."""


def spin() -> None:
    """Work while DIR/spin is there."""
    while True:
        if not (DIRECTORY / "spin").exists():
            time.sleep(0.05)


def main() -> None:
    """Wait, then serve for ever."""
    if sys.argv[3:] == ["spin"]:
        threading.Thread(target=spin, daemon=True).start()
    while not (DIRECTORY / "listen").exists():
        time.sleep(0.02)
    ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Pages).serve_forever()


if __name__ == "__main__":
    main()
