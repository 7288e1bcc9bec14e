"""The way from a file to Config."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from stepwarden.config.build import WorkerBuilder, build_supervisor
from stepwarden.config.checks import check_supervisor, check_worker
from stepwarden.config.findings import Findings
from stepwarden.config.nodes import compose
from stepwarden.config.problems import ERROR, WARNING, ConfigError
from stepwarden.config.settings import Config
from stepwarden.config.source import read_text
from stepwarden.config.validate import validate


def load_file(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read and check one file. `environment` None: this process's own.

    Raises ConfigError with every problem of the file.
    """
    text = read_text(path)
    return load_text(text, path, os.environ if environment is None else environment)


def load_text(text: str, path: Path, environment: Mapping[str, str]) -> Config:
    """The same for text that came from `path`."""
    findings = Findings(compose(text, str(path)))
    file = validate(findings.document, findings)
    if file is None:
        raise ConfigError(findings.problems())
    supervisor = build_supervisor(file.supervisor, findings)
    check_supervisor(supervisor, findings)
    builder = WorkerBuilder(file, findings)
    workers = {}
    for name, section in file.workers.items():
        worker = builder.build(name, section)
        if worker is not None:
            workers[name] = worker
            check_worker(worker, findings, environment)
    if findings.problems(ERROR):
        raise ConfigError(findings.problems())
    return Config(
        path=path,
        supervisor=supervisor,
        workers=workers,
        backends=builder.backends,
        warnings=findings.problems(WARNING),
        plain_worker=builder.plain(),
    )
