"""The only place that builds a Spark session: quiet, with Arrow, and with this interpreter.

What `spark-defaults.conf` or `PYSPARK_SUBMIT_ARGS` say wins over the settings here; `master` wins over all. A session
takes seconds to start, so callers open one only when there is work for it.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from endive.pipeline.errors import SparkUnavailableError
from endive.pipeline.master import check_master

JAVA_VERSION_MIN: Final = 17
TASK_ATTEMPTS: Final = 4
"""How often Spark tries a task whose worker died, before it gives up the job."""

_CONNECT_TIMEOUT_S: Final = 5.0
_MASTER_PORT: Final = 7077
_GET_JAVA: Final = f"install a JDK {JAVA_VERSION_MIN} or newer (https://adoptium.net) and set JAVA_HOME to it"

_SETTINGS: Final = {
    "spark.app.name": "endive",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.task.maxFailures": str(TASK_ATTEMPTS),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.executorEnv.OMP_NUM_THREADS": "1",
    "spark.executorEnv.NUMBA_NUM_THREADS": "1",
}
IDLE_JVM: Final = {"spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For sessions whose JVM only hands out tasks: it starts with a third less work, and leaves the cores to Python."""

_LOCAL_SETTINGS: Final = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


@contextlib.contextmanager
def open_session(master: str | None = None, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Give a session that ends with the block; raise SparkUnavailableError, in one line, if there can be none.

    `master` is a Spark master URL, ConfigError otherwise; by default what Spark is configured for, else every core of
    this machine. `settings` come on top of those that every session of Endive has.
    """
    session = _start(master, settings or {})
    try:
        yield session
    finally:
        session.stop()


def _start(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    _refuse_connect()
    require_java()
    configured = _spark_defaults()
    chosen = (configured.get("spark.master") or _submitted_master() or "local[*]") if master is None else master
    check_master(chosen)
    require_reachable(chosen)
    is_local = chosen.startswith("local")
    os.environ["PYSPARK_PYTHON"] = workers_python(is_local, configured)
    ours = _SETTINGS | (_LOCAL_SETTINGS if is_local else {}) | dict(settings)
    absent = {name: value for name, value in ours.items() if name not in configured}
    return _launch(_with_retries(chosen), absent)


def _refuse_connect() -> None:
    """Raise SparkUnavailableError where PySpark would be a client of Spark Connect, which has no driver of ours."""
    if "SPARK_REMOTE" in os.environ:
        raise SparkUnavailableError("Endive does not run on Spark Connect; unset SPARK_REMOTE, and use --master URL")


def workers_python(is_local: bool, configured: Mapping[str, str]) -> str:
    """Return the interpreter that workers run: this one, or on a cluster the one that Spark is configured for."""
    if is_local:
        return sys.executable
    return configured.get("spark.pyspark.python") or os.environ.get("PYSPARK_PYTHON") or sys.executable


def _launch(master: str, settings: Mapping[str, str]) -> SparkSession:
    """Start the JVM, whose complaints are shown only if it does not start, and a session in it."""
    logging.getLogger().addFilter(_is_not_of_py4j)
    conf = SparkConf(loadDefaults=False).setMaster(master).setAll(list(settings.items()))
    with tempfile.TemporaryFile() as complaints:
        try:
            if SparkContext._gateway is None:
                with _interrupts_held_back():
                    gateway = launch_gateway(conf, {"stdout": complaints, "stderr": complaints})  # type: ignore[no-untyped-call]
                SparkContext._ensure_initialized(gateway=gateway)
            return SparkSession.builder.config(map=dict(conf.getAll())).getOrCreate()
        except Exception as error:
            reason = _complaint(complaints) if "JAVA_GATEWAY_EXITED" in str(error) else reason_of(error)
            raise SparkUnavailableError(f"Spark cannot start with master {master}: {reason}") from error


@contextlib.contextmanager
def _interrupts_held_back() -> Iterator[None]:
    """Let an interrupt wait for the end of the block: a JVM that nobody waits for as it starts never ends."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held_back: list[int] = []
    earlier = signal.signal(signal.SIGINT, lambda number, _: held_back.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, earlier)
        if held_back:
            raise KeyboardInterrupt


def _is_not_of_py4j(record: logging.LogRecord) -> bool:
    """Keep from the root logger what py4j tells it of an interrupt, traceback and all; errors it raises anyway."""
    return Path(record.pathname).parent.name != "py4j"


def reason_of(error: Exception) -> str:
    """Return what Spark says went wrong, on one line: of a worker's traceback the last, of Java's stack the first."""
    java = getattr(error, "java_exception", None)
    lines = str(error if java is None else java.toString()).strip().splitlines() or [type(error).__name__]
    if not any(line.startswith("Traceback") for line in lines):
        return _without_classes(lines[0])
    return [line for line in lines if line.strip() and not line[0].isspace()][-1]


def _without_classes(line: str) -> str:
    return re.sub(r"^(?:Exception in thread \S+ )?(?:[\w.$]+(?:Exception|Error): )*", "", line.strip())


def _complaint(stream: IO[bytes]) -> str:
    stream.seek(0)
    lines = [line for line in stream.read().decode(errors="replace").splitlines() if not line.startswith("WARNING")]
    errors = [line for line in lines if "rror" in line or "xception" in line]
    return _without_classes((errors or lines or ["Java ended at once"])[0])


def _with_retries(master: str) -> str:
    """Let a local master try a task again too, which it does only if its URL says so."""
    found = re.fullmatch(r"local(?:\[(\*|\d+)\])?", master)
    return master if found is None else f"local[{found.group(1) or 1},{TASK_ATTEMPTS}]"


def _spark_defaults() -> dict[str, str]:
    """Return what spark-defaults.conf sets."""
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and f"{home}/conf")
    file = Path(folder or ".") / "spark-defaults.conf"
    if folder is None or not file.is_file():
        return {}
    pairs = (re.split(r"[\s=:]+", line.strip(), maxsplit=1) for line in file.read_text(encoding="utf-8").splitlines())
    return {pair[0]: pair[1] for pair in pairs if len(pair) == 2 and not pair[0].startswith("#")}


