"""The variables of all workers, replaced while a file is loaded, each fault with its place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath

from stepwarden.config.env_files import exposed, read_env_files
from stepwarden.config.expand import resolve
from stepwarden.config.findings import Findings
from stepwarden.config.problems import ConfigError, Path
from stepwarden.config.settings import WorkerConfig


class TextsOfWorkers:
    """Replaces variables from one environment; each env file is read once."""

    def __init__(self, environment: Mapping[str, str], findings: Findings) -> None:
        self._environment = environment
        self._findings = findings
        self._read: dict[FilePath, dict[str, str] | None] = {}

    def replaced(self, worker: WorkerConfig) -> WorkerConfig | None:
        """The worker with its texts as they are now; None where the findings say why not."""
        good = True

        def refuse(keys: Path, message: str, accepted: str) -> None:
            nonlocal good
            good = False
            self._findings.error(self._place(worker.name, keys), message, accepted)

        resolved = resolve(worker, self._environment, refuse, self._read_files)
        for place, path in enumerate(resolved.env_files):
            if self._read.get(path) is not None and exposed(path):
                message = f"every user of this host can read {path}; chmod o-r it"
                self._findings.warning(self._place(worker.name, ("env_file", place)), message)
        return resolved if good else None

    def _read_files(self, paths: Iterable[FilePath]) -> dict[str, str]:
        values: dict[str, str] = {}
        for path in paths:
            if path not in self._read:
                self._read[path] = self._read_file(path)
            values |= self._read[path] or {}
        return values

    def _read_file(self, path: FilePath) -> dict[str, str] | None:
        try:
            return read_env_files([path])
        except ConfigError as error:
            self._findings.elsewhere(error.problems)
            return None

    def _place(self, name: str, keys: Path) -> Path:
        """Where in the file a text of this worker stands, be it in the defaults."""
        home = self._findings.home(name, *(str(key) for key in keys[:1]))
        path: Path = (
            (*home, *keys[1:]) if len(home) > 2 or home[0] == "defaults" else (*home, *keys)
        )
        one_text = isinstance(path[-1], int) and not self._findings.written(path)
        return path[:-1] if one_text else path
