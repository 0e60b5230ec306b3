"""Spark starts quietly, or says in one line why it cannot."""

from __future__ import annotations

import io
import logging
import socket
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from endive.config_errors import ConfigError
from endive.pipeline import session
from endive.pipeline.errors import SparkUnavailableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def write_java(folder: Path, told: str, code: int = 0) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{told}' >&2\nexit {code}\n")
    java.chmod(0o755)
    return folder


def test_a_session_has_the_settings_of_every_session(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.execution.arrow.pyspark.enabled") == "true"
    assert spark.conf.get("spark.ui.enabled") == "false"
    assert spark.sparkContext.master == "local[2,4]"


def test_what_the_way_to_java_logs_of_an_interrupt_is_not_shown(
    spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("somewhere/py4j/java_gateway.py", "somewhere/else.py"):
        record = logging.LogRecord(
            "root", logging.ERROR, path, 1, "KeyboardInterrupt while sending command.", None, None
        )
        logging.getLogger().handle(record)
    assert [record.pathname for record in caplog.records] == ["somewhere/else.py"]


def test_workers_run_this_interpreter(spark: SparkSession) -> None:
    import pyarrow as pa

    def interpreter(batches):  # type: ignore[no-untyped-def]
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    assert spark.range(1).mapInArrow(interpreter, "python string").first()[0] == sys.executable


def test_no_java_is_told_with_the_way_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match=r"^Spark needs Java, and there is none on the PATH; install a JDK"):
        session.require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(SparkUnavailableError, match="none in JAVA_HOME = "):
        session.require_java()


@pytest.mark.parametrize(
    ("told", "code", "said"),
    [
        ('openjdk version "11.0.2" 2019-01-15', 0, "is version 11"),
        ('java version "1.8.0_392"', 0, "is version 8"),
        ("cannot allocate", 1, "is broken"),
    ],
)
def test_a_java_that_is_too_old_or_broken_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, told: str, code: int, said: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(write_java(tmp_path, told, code)))
    with pytest.raises(SparkUnavailableError, match=f"needs Java 17 or newer, and .* {said}; install"):
        session.require_java()


def test_a_newer_java_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(write_java(tmp_path, 'openjdk version "25" 2025-09-16')))
    session.require_java()


def test_a_master_that_nobody_listens_at_is_told_at_once() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        place = f"spark://127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(SparkUnavailableError, match=f"^master {place} cannot be reached: Connection refused$"):
            session.require_reachable(place)
    with pytest.raises(SparkUnavailableError, match="'nowhere:x' is not HOST:PORT"):
        session.require_reachable("spark://nowhere:x")


def test_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost")
    with pytest.raises(SparkUnavailableError, match=r"^Endive does not run on Spark Connect; unset SPARK_REMOTE"):
        session._start(None, {})


def test_what_is_no_master_is_told_wherever_it_comes_from(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"^Spark master 'there': is not one; allowed is local, "):
        session._start("there", {})
    monkeypatch.setenv("MASTER", "local[none]")
    with pytest.raises(ConfigError, match=r"^Spark master 'local\[none\]': is not one; allowed is local, "):
        session._start(None, {})


@pytest.mark.parametrize(
    ("complaint", "said"),
    [
        (
            b'WARNING: x\nException in thread "main" org.apache.spark.SparkException: no such host\n\tat y',
            "no such host",
        ),
        (b"Error: Could not find or load main class x\n", "Error: Could not find or load main class x"),
        (b"", "Java ended at once"),
    ],
)
def test_what_java_complains_of_is_one_line_without_its_classes(complaint: bytes, said: str) -> None:
    assert session._complaint(io.BytesIO(complaint)) == said


def test_one_reachable_master_of_several_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        session.require_reachable(f"spark://127.0.0.1:1,127.0.0.1:{port}")


def test_spark_defaults_win_over_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.driver.memory   5g\nspark.master=spark://there:7077\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert session._spark_defaults() == {"spark.driver.memory": "5g", "spark.master": "spark://there:7077"}
    launched = []
    monkeypatch.setattr(session, "_launch", lambda *given: launched.append(given))
    monkeypatch.setattr(session, "require_reachable", lambda *_: None)
    session._start(None, {"spark.app.name": "other"})
    master, settings = launched[0]
    assert master == "spark://there:7077"
    assert "spark.driver.memory" not in settings
    assert settings["spark.app.name"] == "other"


@pytest.mark.parametrize(
    ("given", "started"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[3]", "local[3,4]"),
        ("local[3,1]", "local[3,1]"),
        ("spark://a:1", "spark://a:1"),
    ],
)
def test_a_local_master_tries_again_too(given: str, started: str) -> None:
    assert session._with_retries(given) == started


def test_workers_of_a_cluster_run_the_python_that_spark_or_else_the_environment_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert session.workers_python(False, {}) == sys.executable
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python")
    assert session.workers_python(False, {}) == "/opt/python"
    assert session.workers_python(False, {"spark.pyspark.python": "/usr/bin/python"}) == "/usr/bin/python"
    assert session.workers_python(True, {"spark.pyspark.python": "/usr/bin/python"}) == sys.executable
