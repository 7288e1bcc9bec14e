"""vLLM: the entry point of `vllm.general_plugins`, and a worker extension for its command line.

vLLM loads its plugins in the API server, in the engine core, in every worker process and in a
short-lived subprocess that inspects model classes. So `register` only puts wrappers in place and
never contacts the supervisor: an agent is made by the process that turns out to be a worker rank
or an engine core, when it does. Without the supervisor's environment nothing is touched at all.

Where `VLLM_PLUGINS` is set, vLLM loads only the plugins it names: `stepwarden` must be among them.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from stepwarden_agent.integrations import vllm_core, vllm_worker
from stepwarden_agent.integrations.vllm_hooks import log
from stepwarden_agent.settings import read_settings

_INSPECTION = "vllm.model_executor.models.registry"


def register() -> None:
    """Put the wrappers in place; may be called any number of times; never raises."""
    try:
        if read_settings(os.environ) is None or _is_model_inspection():
            return
        vllm_worker.install()
        vllm_core.install()
    except Exception as error:
        log.warning("stepwarden: the engine is left as it is: %r", error)


class WorkerExtension:
    """For `--worker-extension-cls` from vLLM 0.33 on, where the entry point is not wanted.

    vLLM calls `init_worker_extension` once the worker's device is ready. Loading the plugin by
    its entry point as well does no harm.
    """

    def init_worker_extension(self) -> None:
        """Start reporting the steps of this worker; never raises."""
        vllm_worker.attach_quietly(self)


def _is_model_inspection() -> bool:
    """True in vLLM's helper process, which only looks at a model class and ends."""
    main: Any = sys.modules.get("__main__")
    spec = getattr(main, "__spec__", None)
    return getattr(spec, "name", None) == _INSPECTION
