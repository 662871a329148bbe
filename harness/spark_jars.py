"""The jars of Spark's own Kafka connector, fetched once from Maven Central into the cache folder.

These versions run together on PySpark 4.3.
"""

from __future__ import annotations

import urllib.request
from pathlib import Path

from harness.kafka_jars import cache_folder

_CENTRAL = "https://repo1.maven.org/maven2"
_JARS = (
    ("org/apache/spark", "spark-sql-kafka-0-10_2.13", "4.2.0"),
    ("org/apache/spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0"),
    ("org/apache/kafka", "kafka-clients", "3.9.1"),
    ("org/apache/commons", "commons-pool2", "2.12.0"),
)


def spark_jars() -> list[Path]:
    """The paths of the jars, for `spark.jars`."""
    folder = cache_folder() / "spark-connector"
    folder.mkdir(parents=True, exist_ok=True)
    return [_fetched(folder, *each) for each in _JARS]


def _fetched(folder: Path, group: str, artifact: str, version: str) -> Path:
    path = folder / f"{artifact}-{version}.jar"
    if not path.exists():
        print(f"fetching {path.name} from Maven Central", flush=True)
        part = path.with_suffix(".part")
        address = f"{_CENTRAL}/{group}/{artifact}/{version}/{path.name}"
        urllib.request.urlretrieve(address, part)
        part.rename(path)
    return path
