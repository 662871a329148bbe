"""Spark's Python workers run the interpreter that has headwater installed."""

from __future__ import annotations

import os
import subprocess
import sys

PRINT = """
import os
import headwater.spark
print(os.environ["PYSPARK_PYTHON"], os.environ["PYSPARK_DRIVER_PYTHON"])
"""


def told(**variables: str) -> list[str]:
    names = ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in names}

    done = subprocess.run(
        [sys.executable, "-c", PRINT],
        env=environment | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.split()


def test_importing_the_package_sets_the_workers_interpreter_unless_it_is_set() -> None:
    assert told() == [sys.executable, sys.executable]
    assert told(PYSPARK_PYTHON="/other/python") == ["/other/python", sys.executable]
