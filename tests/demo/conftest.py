"""Before any test here imports numpy: its threads would fight with all else on a busy machine."""

from __future__ import annotations

from stepwarden.demo.worker import cap_threads

cap_threads()
