"""One table of every finished run: sorted, whole at every moment, written again only where runs have changed."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from endive.config import compute_experiment_hash
from endive.config_errors import ConfigError
from endive.main import main
from endive.pipeline.consolidate import Consolidation, consolidate
from endive.pipeline.consolidated import ROWS_PER_GROUP, read_making, rows_path, write_rows
from endive.pipeline.schemas import CONFIGURATIONS, CONSOLIDATED
from endive.progress import MovingLine
from endive.results import SCHEMA
from tests.experiment_folders import settings_of, write_run
from tests.processes import are_gone, descendants, endive_process, wait_until
from tests.result_rows import aborted, committed, rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HASH = compute_experiment_hash(settings_of())
ROWS = rows(
    committed(3, 5.0, 6.0, tables_written=[0, 2]),
    aborted(1, 2.0, 7.0, operation_type="merge_append", stream="nightly"),
    committed(2, 2.0, 8.0, n_retries=4),
)
SORTED = ROWS.take([1, 2, 0])


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return rows_path(tmp_path, "exp", HASH)


def write(root: Path, *seeds: int, table: pa.Table = ROWS) -> Path:
    """Write runs of the experiment; return its folder."""
    runs = [write_run(root, settings_of(), seed, table) for seed in seeds]
    return runs[0].parent


def read(path: Path) -> pa.Table:
    with pq.ParquetFile(path) as file:
        return file.read()


def no_spark() -> contextlib.AbstractContextManager[SparkSession]:
    pytest.fail("Spark was started with nothing to do")


def test_rows_are_sorted_by_seed_and_submission_and_are_otherwise_untouched(tmp_path: Path, target: Path) -> None:
    write_rows(target, write(tmp_path, 10, 2), [10, 2])
    table = read(target)
    assert table.column_names == [*SCHEMA.names, "seed"]
    assert table.column("seed").to_pylist() == [2, 2, 2, 10, 10, 10]
    expected = pa.concat_tables([SORTED, SORTED]).to_pylist()
    assert table.drop_columns(["seed"]).to_pylist() == expected


def test_the_columns_have_the_types_of_the_contract(tmp_path: Path, target: Path) -> None:
    write_rows(target, write(tmp_path, 1), [1])
    with pq.ParquetFile(target) as file:
        for column in file.schema_arrow:
            contract = CONSOLIDATED.field(column.name)
            if column.name == "tables_written":
                assert column.type.value_type == contract.type.value_type
            else:
                assert (column.type, column.nullable) == (contract.type, contract.nullable)


def test_a_run_with_no_row_is_a_run(tmp_path: Path, target: Path) -> None:
    making = write_rows(target, write(tmp_path, 1, table=rows()), [1])
    assert read(target).num_rows == 0
    assert [seed for seed, _, _ in making.runs] == [1]


def test_row_groups_are_of_one_run(tmp_path: Path, target: Path) -> None:
    many = pa.concat_tables([ROWS] * (ROWS_PER_GROUP // 3 + 1))
    write(tmp_path, 2)
    write_rows(target, write(tmp_path, 1, table=many), [1, 2])
    metadata = pq.read_metadata(target)
    sizes = [metadata.row_group(place).num_rows for place in range(metadata.num_row_groups)]
    assert sizes == [ROWS_PER_GROUP, many.num_rows - ROWS_PER_GROUP, 3]
    assert metadata.row_group(0).column(0).compression == "ZSTD"


@pytest.mark.parametrize("damage", ["empty", "truncated", "garbled", "other columns", "other file"])
def test_rows_that_cannot_be_read_are_left_out_and_the_file_says_so(tmp_path: Path, target: Path, damage: str) -> None:
    folder = write(tmp_path, 1, 2)
    path = folder / "1" / "results.parquet"
    content = path.read_bytes()
    if damage == "other columns":
        pq.write_table(ROWS.drop_columns(["attempts"]), path)
    else:
        damaged = {
            "empty": b"",
            "truncated": content[: len(content) // 2],
            "garbled": b"PAR1" + b"\xff" * 1000 + content[1004:],
            "other file": b"a,b\n1,2\n" * 100,
        }
        path.write_bytes(damaged[damage])
    making = write_rows(target, folder, [1, 2])
    assert list(making.unreadable) == [1]
    assert read(target).column("seed").to_pylist() == [2, 2, 2]
    assert read_making(target) == making


def test_what_is_not_a_consolidated_file_was_made_of_nothing(tmp_path: Path, target: Path) -> None:
    assert read_making(target) is None
    target.parent.mkdir(parents=True)
    target.write_bytes(b"PAR1")
    assert read_making(target) is None
    pq.write_table(ROWS, target)
    assert read_making(target) is None


_REWRITE = """
import sys
from pathlib import Path
from endive.pipeline.consolidated import write_rows
while True:
    write_rows(Path(sys.argv[1]), Path(sys.argv[2]), [1])
    print("written", flush=True)
