"""Whether this machine lets tests read the stacks of processes that are not their children."""

from __future__ import annotations

import pytest
from stepwarden.edge.tracing import find_tracing

REFUSAL = find_tracing().refusal
needs_tracing = pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL or "stacks can be read")
