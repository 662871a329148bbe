"""`headwater pipeline`: runs pipelines on Spark, and shows what runs anywhere.

`run` notes what it does in a topic of the cluster; `list` and `describe` read it, so they need
neither Spark nor the machine that the pipeline runs on.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from headwater.cli.actions import add_actions
from headwater.cli.cluster_options import add_cluster_options
from headwater.cli.errors import CommandError
from headwater.cli.output import add_output_option, print_fields, print_json, print_table

if TYPE_CHECKING:
    from headwater.spark.pipeline_status import Status

_EXAMPLES = """\
examples:
  headwater pipeline run totals.py                         until Ctrl-C, then from there again
  headwater pipeline run totals.sql --once                 what is there now, then end
  headwater pipeline run totals.py --master spark://host:7077 --checkpoints s3a://bucket/totals
  headwater pipeline list
  headwater pipeline describe totals                       rate, lag, state, the last error
"""

_FILES = """
A pipeline file in SQL:
  CREATE STREAM orders (customer STRING, amount DOUBLE) FROM TOPIC orders;
  INSERT INTO TOPIC totals WITH (key = 'customer', mode = 'update')
  SELECT customer, sum(amount) AS total FROM orders GROUP BY customer;

The same in Python:
  from headwater.spark.pipeline import Stream, pipeline

  @pipeline(orders=Stream("orders", schema="customer string, amount double"),
            to="totals", key="customer", mode="update")
  def totals(orders):
      return orders.groupBy("customer").sum("amount")
"""


def define(parser: ArgumentParser) -> None:
    actions = (
        ("run", "run the pipelines of a file on Spark", _define_run),
        ("list", "show the pipelines that run, and those that ran", _define_list),
        ("describe", "show all that is known about a pipeline", _define_describe),
    )
    add_actions(parser, actions, examples=_EXAMPLES)
    parser.epilog = _EXAMPLES + _FILES


def _define_run(action: ArgumentParser) -> None:
    from headwater.cli.spark_start import add_spark_options

    action.epilog = f"{action.epilog}{_FILES}"
    action.add_argument("file", metavar="FILE", help="NAME.py or NAME.sql")
    action.add_argument("--name", help="another name for the pipeline, if the file has only one")
    action.add_argument(
        "--checkpoints",
        metavar="DIR",
        default="headwater-pipelines",
        help="where progress and state are kept, in a folder for each pipeline "
        "(default: ./headwater-pipelines)",
    )
    action.add_argument(
        "--dead-letters",
        metavar="TOPIC",
        help="where records go that cannot be used (default: NAME.dead-letters)",
    )
    action.add_argument(
        "--once", action="store_true", help="take what is there now, then end; for a scheduler"
    )
    add_spark_options(action)
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_run)


def _define_list(action: ArgumentParser) -> None:
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_list)


def _define_describe(action: ArgumentParser) -> None:
    action.add_argument("name", metavar="NAME")
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_describe)


def _run(options: Namespace) -> int:
    from headwater.cli.pipeline_run import run

    return run(options)


def _list(options: Namespace) -> int:
    from headwater.cli.pipeline_notes import read_notes

    notes = read_notes(options)
    if not notes and options.output == "text":
        print("no pipelines")
        return 0
    rows = [
        (
            each.name,
            each.state,
            round(each.input_rate),
            each.lag if each.lag is not None else "-",
            each.batch_ms if each.batch_ms is not None else "-",
            each.state_rows,
            f"{', '.join(each.reads)} -> {each.writes}",
            each.error or "",
        )
        for each in notes
    ]
    columns = ("pipeline", "state", "records/s", "lag", "batch ms", "state rows", "topics", "error")
    print_table(columns, rows, output=options.output)
    return 0


def _describe(options: Namespace) -> int:
    from headwater.cli.pipeline_notes import read_notes

    notes = read_notes(options)
    found = next((each for each in notes if each.name == options.name), None)
    if found is None:
        known = ", ".join(each.name for each in notes) or "none"
        raise CommandError(f"pipeline {options.name} is not known", then=f"there are: {known}")
    if options.output == "json":
        print_json(asdict(found))
    else:
        print_fields(_fields(found), output=options.output)
    return 0


def _fields(status: Status) -> dict[str, object]:
    from datetime import datetime

    def moment(ms: int) -> str:
        return datetime.fromtimestamp(ms / 1000).isoformat(" ", "seconds") if ms else "-"

    def known(value: object, unit: str = "") -> str:
        return (
            "-" if value is None else f"{value:,}{unit}" if isinstance(value, int) else str(value)
        )

    return {
        "pipeline": status.name,
        "state": status.state,
        "reads": ", ".join(status.reads),
        "writes": f"{status.writes} ({status.mode})",
        "dead letters": known(status.dead_letters),
        "input": f"{status.input_rate:,.1f} records/s, {status.rows_in:,} since it was started",
        "lag": known(status.lag, " records"),
        "batch": f"{known(status.batch)}, {known(status.batch_ms, ' ms')}",
        "state rows": f"{status.state_rows:,}, {status.state_bytes:,} bytes in memory",
        "watermark": known(status.watermark),
        "runs": f"{status.file} on {status.host} (process {status.pid}), Spark {status.master}",
        "checkpoint": status.checkpoint,
        "started": moment(status.started_ms),
        "last heard of": moment(status.noted_ms),
        "error": known(status.error),
    }
