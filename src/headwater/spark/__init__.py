"""Spark reads and writes topics: `spark.read.format("headwater")` and its three siblings.

The data source is found by its name once `headwater[spark]` is installed; nothing is registered.
`spark_session` makes a SparkSession with the settings that matter for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headwater.spark.session import configured, spark_session
    from headwater.spark.source import HeadwaterSource

__all__ = ["HeadwaterSource", "configured", "spark_session"]


def __getattr__(name: str) -> Any:
    """Imports what is asked for: whoever only wants the options need not have Spark."""
    if name in ("configured", "spark_session"):
        from headwater.spark.session import configured, spark_session

        return configured if name == "configured" else spark_session
    if name == "HeadwaterSource":
        from headwater.spark.source import HeadwaterSource

        return HeadwaterSource
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
