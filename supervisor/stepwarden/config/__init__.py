"""The YAML file: read, checked, explained, turned into policies.

Importing this package is cheap; pydantic and yaml are imported when a file is loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from stepwarden.config.problems import ConfigError, Problem
from stepwarden.config.settings import (
    AttachConfig,
    BackendConfig,
    Config,
    GroupConfig,
    OutputConfig,
    ProgressCounter,
    ReadyProbe,
    ReleaseGate,
    RunAs,
    ShortCommand,
    SupervisorSettings,
    WorkerConfig,
)
from stepwarden.config.units import AskUnits

__all__ = [
    "AttachConfig",
    "BackendConfig",
    "Config",
    "ConfigError",
    "GroupConfig",
    "OutputConfig",
    "Problem",
    "ProgressCounter",
    "ReadyProbe",
    "ReleaseGate",
    "RunAs",
    "ShortCommand",
    "SupervisorSettings",
    "WorkerConfig",
    "load",
]


def load(
    path: Path,
    environment: Mapping[str, str] | None = None,
    on_this_host: bool = False,
    ask_units: AskUnits | None = None,
) -> Config:
    """Read and check a configuration file.

    `environment` is what workers inherit (None: this process's own); engine time-outs set there
    are compared with the budgets. `on_this_host`: say which programs, directories and accounts are
    not here too; `ask_units`: and which systemd units cannot be workers.

    Raises ConfigError with every problem that the file has.
    """
    from stepwarden.config.loader import load_file

    return load_file(path, environment, on_this_host, ask_units)
