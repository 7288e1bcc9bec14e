"""The way from a file to Config."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from stepwarden.config.build import WorkerBuilder
from stepwarden.config.checks import check_supervisor, check_worker
from stepwarden.config.checks_together import check_own_unit, check_together
from stepwarden.config.daemon_settings import build_supervisor
from stepwarden.config.findings import Findings
from stepwarden.config.host_checks import HostChecks
from stepwarden.config.nodes import compose
from stepwarden.config.problems import ERROR, WARNING, ConfigError
from stepwarden.config.settings import Config
from stepwarden.config.source import read_source
from stepwarden.config.texts import TextsOfWorkers
from stepwarden.config.units import AskUnits
from stepwarden.config.validate import validate


def load_file(
    path: Path,
    environment: Mapping[str, str] | None = None,
    on_this_host: bool = False,
    ask_units: AskUnits | None = None,
) -> Config:
    """Read and check one file. `environment` None: this process's own.

    `on_this_host`: look for the programs, directories and accounts that it names too, and, with
    `ask_units`, for the units.

    Raises ConfigError with every problem of the file.
    """
    source = read_source(path)
    own = os.environ if environment is None else environment
    try:
        config = load_text(source.text, path, own, on_this_host, ask_units)
    except ConfigError as error:
        error.identity = source.identity
        raise
    return replace(config, identity=source.identity)


def load_text(
    text: str,
    path: Path,
    environment: Mapping[str, str],
    on_this_host: bool = False,
    ask_units: AskUnits | None = None,
) -> Config:
    """The same for text that came from `path`."""
    findings = Findings(compose(text, str(path)))
    file = validate(findings.document, findings)
    if file is None:
        raise ConfigError(findings.problems())
    supervisor = build_supervisor(file.supervisor, findings)
    check_supervisor(supervisor, findings)
    builder = WorkerBuilder(file, supervisor, findings)
    texts = TextsOfWorkers(environment, findings)
    host = HostChecks(findings)
    workers = {}
    for name, section in file.workers.items():
        built = builder.build(name, section)
        worker = None if built is None else texts.replaced(built)
        if worker is not None:
            workers[name] = worker
            check_worker(worker, findings, environment, builder.group_of(name))
            if on_this_host:
                host.check(worker)
    if on_this_host:
        for key in ("health", "metrics", "agents"):
            host.check_listener(getattr(supervisor, key), ("supervisor", key))
    check_together(workers, supervisor, findings)
    check_own_unit(workers, environment, findings)
    if ask_units is not None:
        host.check_units(workers, ask_units)
    if findings.problems(ERROR):
        raise ConfigError(findings.problems())
    return Config(
        path=path,
        supervisor=supervisor,
        workers=workers,
        backends=builder.backends,
        groups=builder.groups,
        warnings=findings.problems(WARNING),
        plain_worker=builder.plain(),
    )
