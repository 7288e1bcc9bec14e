"""The configuration files of the repository, with what they name outside of it put in place."""

from __future__ import annotations

from pathlib import Path

from stepwarden.config import Config
from stepwarden.config.loader import load_text

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "config" / "examples"
ENVIRONMENT = {"MODELS_DIR": "/srv/models"}
SECRET_FILE = "/etc/stepwarden/chat.env"


def published_text(path: Path, directory: Path) -> str:
    """The text of a file; the file of secrets that one of them names is made in `directory`."""
    secrets = directory / "chat.env"
    secrets.touch(0o640)
    secrets.write_text("HF_TOKEN=hf_secret\n")
    return path.read_text().replace(SECRET_FILE, str(secrets))


def load_published(path: Path, directory: Path) -> Config:
    """A file of the repository as it loads where all that it names is there."""
    return load_text(published_text(path, directory), path, ENVIRONMENT)
