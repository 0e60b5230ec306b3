"""What tests share: a Hypothesis profile, a Spark session, and an engine that is compiled before the first test.

The profile has no deadlines, and prints a line that replays a failure.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

settings.register_profile(
    "endive",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("endive")


def pytest_configure(config: pytest.Config) -> None:
    """Compile the engine once: before workers that would each compile it, and tests that read what a command says."""
    if not hasattr(config, "workerinput"):
        from endive.engine import warm

        warm()


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A session of two cores and few partitions, started for the first test that asks for it."""
    from endive.pipeline.session import IDLE_JVM, open_session

    few = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    with open_session("local[2]", IDLE_JVM | few) as session:
        yield session


@pytest.fixture
def shared_session(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands use the session of the tests."""
    from endive.pipeline import session

    monkeypatch.setattr(session, "open_session", lambda *_: contextlib.nullcontext(spark))
