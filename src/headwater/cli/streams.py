"""`headwater streams`: runs apps of streams and tables on Spark, and shows what runs anywhere.

`run` writes the status of its app to a topic of the cluster; the other actions read it there, so
they need neither Spark nor the machine that the app runs on.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from headwater.cli.connection import add_cluster_options
from headwater.cli.errors import CommandError
from headwater.cli.output import add_output_option, print_fields, print_json, print_table
from headwater.cli.parser import add_actions

if TYPE_CHECKING:
    from headwater.spark.pipeline_status import Status

CHECKPOINTS = "headwater-streams"
_EXAMPLES = """\
examples:
  headwater streams run shop.py                            until Ctrl-C; the next run continues
  headwater streams run shop.py --once                     read what is there now, then stop
  headwater streams run shop.py --master spark://host:7077 --checkpoints s3a://bucket/shop
  headwater streams run shop.py --metrics 127.0.0.1:9405
  headwater streams list
  headwater streams describe shop.py                       the plan of a file, without running it
  headwater streams describe shop                          rate, lag, state, the last error
  headwater streams stop shop                              after the current batch, wherever it runs
  headwater streams reset shop                             show what starting over would delete
  headwater streams reset shop --query revenue --yes       start one query over
  headwater streams scale shop --partitions 8              spread its state over more tasks
  headwater streams rebuild shop.py --query totals         rebuild its state from its table
  headwater streams state shop --query totals              what its operators keep, as committed
  headwater streams serve shop                             its tables by HTTP
  headwater streams replay-dead-letters shop               send them to their topics again
"""

_FILES = """
An app is a Python file:
  from headwater.streams import App, f

  app = App("words")
  lines = app.stream("lines", str)
  words = lines.flat_map(f.explode(f.split(f.lower("value"), " ")))
  words.group_by("value").count(name="counts").to("word-counts")
