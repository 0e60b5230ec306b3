"""What is written about the project is true: references are current, links resolve, the layers hold."""

from __future__ import annotations

import ast
import importlib.util
import re
from pathlib import Path

import pytest

from endive import __version__
from endive.main import build_parser
from endive.results import COLUMNS

REPOSITORY = Path(__file__).parent.parent
PAGES = sorted([*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md")])
MODEL = (
    "storage",
    "catalog",
    "transaction",
    "operation_costs",
    "conflict_detector",
    "workload",
    "policy",
    "manifest_list",
    "steps",
)
MODEL_MAY_IMPORT = {*MODEL, "random_streams", ""}


def heading_anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(REPOSITORY).as_posix())
def test_links_resolve(page: Path) -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (page.parent / name).resolve() if name else page
        assert linked.exists(), target
        if anchor:
            assert anchor in heading_anchors(linked), target


def test_the_configuration_reference_is_that_of_the_settings() -> None:
    script = REPOSITORY / "docs" / "reference" / "generate.py"
    specification = importlib.util.spec_from_file_location("generate", script)
    assert specification is not None
    assert specification.loader is not None
    generate = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(generate)
    assert generate.TARGET.read_text() == generate.reference()


def test_every_command_and_option_is_documented() -> None:
    page = (REPOSITORY / "docs" / "reference" / "command-line.md").read_text()
    commands = next(action for action in build_parser()._actions if action.dest == "command").choices
    for name, parser in commands.items():
        assert f"endive {name}" in page
        for option in parser._option_string_actions:
            assert option in page, f"{name} {option}"


def test_every_column_is_documented() -> None:
    page = (REPOSITORY / "docs" / "reference" / "results.md").read_text()
    for column in COLUMNS:
        assert f"`{column.name}`" in page, column.name


def test_the_protocol_table_has_the_rows_of_the_script_that_made_it() -> None:
    page = (REPOSITORY / "docs" / "guides" / "protocols.md").read_text()
    script = REPOSITORY / "examples" / "protocols.py"
    specification = importlib.util.spec_from_file_location("protocols", script)
    assert specification is not None
    assert specification.loader is not None
    protocols = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(protocols)
    rows = re.findall(r"^\| (.+?) \| [0-9.]+ \|", page, re.MULTILINE)
    assert rows == list(protocols.PROTOCOLS)


def test_the_changelog_knows_this_version() -> None:
    assert f"## {__version__}" in (REPOSITORY / "CHANGELOG.md").read_text()


def imported_names(module: str) -> set[str]:
    tree = ast.parse((REPOSITORY / "endive" / f"{module}.py").read_text())
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return names


@pytest.mark.parametrize("module", MODEL)
def test_the_model_knows_neither_engine_nor_files(module: str) -> None:
    for name in imported_names(module):
        package, _, part = name.partition(".")
        assert package not in {"simpy", "pandas", "pyarrow", "pydantic", "tomllib", "os", "pathlib", "time"}, name
        if package == "endive":
            assert part in MODEL_MAY_IMPORT, name


def test_only_the_runner_knows_simpy() -> None:
    modules = [path.stem for path in (REPOSITORY / "endive").glob("*.py")]
    assert [module for module in modules if "simpy" in imported_names(module)] == ["simulation"]
