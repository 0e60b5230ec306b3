"""An installed Endive has all that a checkout has: what it reads of itself is in the wheel."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the wheel installs."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=CHECKOUT, check=True, capture_output=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"


def files(folder: Path, pattern: str) -> set[str]:
    found = {path.relative_to(folder).as_posix() for path in folder.rglob(pattern) if path.is_file()}
    return {name for name in found if "__pycache__" not in name}


def test_every_file_of_the_package_is_in_the_wheel(installed: Path) -> None:
    assert files(CHECKOUT / "endive", "*") <= files(installed / "endive", "*")


@pytest.mark.parametrize("folder", ["benchmarks", "sweeps"])
def test_the_configurations_that_come_with_endive_are_in_the_wheel(installed: Path, folder: str) -> None:
    assert files(installed / "endive" / folder, "*") == files(CHECKOUT / folder, "*.toml") != set()


def test_nothing_else_is_installed(installed: Path) -> None:
    assert [path.name for path in installed.iterdir() if path.suffix != ".dist-info"] == ["endive"]


def test_a_sweep_that_comes_with_endive_is_found_outside_the_checkout(installed: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "endive.main", "sweep", "exp1", "--dry-run"]
    environment = os.environ | {"PYTHONPATH": str(installed)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "sweep exp1, results in experiments" in done.stdout
