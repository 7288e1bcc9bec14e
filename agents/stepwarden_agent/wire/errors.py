"""What a connection may fail of, beside what the kernel says."""

from __future__ import annotations


class TlsError(OSError):
    """The two sides could not agree on TLS, or the files for it cannot be used; one line."""