"""


@contextlib.contextmanager
def rewriting(target: Path, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that writes a consolidated file again and again, and is killed at the end."""
    command = [sys.executable, "-c", _REWRITE, str(target), str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            os.kill(process.pid, signal.SIGKILL)


def test_what_is_there_is_whole_while_it_is_written_and_after_a_kill(tmp_path: Path, target: Path) -> None:
    many = pa.concat_tables([ROWS] * 1000)
    folder = write(tmp_path, 1, table=many)
    with rewriting(target, folder):
        for _ in range(20):
            assert read(target).num_rows == many.num_rows
            time.sleep(0.01)
    assert read(target).num_rows == many.num_rows
    visible = [path.name for path in target.parent.iterdir() if not path.name.startswith(".")]
    assert visible == [target.name]
    write_rows(target, folder, [1])
    assert [path.name for path in target.parent.iterdir()] == [target.name]


def test_a_directory_is_consolidated_and_again_only_where_runs_have_changed(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    problems: list[str] = []

    def run(session: SparkSession | None = spark) -> Consolidation:
        problems.clear()
        return consolidate(
            tmp_path, no_spark if session is None else lambda: contextlib.nullcontext(session), problems.append
        )

    write(tmp_path, 1)
    write_run(tmp_path, settings_of(num_tables=2), 1, SORTED)
    paths = [rows_path(tmp_path, "exp", compute_experiment_hash(settings_of(num_tables=tables))) for tables in (1, 2)]
    assert (run(), problems) == (Consolidation(experiments=2, written=2, problems=0), [])
    assert [read(path).num_rows for path in paths] == [3, 3]
    settings = pq.read_table(tmp_path / "configurations.parquet")
    assert settings.schema.equals(CONFIGURATIONS)
    assert len(set(settings.column("exp_hash").to_pylist())) == 2

    assert run(None) == Consolidation(experiments=2, written=0, problems=0)

    before = paths[1].stat().st_mtime_ns
    folder = write(tmp_path, 2)
    assert run() == Consolidation(experiments=2, written=1, problems=0)
    assert read(paths[0]).column("seed").to_pylist() == [1, 1, 1, 2, 2, 2]
    assert paths[1].stat().st_mtime_ns == before

    damaged = folder / "2" / "results.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-20])
    assert run() == Consolidation(experiments=2, written=1, problems=1)
    assert problems[0].startswith(f"{damaged}: cannot be read: ")
    assert problems[0].endswith(f"; seed 2 of {folder.name} is left out")
    assert read(paths[0]).column("seed").to_pylist() == [1, 1, 1]
    assert run(None) == Consolidation(experiments=2, written=0, problems=1)

    assert main(["consolidate", str(tmp_path), "--quiet"]) == 1
    told = capsys.readouterr()
    assert told.err.splitlines() == [f"endive: {problems[0]}"]
    assert told.out.startswith("0 of 2 experiments written in ")

    write(tmp_path, 2, table=SORTED.slice(1))
    assert run() == Consolidation(experiments=2, written=1, problems=0)
    assert read(paths[0]).column("seed").to_pylist() == [1, 1, 1, 2, 2]

    paths[1].write_bytes(b"PAR1")
    assert run() == Consolidation(experiments=2, written=1, problems=0)
    assert read(paths[1]).num_rows == 3


def test_an_interrupt_while_spark_starts_is_one_line_and_leaves_no_process(tmp_path: Path) -> None:
    write(tmp_path, 1)
    process = endive_process("consolidate", str(tmp_path))
    wait_until(lambda: any(map(is_java, descendants(process.pid))) or process.poll() is not None, "Java")
    started = descendants(process.pid)
    process.send_signal(signal.SIGINT)
    printed, complaint = process.communicate(timeout=120)
    assert (process.returncode, printed, complaint) == (130, "", "endive: interrupted\n")
    wait_until(lambda: are_gone(started), "the end of what the command had started", 60.0)


def is_java(process_id: int) -> bool:
    try:
        command = Path(f"/proc/{process_id}/cmdline").read_bytes()
    except OSError:
        return False
    return b"org.apache.spark.deploy.SparkSubmit" in command


class ShownAlways(MovingLine):
    def is_due(self) -> bool:
        return True


def test_how_far_it_is_can_be_told_where_no_run_holds_anything(tmp_path: Path, spark: SparkSession) -> None:
    (write(tmp_path, 1) / "1" / "results.parquet").write_bytes(b"")
    problems: list[str] = []
    told = io.StringIO()
    done = consolidate(tmp_path, lambda: contextlib.nullcontext(spark), problems.append, ShownAlways(told))
    assert done == Consolidation(experiments=1, written=1, problems=1)
    assert len(problems) == 1
    assert told.getvalue().splitlines()[0].endswith(" of 1 experiments consolidated")


@pytest.mark.parametrize(("make", "told"), [(False, "is not a directory"), (True, "holds no finished run")])
def test_a_directory_with_nothing_to_consolidate_is_an_input_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], make: bool, told: str
) -> None:
    root = tmp_path / "experiments"
    if make:
        root.mkdir()
    assert main(["consolidate", str(root)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"endive: {root}: {told}")
    with pytest.raises(ConfigError):
        consolidate(root, no_spark, print)
