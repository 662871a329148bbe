"""Python imports this when it starts, where this folder is on its path. So Spark's Python processes
know the steps of `harness.exactly_once_queries`, also those that run no tasks."""

from __future__ import annotations

import sys

if "pyspark.daemon" in sys.orig_argv:
    from harness.exactly_once_queries import know_steps_of_workers

    know_steps_of_workers()