"""


def define(parser: ArgumentParser) -> None:
    actions = (
        ("run", "run the app of a file on Spark", _define_run),
        ("list", "list the apps that are running, and those that ran", _define_list),
        ("describe", "show the status of an app, or the plan of a file", _define_describe),
        ("stop", "stop an app after its current batch", _define_stop),
        ("reset", "delete the state and the position of an app", _define_reset),
        ("scale", "change the number of tasks that the state is spread over", _define_scale),
        ("rebuild", "rebuild state, without writing results again", _define_rebuild),
        ("state", "read the committed state of an app", _define_state),
        ("serve", "serve the named tables of an app by HTTP", _define_serve),
        (
            "replay-dead-letters",
            "send dead letters to the topics that they came from",
            _define_replay,
        ),
    )
    add_actions(parser, actions, examples=_EXAMPLES)
    parser.epilog = _EXAMPLES + _FILES


def _define_run(action: ArgumentParser) -> None:
    from headwater.cli.spark_start import add_spark_options

    action.epilog = f"{action.epilog}{_FILES}"
    action.add_argument("file", metavar="FILE", help="NAME.py")
    action.add_argument("--app", metavar="APP", help="which app, if the file has several")
    add_checkpoints_option(action)
    action.add_argument(
        "--once", action="store_true", help="read what is there now, then stop; for schedulers"
    )
    action.add_argument(
        "--delivery",
        choices=("exactly_once", "at_least_once"),
        default="exactly_once",
        help="exactly_once writes each batch of a query in one transaction; with at_least_once a "
        "batch that is repeated after a crash is written again (default: exactly_once)",
    )
    action.add_argument(
        "--start-over",
        metavar="QUERY",
        action="append",
        default=[],
        help="give up the state and the position of this query, whose topology has changed; may be "
        "repeated",
    )
    action.add_argument(
        "--packages",
        metavar="COORDINATES",
        help='Maven packages that Spark fetches; latency="real-time" needs its Kafka connector: '
        "org.apache.spark:spark-sql-kafka-0-10_2.13:VERSION of Spark",
    )
    action.add_argument(
        "--metrics",
        metavar="HOST:PORT",
        help="serve metrics of the app for Prometheus, /healthz and /readyz",
    )
    action.add_argument("--insecure", action="store_true", help="allow --metrics beyond loopback")
    add_spark_options(action)
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_run)


def add_checkpoints_option(action: ArgumentParser) -> None:
    action.add_argument(
        "--checkpoints",
        metavar="DIR",
        help="where progress and state are kept, in a folder for each app "
        f"(default: ./{CHECKPOINTS})",
    )


def _define_list(action: ArgumentParser) -> None:
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_list)


def _define_describe(action: ArgumentParser) -> None:
    action.add_argument("name", metavar="NAME", help="the name of an app, or a file NAME.py")
    action.add_argument("--app", metavar="APP", help="which app, if the file has several")
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_describe)


def _define_stop(action: ArgumentParser) -> None:
    action.add_argument("name", metavar="NAME")
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_stop)


def _define_reset(action: ArgumentParser) -> None:
    action.add_argument("name", metavar="NAME")
    action.add_argument(
        "--query",
        metavar="QUERY",
        action="append",
        default=[],
        help="only this query, and none of the internal topics; may be repeated",
    )
    add_checkpoints_option(action)
    action.add_argument(
        "--yes", action="store_true", help="do it; without this, only show what would be deleted"
    )
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_reset)


def _define_scale(action: ArgumentParser) -> None:
    from headwater.cli.arguments import from_one
    from headwater.cli.spark_start import add_spark_options

    action.add_argument("name", metavar="NAME")
    action.add_argument(
        "--partitions",
        type=from_one,
        metavar="N",
        required=True,
        help="how many tasks work on the state of each query",
    )
    add_checkpoints_option(action)
    add_spark_options(action)
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_scale)


def _define_rebuild(action: ArgumentParser) -> None:
    from headwater.cli.spark_start import add_spark_options

    action.add_argument("file", metavar="FILE", help="NAME.py")
    action.add_argument("--app", metavar="APP", help="which app, if the file has several")
    action.add_argument(
        "--query", metavar="QUERY", help="which query, if several of them have state"
    )
    action.add_argument(
        "--from",
        dest="origin",
        choices=("changelog", "inputs"),
        help="take the state from the topic of the query's table, or read its topics again "
        "(default: changelog if the table holds the complete state, otherwise inputs)",
    )
    add_checkpoints_option(action)
    action.add_argument(
        "--yes", action="store_true", help="do it; without this, only show what would be read"
    )
    add_spark_options(action)
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_rebuild)


def _define_state(action: ArgumentParser) -> None:
    from headwater.cli.arguments import from_one
    from headwater.cli.spark_start import add_spark_options

    action.add_argument("name", metavar="NAME")
    action.add_argument("--query", metavar="QUERY", help="which query, if several have state")
    action.add_argument(
        "--operator",
        type=int,
        metavar="N",
        help="which operator of the query, by its number (default: all)",
    )
    action.add_argument("--key", metavar="TEXT", help="only keys that are this text")
    action.add_argument(
        "--limit", type=from_one, metavar="N", default=100, help="at most N rows (default: 100)"
    )
    add_checkpoints_option(action)
    add_spark_options(action)
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_state)


def _define_serve(action: ArgumentParser) -> None:
    action.epilog = (
        f"{action.epilog}\n"
        "  GET /tables                               the tables\n"
        "  GET /tables/totals?from=a&to=f&limit=10   keys in their order; prefix=, reverse=true\n"
        "  GET /tables/totals/tea?fresh=true         one key, with everything that is committed\n"
    )
    action.add_argument("name", metavar="NAME")
    action.add_argument(
        "--table",
        metavar="TABLE",
        action="append",
        default=[],
        help="only this table; may be repeated (default: all that have a name)",
    )
    action.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:8300",
        help="where to serve (default: 127.0.0.1:8300)",
    )
    action.add_argument("--insecure", action="store_true", help="allow --listen beyond loopback")
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_serve)


def _define_replay(action: ArgumentParser) -> None:
    from headwater.cli.arguments import from_one

    action.add_argument("name", metavar="NAME")
    action.add_argument(
        "--max", type=from_one, metavar="N", dest="records_max", help="at most N of them"
    )
    action.add_argument(
        "--yes", action="store_true", help="do it; without this, only show what would be sent"
    )
    add_cluster_options(action)
    add_output_option(action)
    action.set_defaults(run=_replay)


def _run(options: Namespace) -> int:
    from headwater.cli.streams_run import run

    return run(options)


def _stop(options: Namespace) -> int:
    from headwater.cli.streams_manage import stop

    return stop(options)


def _reset(options: Namespace) -> int:
    from headwater.cli.streams_manage import reset

    return reset(options)


def _scale(options: Namespace) -> int:
    from headwater.cli.streams_manage import scale

    return scale(options)


def _rebuild(options: Namespace) -> int:
    from headwater.cli.streams_rebuild import rebuild

    return rebuild(options)


def _state(options: Namespace) -> int:
    from headwater.cli.streams_state import state

    return state(options)


def _serve(options: Namespace) -> int:
    from headwater.cli.streams_serve import serve

    return serve(options)


def _replay(options: Namespace) -> int:
    from headwater.cli.streams_dead_letters import replay

    return replay(options)


def apps(options: Namespace) -> dict[str, Status]:
    """Reads the status of each app."""
    from headwater.cli.pipeline_registry import read_statuses
    from headwater.spark.pipeline_status import STREAMS

    return {name: each for name, each in read_statuses(options).items() if each.kind == STREAMS}


def app_status(options: Namespace) -> Status:
    """Returns the status of the app that a command names. CommandError if it never ran here."""
    known = apps(options)
    if options.name not in known:
        names = ", ".join(known)
        raise CommandError(
            f"there is no app {options.name} in this cluster",
            then=f"known apps: {names}" if names else "no app has run here yet",
        )
    return known[options.name]


def _list(options: Namespace) -> int:
    found = apps(options)
    if not found and options.output == "text":
        print("no apps")
        return 0
    rows = [
        (
            each.name,
            each.state,
            round(each.input_rate),
            each.lag if each.lag is not None else "-",
            each.state_rows,
            each.late_rows,
            len(each.queries),
            each.error or "",
        )
        for each in found.values()
    ]
    columns = ("app", "state", "records/s", "lag", "state rows", "late rows", "queries", "error")
    print_table(columns, rows, output=options.output)
    return 0


def _describe(options: Namespace) -> int:
    if options.name.endswith(".py"):
        from headwater.cli.streams_file import app_of, file_of, planned

        file = file_of(options.name)
        plan = planned(file, app_of(file, options.app))
        from headwater.streams.describe import as_dict, drawing

        if options.output == "json":
            print_json(as_dict(plan))
        else:
            print(drawing(plan))
        return 0
    status = app_status(options)
    if options.output == "json":
        print_json(asdict(status))
        return 0
    print_fields(_fields(status), output=options.output)
    if status.queries:
        print()
        print_table(_QUERY_COLUMNS, [_row(each) for each in status.queries], output=options.output)
    return 0


_QUERY_COLUMNS = (
    "query",
    "records/s",
    "lag",
    "seconds behind",
    "batch",
    "batch ms",
    "state rows",
    "state bytes",
    "late rows",
    "watermark",
)


def _row(query: Any) -> tuple[object, ...]:
    def known(name: str) -> object:
        value = query.get(name)
        return "-" if value is None else value

    return (
        known("name"),
        known("input_rate"),
        known("lag"),
        known("lag_seconds"),
        known("batch"),
        known("batch_ms"),
        known("state_rows"),
        known("state_bytes"),
        known("late_rows"),
        known("watermark"),
    )


def _fields(status: Status) -> dict[str, object]:
    from datetime import datetime

    def moment(ms: int) -> str:
        return datetime.fromtimestamp(ms / 1000).isoformat(" ", "seconds") if ms else "-"

    lag = "-" if status.lag is None else f"{status.lag:,} records"
    return {
        "app": status.name,
        "state": status.state,
        "reads": ", ".join(status.reads),
        "writes": status.writes,
        "dead letters": status.dead_letters or "-",
        "internal topics": ", ".join(status.topics) or "-",
        "input": f"{status.input_rate:,.1f} records/s, {status.rows_in:,} since the start",
        "lag": lag,
        "state rows": f"{status.state_rows:,}, {status.state_bytes:,} bytes in memory",
        "late rows": f"{status.late_rows:,}",
        "run": f"{status.file} on {status.host} (process {status.pid}), Spark {status.master}",
        "checkpoints": status.checkpoint,
        "started": moment(status.started_ms),
        "last heartbeat": moment(status.noted_ms),
        "error": status.error or "-",
    }
