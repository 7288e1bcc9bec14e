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
        good = all_read = True

        def refuse(keys: Path, message: str, accepted: str) -> None:
            nonlocal good, all_read
            good = False
            # What is not set may well be in a file that could not be read.
            if all_read:
                self._findings.error(self._place(worker.name, keys), message, accepted)
            all_read = all_read and keys[0] != "env_file"

        def read(paths: Iterable[FilePath]) -> dict[str, str]:
            nonlocal good, all_read
            values: dict[str, str] = {}
            for place, path in enumerate(paths):
                found = self._read_once(path, self._place(worker.name, ("env_file", place)))
                values |= found or {}
                good, all_read = good and found is not None, all_read and found is not None
            return values

        resolved = resolve(worker, self._environment, refuse, read)
        return resolved if good else None

    def _read_once(self, path: FilePath, place: Path) -> dict[str, str] | None:
        """The variables of a file; None where the findings say why there are none."""
        if path not in self._read:
            self._read[path] = self._read_file(path, place)
        return self._read[path]

    def _read_file(self, path: FilePath, place: Path) -> dict[str, str] | None:
        try:
            values = read_env_files([path])
        except ConfigError as error:
            self._tell(error, path, place)
            return None
        if exposed(path):
            message = f"every user of this host can read {path}; chmod o-r it"
            self._findings.warning(place, message)
        return values

    def _tell(self, error: ConfigError, path: FilePath, place: Path) -> None:
        """What stands in the file is told with its line there, all else where the file is named."""
        self._findings.elsewhere(problem for problem in error.problems if problem.line is not None)
        for problem in error.problems:
            if problem.line is None:
                message = f"{path} {problem.message}"
                self._findings.error(place, message, "a readable file of KEY=VALUE lines")

    def _place(self, name: str, keys: Path) -> Path:
        """Where in the file a text of this worker stands, be it in the defaults."""
        home = self._findings.home(name, *(str(key) for key in keys[:1]))
        path: Path = (
            (*home, *keys[1:]) if len(home) > 2 or home[0] == "defaults" else (*home, *keys)
        )
        one_text = isinstance(path[-1], int) and not self._findings.written(path)
        return path[:-1] if one_text else path
