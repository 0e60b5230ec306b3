"""What is written about the project is true: references are current, links resolve, the layers hold."""

from __future__ import annotations

import argparse
import ast
import importlib.util
import re
import shlex
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from endive import __version__
from endive.config import json_schema, parse_settings
from endive.main import build_parser
from endive.pipeline.schemas import (
    COMMIT_RATES,
    CONFIGURATIONS,
    COUNTS,
    DIFFERENCES,
    HISTOGRAM,
    METRICS,
    RUN_KEYS,
    RUN_METRICS,
    RUN_SUMMARY,
    SUMMARY,
)
from endive.pipeline.summarize import TABLES
from endive.pipeline.sweep_file import load_sweep, parse_sweep, shipped_sweeps
from endive.results import SCHEMA as RESULTS

REPOSITORY = Path(__file__).parent.parent
REFERENCE = REPOSITORY / "docs" / "reference"
COMMAND_LINE = REFERENCE / "command-line.md"
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


def section(page: Path, title: str) -> str:
    """Return what stands under a heading, up to the next heading of its level or above."""
    match = re.search(rf"^(#+) {re.escape(title)}$", page.read_text(), re.MULTILINE)
    assert match is not None, f"{page.name}: no heading {title!r}"
    following = page.read_text()[match.end() :]
    after = re.search(rf"^#{{1,{len(match[1])}}} ", following, re.MULTILINE)
    return following[: after.start()] if after else following


def commands() -> dict[str, argparse.ArgumentParser]:
    found = next(action for action in build_parser()._actions if action.dest == "command").choices
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("name", commands())
def test_every_command_and_option_is_documented_where_it_belongs(name: str) -> None:
    synopsis = re.search(rf"^endive {name} .*$", COMMAND_LINE.read_text(), re.MULTILINE)
    assert synopsis is not None
    described = synopsis[0] + section(COMMAND_LINE, f"endive {name}")
    options = commands()[name]._option_string_actions
    for option in options.keys() - {"-h", "--help"}:
        assert re.search(rf"(?<![\w-]){option}(?![\w-])", described), option
    for option in re.findall(r"(?<![\w-])--?[a-z][a-z-]*", synopsis[0]):
        assert option in options, f"{option} is no option of endive {name}"


def example_commands() -> list[tuple[str, str]]:
    """Return each command of Endive in a page's console, with the page."""
    return [
        (page.relative_to(REPOSITORY).as_posix(), line.replace("\\\n", " "))
        for page in PAGES
        for console in re.findall(r"```console\n(.*?)```", page.read_text(), re.DOTALL)
        for line in re.findall(r"^\S*\$ (?:\w+=\S+ )*(endive (?:.*\\\n)*.*)$", console, re.MULTILINE)
    ]


@pytest.mark.parametrize(("page", "line"), example_commands())
def test_the_commands_of_the_pages_exist(page: str, line: str) -> None:
    _, *arguments = shlex.split(re.split(r" [|>&]+ ", line)[0], comments=True)
    assert is_understood([argument.replace("$seed", "1") for argument in arguments]), f"{page}: {line}"


def is_understood(arguments: Sequence[str]) -> bool:
    try:
        build_parser().parse_args(arguments)
    except SystemExit as ended:
        return ended.code == 0
    return True


def test_every_column_of_results_is_documented_with_its_type() -> None:
    documented = documented_columns(REFERENCE / "results.md", "Rows of results.parquet")
    for column in RESULTS:
        assert documented[column.name] == type_name(column), column.name


def type_name(column: pa.Field[Any]) -> str:
    """Return what the pages call the type of a column."""
    if column.type == HISTOGRAM:
        return "histogram"
    inner = column.type.value_type if pa.types.is_list(column.type) else column.type
    name = "float64" if pa.types.is_float64(inner) else str(inner)
    name = f"list of {name}" if pa.types.is_list(column.type) else name
    return f"{name}, null" if column.nullable else name


def documented_columns(page: Path, title: str) -> dict[str, str]:
    """Return the type of each column in the table under a heading."""
    rows = re.findall(r"^\| ([^|]+) \| ([^|]*?) *\|", section(page, title).split("\n#")[0], re.MULTILINE)
    return {name: column_type for names, column_type in rows for name in re.findall(r"`([a-z]\w+)`", names)}


SHARED = {*COUNTS, *METRICS, *(metric + end for metric in METRICS for end in ("_low", "_high"))}
"""Columns that several tables have, and that stand in sections of their own."""


