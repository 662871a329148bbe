"""Makes a SparkSession with the settings that matter for topics; each was measured.

    from headwater.spark import spark_session
    spark = spark_session("orders", master="local[*]")

Settings of the caller win. `configured` applies the settings to the caller's own builder.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SETTINGS: dict[str, str] = {
    # Batches of this size are the quickest between Python and the JVM.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",
    # Rows come in megabytes: fewer reads of the socket to the Python worker.
    "spark.buffer.size": "1048576",
    # No TCP between the JVM and its Python workers on the same host.
    "spark.python.unix.domain.socket.enabled": "true",
    # Without Hadoop's native library the default starts a process for each file of a checkpoint,
    # which takes longer than a small batch. Right for one driver on a local or NFS path.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing"
        ".FileSystemBasedCheckpointFileManager"
    ),
    # State beyond the JVM's heap, and needed by transformWithState.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    # For option pushFilters.
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.ui.showConsoleProgress": "false",
}

# Arrow checks bounds and nulls at every access, which Spark has checked already. That takes a
# quarter of the JVM's time for a row.
_JAVA_OPTIONS = "-Darrow.enable_unsafe_memory_access=true -Darrow.enable_null_check_for_get=false"
_JAVA_SETTINGS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")

_LINKS = ("bin", "conf", "jars", "sbin")


def configured(
    builder: SparkSession.Builder, *, settings: Mapping[str, str] | None = None
) -> SparkSession.Builder:
    """Returns the builder with our settings, overridden by the caller's."""
    chosen = {**SETTINGS, **(settings or {})}
    for name in _JAVA_SETTINGS:
        chosen[name] = f"{_JAVA_OPTIONS} {chosen.get(name, '')}".strip()
    for name, value in chosen.items():
        builder = builder.config(name, value)
    return builder


def spark_session(
    name: str = "headwater",
    *,
    master: str | None = "local[*]",
    remote: str | None = None,
    shuffle_partitions: int | None = None,
    settings: Mapping[str, str] | None = None,
) -> SparkSession:
    """Makes a session on `master`, or on a Spark Connect server (`remote="sc://host"`)."""
    from pyspark.sql import SparkSession

    chosen = dict(settings or {})
    if remote is not None:
        # The settings that a running server was started with cannot be changed from here.
        builder = SparkSession.builder.remote(remote).appName(name)
        for key, value in chosen.items():
            builder = builder.config(key, value)
        return builder.getOrCreate()
    if shuffle_partitions is not None:
        chosen["spark.sql.shuffle.partitions"] = str(shuffle_partitions)
    elif master is not None and master.startswith("local"):
        from headwater.spark.ranges import cores_here

        chosen.setdefault("spark.sql.shuffle.partitions", str(max(2, cores_here())))
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    builder = configured(builder, settings=chosen)
    if master is None or not master.startswith("local") or "SPARK_HOME" in os.environ:
        return builder.getOrCreate()
    caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    if (home := quick_home(caches)) is None:
        return builder.getOrCreate()
    # Only for the JVM that starts now: this process may later start another Spark.
    os.environ["SPARK_HOME"] = str(home)
    try:
        return builder.getOrCreate()
    finally:
        del os.environ["SPARK_HOME"]


def quick_home(caches: Path) -> Path | None:
    """Makes a home for Spark in which its Python processes start quickly: a folder of links to the
    real one. None if PySpark does not come from a package, or if `caches` cannot be written.

    Spark puts `python/lib/pyspark.zip` of its home first on the path of each Python process that it
    starts: one for a streaming query, some for planning, the workers. Nothing compiled is kept for
    an archive, so each of them compiles PySpark again, which takes a second of a core; Spark waits
    ten for a process to answer, and on a busy host that is not enough. The same package is
    installed beside us, compiled. The links leave out the archive.
    """
    import pyspark

    real = Path(pyspark.__file__).resolve().parent
    if not (real / "python" / "lib" / "pyspark.zip").is_file() or not (real / "jars").is_dir():
        return None
    name = hashlib.sha256(f"{real} {pyspark.__version__}".encode()).hexdigest()[:16]
    home = caches / "headwater" / f"spark-home-{name}"
    try:
        home.mkdir(parents=True, exist_ok=True)
        for each in _LINKS:
            if (real / each).is_dir() and not (home / each).is_dir():
                _link(home / each, real / each)
    except OSError:
        return None
    return home


def _link(path: Path, to: Path) -> None:
    try:
        path.symlink_to(to)
    except FileExistsError:
        if not path.is_dir():  # a link that leads nowhere, and not one of another process
            path.unlink(missing_ok=True)
            path.symlink_to(to)
