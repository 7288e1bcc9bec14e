"""Settings for all tests."""

from __future__ import annotations

import contextlib

# The tests on a real vLLM run in its environment, which has no Hypothesis.
with contextlib.suppress(ModuleNotFoundError):
    from hypothesis import settings

    # How long one example takes says more about the machine than about the code.
    settings.register_profile("stepwarden", deadline=None)
    settings.load_profile("stepwarden")