@pytest.mark.parametrize(
    ("title", "schema"),
    [
        ("summary.parquet of a run", RUN_SUMMARY),
        ("run_metrics", RUN_METRICS),
        ("summary", SUMMARY),
        ("commit_rates", COMMIT_RATES),
        ("differences", DIFFERENCES),
    ],
)
def test_every_column_of_summaries_is_documented_with_its_type(title: str, schema: pa.Schema) -> None:
    documented = documented_columns(REFERENCE / "summaries.md", title)
    own = [column for column in schema if column.name not in SHARED or column.name in documented]
    assert documented == {column.name: type_name(column) for column in own}


def test_every_count_and_metric_is_documented() -> None:
    page = REFERENCE / "summaries.md"
    assert documented_columns(page, "Counts").keys() == set(COUNTS)
    assert documented_columns(page, "Metrics").keys() == set(METRICS)


def test_every_table_of_endive_summarize_is_documented() -> None:
    for name in TABLES:
        section(REFERENCE / "summaries.md", name)


def test_every_column_that_consolidating_adds_is_documented() -> None:
    documented = documented_columns(REFERENCE / "consolidated.md", "consolidated.parquet")
    assert documented == {column.name: type_name(column) for column in RUN_KEYS}
    documented = documented_columns(REFERENCE / "consolidated.md", "configurations.parquet")
    assert documented == {column.name: type_name(column) for column in CONFIGURATIONS}


def test_every_sweep_that_comes_along_is_documented_with_its_runs() -> None:
    rows = re.findall(
        r"^\| (`.+?) \| .* \| ([\d,]+)(?: each)? \|$", (REFERENCE / "sweep-files.md").read_text(), re.MULTILINE
    )
    documented = {name: int(runs.replace(",", "")) for names, runs in rows for name in re.findall(r"`(\w+)`", names)}
    sweeps = {name: load_sweep(path) for name, path in shipped_sweeps().items()}
    assert documented == {name: len(sweep.configurations) * len(sweep.seeds) for name, sweep in sweeps.items()}


def is_key(schema: dict[str, Any], table: dict[str, Any], path: Sequence[str]) -> bool:
    """Tell whether a dotted path is a key of a configuration; a stream, or a table of free name, may have any."""
    choices = [table, *table.get("anyOf", []), *table.get("oneOf", [])]
    if "$ref" in table:
        choices.append(schema["$defs"][table["$ref"].rpartition("/")[2]])
    if not path:
        return True
    first, *rest = path
    for choice in choices:
        inner = [choice["properties"][first]] if first in choice.get("properties", {}) else []
        inner += choice.get("patternProperties", {}).values()
        if isinstance(choice.get("additionalProperties"), dict):
            inner.append(choice["additionalProperties"])
        if any(is_key(schema, entry, rest) for entry in inner):
            return True
        if choice is not table and is_key(schema, choice, path):
            return True
    return isinstance(table.get("items"), dict) and (not rest or is_key(schema, table["items"], rest))


@pytest.mark.parametrize(
    "page", [page for page in PAGES if page.name != "configuration.md"], ids=lambda page: page.name
)
def test_every_key_that_a_page_names_is_one(page: Path) -> None:
    schema = json_schema()
    tables = "|".join(schema["properties"])
    for key in re.findall(rf"[`\"]((?:{tables})(?:\.\w+)+)(?=[`\" ])", page.read_text()):
        assert is_key(schema, schema, key.split(".")), key


def test_a_key_that_is_none_is_told_apart() -> None:
    schema = json_schema()
    assert is_key(schema, schema, ["streams", "ingest", "inter_arrival", "scale"])
    assert not is_key(schema, schema, ["streams", "ingest", "inter_arrivals"])
    assert not is_key(schema, schema, ["catalog", "tables"])
    assert not is_key(schema, schema, ["catalog", "scope", "table"])


def whole_configurations() -> list[tuple[str, str]]:
    """Return each TOML of a page that says how long to simulate, with the page."""
    return [
        (page.relative_to(REPOSITORY).as_posix(), content)
        for page in PAGES
        for content in re.findall(r"```toml\n(.*?)```", page.read_text(), re.DOTALL)
        if "duration_ms =" in content and "provider" in content
    ]


@pytest.mark.parametrize(("page", "content"), whole_configurations(), ids=lambda text: text if "/" in text else "")
def test_the_configurations_of_the_pages_are_valid(page: str, content: str) -> None:
    data = tomllib.loads(content)
    if "sweep" in data:
        assert parse_sweep(data, "page").configurations
    else:
        assert parse_settings(data)


def test_every_page_is_on_the_list_of_pages() -> None:
    listed = re.findall(r"\]\((\w[^)#]*\.md)\)", (REPOSITORY / "docs" / "README.md").read_text())
    pages = {page.relative_to(REPOSITORY / "docs").as_posix() for page in REPOSITORY.glob("docs/**/*.md")}
    assert {page for page in pages if not page.startswith("decisions/")} == {"README.md", *listed}


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
