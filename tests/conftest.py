"""Settings for all tests."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

# Programs that tests start import `support` too; against the built wheel nothing else tells where.
_TESTS = str(Path(__file__).parent)
os.environ["PYTHONPATH"] = os.pathsep.join([_TESTS, *filter(None, [os.environ.get("PYTHONPATH")])])

# The tests on a real vLLM run in its environment, which has no Hypothesis.
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import settings

    # How long one example takes says more about the machine than about the code.
    settings.register_profile("stepwarden", deadline=None)
    settings.load_profile("stepwarden")
