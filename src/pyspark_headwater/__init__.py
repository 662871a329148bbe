"""Registers the data source with Spark.

Spark searches all installed modules whose name begins with `pyspark_` for a `DefaultSource`.
"""

from headwater.spark.source import HeadwaterSource as DefaultSource

__all__ = ["DefaultSource"]
