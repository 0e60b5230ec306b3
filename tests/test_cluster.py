"""A standalone cluster on loopback: a sweep on it survives a dead worker, and leaves the bytes of `endive run`."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from tests.processes import are_gone, descendants, endive_process, kill, wait_until
from tests.sweeps import results, results_of_run, tiny_plan, write_sweep

LONGER = {"duration_ms": 120_000, "seeds": 4, "scales": (2.0, 2.1, 2.2, 2.3, 2.4, 2.5)}
SMALL_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
DEFAULTS = f"""
spark.executor.memory                           512m
spark.executor.cores                            1
spark.cores.max                                 2
spark.executor.extraJavaOptions                 {SMALL_JVM}
spark.driver.host                               127.0.0.1
spark.driver.bindAddress                        127.0.0.1
spark.scheduler.minRegisteredResourcesRatio     1.0
spark.scheduler.maxRegisteredResourcesWaitingTime 120s
"""
"""As an administrator sets up a cluster; the last two, with the number of cores, let the sweep wait until both
workers take part."""


class Cluster:
    """A master and two workers of one core, each with a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = free_port()
        self.url = f"spark://127.0.0.1:{self.port}"
        self.processes = [self._start("master.Master", "--port", str(self.port), "--webui-port", "0")]
        wait_until(lambda: is_listening(self.port), "the master", 180.0)
        for name in ("first", "second"):
            options = ("--cores", "1", "--memory", "1g", "--webui-port", "0", "--work-dir", str(folder / name))
            self.processes.append(self._start("worker.Worker", *options, self.url))

    @property
    def workers(self) -> list[subprocess.Popen[bytes]]:
        return self.processes[1:]

    def _start(self, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        program = Path(pyspark.__file__).parent / "bin" / "spark-class"
        environment = {**os.environ, "SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM}
        with (self._folder / f"{role}.log").open("ab") as log:
            return subprocess.Popen(
                [program, f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1", *arguments],
                stdout=log,
                stderr=log,
                env=environment,
            )

    def end(self) -> None:
        for process in self.processes:
            kill([process.pid, *descendants(process.pid)])
            process.wait()


def free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
        return port


def is_listening(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    started = Cluster(tmp_path)
    try:
        yield started
    finally:
        started.end()


def test_a_cluster_that_loses_a_worker_gives_every_result_once(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "spark-defaults.conf").write_text(DEFAULTS)
    plan = tiny_plan(tmp_path, **LONGER)
    root = plan.root
    arguments = ("sweep", str(write_sweep(tmp_path, **LONGER)), "-o", str(root), "--master", cluster.url)
    process = endive_process(*arguments, SPARK_CONF_DIR=str(tmp_path))
    try:
        half = len(plan.runs) // 2
        wait_until(lambda: len(done(root)) >= half or process.poll() is not None, "half of the runs", 300.0)
        before = done(root)
        lost = cluster.workers[0]
        killed = [lost.pid, *descendants(lost.pid)]
        assert len(killed) >= 3, "the worker has an executor, and that has Python"
        kill(killed)
        assert len(before) < len(plan.runs), "the worker died half-way"
        printed, complaint = process.communicate(timeout=300)
    finally:
        process.send_signal(signal.SIGKILL) if process.poll() is None else None
    assert process.returncode == 0, complaint
    assert f"{len(plan.runs)} runs done in " in printed
    assert ", 0 failed; results in " in printed
    assert results(root) == results_of_run(plan, tmp_path)
    assert {path: inode for path, inode in done(root).items() if path in before} == before, "nothing is done again"
    assert are_gone(killed)


def done(root: Path) -> dict[Path, int]:
    """Return the results that are there, and which file each is."""
    return {path: path.stat().st_ino for path in root.glob("*/*/results.parquet")}
