"""A Spark session for a command: quiet, with what is missing said in one line."""

from __future__ import annotations

import os
import shutil
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING

from headwater.cli.actions import read_pairs
from headwater.cli.errors import CommandError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def _silence() -> Iterator[None]:
    """What is started in here writes its stderr to nowhere. The JVM and its workers keep it so;
    what matters of what they say comes to us as exceptions."""
    sys.stderr.flush()
    kept = os.dup(_STDERR)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, _STDERR)
        yield
    finally:
        os.dup2(kept, _STDERR)
        os.close(nowhere)
        os.close(kept)


_STDERR = 2


def add_spark_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--master",
        metavar="URL",
        default="local[*]",
        help="where Spark runs: local[2], spark://host:7077, yarn, k8s://... (default: local[*])",
    )
    parser.add_argument(
        "--conf",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help="a setting of Spark; may be given many times",
    )
    parser.add_argument(
        "--verbose", action="store_true", help="show what Spark logs, warnings and stack traces"
    )


def require_spark() -> None:
    """Before anything is read or asked: what Spark needs is here."""
    try:
        import pyarrow  # noqa: F401
        import pyspark  # noqa: F401
    except ImportError as error:
        raise CommandError(
            f"{error.name} is not installed", then="pip install 'headwater[spark]' brings it"
        ) from None
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        raise CommandError(
            "there is no Java, which Spark runs on",
            then="install Java 17 or 21, or set JAVA_HOME if it is somewhere else",
        )


def start_spark(
    options: Namespace, name: str, extra: Mapping[str, str] | None = None
) -> SparkSession:
    """A session on --master. `extra` are settings that --conf may change."""
    from headwater.spark import spark_session

    settings = {"spark.ui.enabled": "false", **(extra or {}), **read_pairs(options.conf, "--conf")}
    try:
        with nullcontext() if options.verbose else _silence():
            return spark_session(name, master=options.master, settings=settings)
    except Exception as error:
        from headwater.spark.reasons import reason_of

        raise CommandError(
            f"Spark did not start on {options.master}: {reason_of(error)}",
            then="--verbose shows what it logs",
        ) from None
