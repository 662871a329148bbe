"""Reads and writes topics from Spark: `spark.read.format("headwater")` and its three siblings.

Spark finds the data source by its name if `headwater[spark]` is installed for the interpreter of
its Python workers. By default these run whatever `python3` is on the path, so importing this
package sets PYSPARK_PYTHON and PYSPARK_DRIVER_PYTHON to the running interpreter, unless they are
set. `spark_session` makes a SparkSession with the settings that matter for topics.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.spark.exactly_once import exactly_once_writer, write_exactly_once
    from headwater.spark.session import configured, spark_session
    from headwater.spark.source import HeadwaterSource

__all__ = [
    "HeadwaterSource",
    "configured",
    "exactly_once_writer",
    "spark_session",
    "write_exactly_once",
]


if sys.executable:  # empty where Python is embedded in another program
    for _variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        os.environ.setdefault(_variable, sys.executable)


def __getattr__(name: str) -> Any:
    """Imports names when they are used: not all parts of this package need Spark."""
    if name in ("configured", "spark_session"):
        from headwater.spark.session import configured, spark_session

        return configured if name == "configured" else spark_session
    if name in ("exactly_once_writer", "write_exactly_once"):
        from headwater.spark.exactly_once import exactly_once_writer, write_exactly_once

        return exactly_once_writer if name == "exactly_once_writer" else write_exactly_once
    if name == "HeadwaterSource":
        from headwater.spark.source import HeadwaterSource

        return HeadwaterSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
