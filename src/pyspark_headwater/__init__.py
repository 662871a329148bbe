"""Where Spark finds the data source by its name.

Spark looks through all installed modules whose name begins with `pyspark_` for a `DefaultSource`.
"""

from headwater.spark.source import HeadwaterSource as DefaultSource

__all__ = ["DefaultSource"]
