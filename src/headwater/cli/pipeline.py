"""`headwater pipeline`: runs pipelines on Spark, and shows what runs anywhere.

`run` writes its status to a topic of the cluster; `list` and `describe` read it, so they need
neither Spark nor the machine that the pipeline runs on.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING

from headwater.cli.connection import add_cluster_options
from headwater.cli.errors import CommandError
from headwater.cli.output import add_output_option, print_fields, print_json, print_table
from headwater.cli.parser import add_actions

if TYPE_CHECKING:
    from headwater.spark.pipeline_status import Status

_EXAMPLES = """\
examples:
  headwater pipeline run totals.py                         until Ctrl-C; the next run continues
  headwater pipeline run totals.sql --once                 read what is there now, then stop
  headwater pipeline run totals.py --master spark://host:7077 --checkpoints s3a://bucket/totals
  headwater pipeline list
  headwater pipeline describe totals                       rate, lag, state, the last error
  headwater pipeline reset totals                          show what starting over would delete
  headwater pipeline reset totals --yes                    delete its checkpoint
"""

_CHECKPOINTS = "headwater-pipelines"

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
        ("list", "list the pipelines that are running, and those that ran", _define_list),
        ("describe", "show the status of a pipeline", _define_describe),
        ("reset", "delete the checkpoint of a pipeline, so that it starts over", _define_reset),
    )
    add_actions(parser, actions, examples=_EXAMPLES)
    parser.epilog = _EXAMPLES + _FILES


def _define_run(action: ArgumentParser) -> None:
    from headwater.cli.spark_start import add_spark_options

    action.epilog = f"{action.epilog}{_FILES}"
    action.add_argument("file", metavar="FILE", help="NAME.py or NAME.sql")
    action.add_argument(
        "--name", help="run the pipeline under another name; for a file with only one"
    )
    action.add_argument(
        "--checkpoints",
        metavar="DIR",
        default=_CHECKPOINTS,
        help="where progress and state are kept, in a folder for each pipeline "
        f"(default: ./{_CHECKPOINTS})",
    )
    action.add_argument(
        "--dead-letters",
        metavar="TOPIC",
        help="the topic for records that cannot be processed (default: NAME.dead-letters)",
    )
    action.add_argument(
        "--once", action="store_true", help="read what is there now, then stop; for schedulers"
    )
    action.add_argument(
        "--delivery",
        choices=("exactly_once", "at_least_once"),
        default="exactly_once",
        help="exactly_once writes each batch of a stream in one transaction; with at_least_once a "
        "batch that is repeated after a crash is written again (default: exactly_once)",
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


def _define_reset(action: ArgumentParser) -> None:
    action.add_argument("name", metavar="NAME")
    action.add_argument(
        "--checkpoints",
        metavar="DIR",
        help="the folder that was given to `run` (default: where the pipeline last ran, else "
        f"./{_CHECKPOINTS})",
    )
    action.add_argument(
        "--yes", action="store_true", help="do it; without this, only show what would be deleted"
    )
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_reset)


def _run(options: Namespace) -> int:
    from headwater.cli.pipeline_run import run

    return run(options)


def _list(options: Namespace) -> int:
    from headwater.cli.pipeline_registry import read_statuses
    from headwater.spark.pipeline_status import PIPELINE

    statuses = {
        name: each for name, each in read_statuses(options).items() if each.kind == PIPELINE
    }
    if not statuses and options.output == "text":
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
        for each in statuses.values()
    ]
    columns = ("pipeline", "state", "records/s", "lag", "batch ms", "state rows", "topics", "error")
    print_table(columns, rows, output=options.output)
    return 0


def _describe(options: Namespace) -> int:
    from headwater.cli.pipeline_registry import read_statuses

    statuses = read_statuses(options)
    found = statuses.get(options.name)
    if found is None:
        known = ", ".join(statuses)
        raise CommandError(
            f"there is no pipeline {options.name} in this cluster",
            then=f"known pipelines: {known}" if known else "no pipeline has run here yet",
        )
    if options.output == "json":
        print_json(asdict(found))
    else:
        print_fields(_fields(found), output=options.output)
    return 0


def _reset(options: Namespace) -> int:
    from headwater.cli.pipeline_registry import reset

    return reset(options, default=_CHECKPOINTS)


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
        "input": f"{status.input_rate:,.1f} records/s, {status.rows_in:,} since the start",
        "lag": known(status.lag, " records"),
        "batch": f"{known(status.batch)}, {known(status.batch_ms, ' ms')}",
        "state rows": f"{status.state_rows:,}, {status.state_bytes:,} bytes in memory",
        "watermark": known(status.watermark),
        "run": f"{status.file} on {status.host} (process {status.pid}), Spark {status.master}",
        "checkpoint": status.checkpoint,
        "started": moment(status.started_ms),
        "last heartbeat": moment(status.noted_ms),
        "error": known(status.error),
    }
