"""Experiment directories: experiments/<label>-<hash>/<seed>/results.parquet, beside what made them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from endive import MODEL_VERSION, __version__
from endive.config import changed_settings, compute_experiment_hash, dotted_lines
from endive.config_errors import ConfigError
from endive.files import UnwritableOutputError, whole_file
from endive.settings import Settings
from endive.utils import get_git_sha

EXPERIMENTS_FOLDER: Final = Path("experiments")
RESULTS_NAME: Final = "results.parquet"
SNAPSHOT_NAME: Final = "cfg.toml"
VERSION_NAME: Final = "version.txt"


def experiment_folder(settings: Settings, root: Path = EXPERIMENTS_FOLDER) -> Path:
    """Return the directory of a labelled configuration."""
    return root / f"{settings.experiment.label}-{compute_experiment_hash(settings)}"


def results_path(settings: Settings, seed: int, root: Path = EXPERIMENTS_FOLDER) -> Path:
    """Return where a labelled configuration keeps the results of a seed."""
    return experiment_folder(settings, root) / str(seed) / RESULTS_NAME


def snapshot_text(settings: Settings) -> str:
    """Return the TOML of all that the hash covers, as cfg.toml keeps it."""
    return "".join(f"{key} = {value}\n" for key, value in dotted_lines(changed_settings(settings)))


def prepare_experiment(settings: Settings, root: Path = EXPERIMENTS_FOLDER) -> None:
    """Make the directory of a labelled configuration, or check that the one there is of the same making."""
    folder = experiment_folder(settings, root)
    if folder.exists() and not folder.is_dir():
        raise UnwritableOutputError(f"{folder}: cannot be written: it is a file")
    snapshot, version = folder / SNAPSHOT_NAME, folder / VERSION_NAME
    if not snapshot.exists():
        _write(snapshot, snapshot_text(settings))
    if not version.exists():
        _write(version, f"{get_git_sha()}\nendive {__version__}\nmodel {MODEL_VERSION}\n")
    check_experiment(settings, root)


def check_experiment(settings: Settings, root: Path = EXPERIMENTS_FOLDER) -> None:
    """Raise ConfigError if the directory of a labelled configuration is there and of another making."""
    folder = experiment_folder(settings, root)
    snapshot, version = folder / SNAPSHOT_NAME, folder / VERSION_NAME
    if snapshot.exists() and _read(snapshot) != snapshot_text(settings):
        raise ConfigError([f"{snapshot}: is of another configuration; move {folder} away or choose another label"])
    made_by = _read(version).splitlines() if version.exists() else [f"model {MODEL_VERSION}"]
    if f"model {MODEL_VERSION}" not in made_by:
        found = next((line for line in made_by if line.startswith("model ")), "no model version")
        raise ConfigError(
            [f"{version}: says {found}, this is model {MODEL_VERSION}, whose results differ; move {folder} away"]
        )


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError([f"{path}: cannot be read: {error.strerror}"]) from error
    except UnicodeDecodeError as error:
        raise ConfigError([f"{path}: is not UTF-8 text"]) from error


def _write(path: Path, text: str) -> None:
    with whole_file(path) as stream:
        stream.write(text.encode())
