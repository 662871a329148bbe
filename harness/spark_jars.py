"""The jars of Spark's own Kafka connector, fetched once from Maven Central into the cache folder.

These versions run together on PySpark 4.3.
"""

from __future__ import annotations

from pathlib import Path

from harness.kafka_jars import cache_folder, fetch

_JARS = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org.apache.kafka", "kafka-clients", "3.9.1"),
    ("org.apache.commons", "commons-pool2", "2.12.0"),
)


def spark_jars() -> list[Path]:
    """The paths of the jars, for `spark.jars`."""
    folder = cache_folder() / "spark-connector"
    paths = [folder / f"{artifact}-{version}.jar" for _, artifact, version in _JARS]
    if not all(path.exists() for path in paths):
        print("fetching Spark's Kafka connector from Maven Central", flush=True)
        fetch(_JARS, folder, transitive=False)
    return paths