def _submitted_master() -> str | None:
    found = re.search(r"--master[ =](\S+)", os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    return found.group(1) if found else os.environ.get("MASTER")


def require_java() -> None:
    """Raise SparkUnavailableError unless the Java that Spark would take is there and new enough."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java" if home is None else f"{home}/bin/java")
    if java is None:
        where = "on the PATH" if home is None else f"in JAVA_HOME = {home}"
        raise SparkUnavailableError(f"Spark needs Java, and there is none {where}; {_GET_JAVA}")
    told = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)  # noqa: S603  (no input)
    found = re.search(r'version "(?:1\.)?(\d+)', told.stderr)
    if told.returncode != 0 or (found and int(found.group(1)) < JAVA_VERSION_MIN):
        version = f"version {found.group(1)}" if found else "broken"
        raise SparkUnavailableError(
            f"Spark needs Java {JAVA_VERSION_MIN} or newer, and {java} is {version}; {_GET_JAVA}"
        )


def require_reachable(master: str) -> None:
    """Raise SparkUnavailableError if nobody listens where a standalone master should be.

    Spark itself tries for a minute, and does not say which.
    """
    if not master.startswith("spark://"):
        return
    places = master.removeprefix("spark://").split(",")
    reasons = [_unreachable(place) for place in places]
    if None not in reasons:
        raise SparkUnavailableError(f"master {master} cannot be reached: {reasons[0]}")


def _unreachable(place: str) -> str | None:
    host, _, port = place.rpartition(":") if ":" in place else (place, "", str(_MASTER_PORT))
    if not host or not port.isdigit() or int(port) > 65535:
        return f"{place!r} is not HOST:PORT"
    try:
        socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S).close()
    except OSError as error:
        return error.strerror or str(error)
    return None
