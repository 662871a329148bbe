"""The entry point: finds the command, runs it, and turns errors into a line and an exit code.

`headwater --help` is called more often than anything else, so the module of a command is loaded
only if its name is on the command line.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from argparse import Action, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from importlib import import_module
from signal import SIGINT

from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.parser import Parser

# In the order in which a user needs them; the module is named after the command.
COMMANDS = {
    "start": "run a node",
    "format": "prepare the directories of a node before its first start",
    "produce": "send records to a topic",
    "consume": "print the records of topics",
    "topic": "manage topics: create, list, describe, alter, delete, records, dirs",
    "group": "manage consumer groups: list, describe, reset, offsets, delete",
    "txn": "inspect and end transactions: list, describe, producers, hanging, abort",
    "config": "show and change settings of topics, brokers and groups: get, set",
    "user": "manage users that log in with SCRAM: add, list, delete",
    "acl": "manage access control rules: add, list, delete, check",
    "quota": "manage quotas of users, client ids and addresses: set, list, delete",
    "token": "manage delegation tokens: create, list, renew, expire",
    "cluster": "inspect and manage the cluster: status, nodes, quorum, features, elect, reassign",
    "trace": "show client requests live",
    "cert": "make certificates for development: dev",
    "pipeline": "manage pipelines on Spark: run, list, describe, reset",
    "streams": "run and inspect apps of streams and tables: run, list, describe, stop, reset",
    "load": "copy a topic into files, or files into a topic",
    "demo": "send orders through a pipeline on Spark and show the result",
    "bench": "measure throughput and latency: produce, consume",
    "log": "inspect the files of a node: dump, verify",
    "profile": "manage names for clusters: list, add, use, remove",
    "completion": "print the completion script of a shell: bash, zsh, fish",
    "version": "show what is installed",
}

_EXAMPLES = """\
examples:
  headwater start                              a node on 127.0.0.1:9092
  headwater start --memory                     the same, in memory
  headwater topic create orders --partitions 3
  echo hello | headwater produce orders
  headwater consume orders --from beginning --until-end
  headwater topic records orders               how many records it has
  headwater config get topic orders            its settings that are not the defaults
  headwater cluster status                     whether the cluster is healthy
  headwater group describe billing             its members, offsets and lag
  headwater pipeline run totals.sql            from topic to topic, on Spark
  headwater streams run shop.py                streams and tables, on Spark
  headwater load orders --to /lake/orders      a topic as Parquet files
  headwater demo                               a node, orders and a pipeline, in a minute
  headwater log dump headwater-data/orders-0   the batches of a partition's files
  headwater COMMAND --help                     the options and more examples

exit codes: 0 success, 1 failure, 2 invalid usage
"""

_STDOUT = 1
FOR_ANY_COMMAND = ("--bootstrap", "--profile", "--output")


def main(arguments: Sequence[str] | None = None) -> int:
    _prepare_standard_streams()
    try:
        given = behind(sys.argv[1:] if arguments is None else list(arguments))
        parser = parser_for(given)
        options, unknown = parser.parse_known_args(given)
        if unknown:
            # The innermost parser knows the options of the command; the first one does not.
            options.parser.refuse(unknown)
        if options.command is None:
            parser.print_help()
            return USAGE
        code: int = options.run(options)
        sys.stdout.flush()  # an output error must be known before the exit code
    except CommandError as error:
        print(f"headwater {options.command}: {error}", file=sys.stderr)
        return error.code
    except BrokenPipeError:
        _discard_output()  # the reader of our output (`| head`) has seen enough
        return FAILED
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        what = f"{error.filename}: {reason}" if error.filename else reason
        print(f"headwater {options.command}: {what}", file=sys.stderr)
        _discard_output()
        return FAILED
    except KeyboardInterrupt as interrupt:
        from headwater.cli.stopping import die_of

        return die_of(getattr(interrupt, "number", SIGINT))
    return code


def _prepare_standard_streams() -> None:
    """Makes standard output and standard error safe to write to.

    A closed stream (`>&-`), for which Python has None, is replaced by the null device. With
    PYTHONUNBUFFERED Python writes straight to the descriptor and ignores how much was taken: a
    buffer in between writes the rest, and raises if it cannot.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115  # until this process ends
        elif isinstance(getattr(stream, "buffer", None), io.FileIO):
            # The descriptor stays open: a program that calls `main` may go on with its own stream.
            buffered = open(  # noqa: SIM115  # until this process ends
                stream.fileno(),
                "w",
                buffering=1,
                encoding=stream.encoding,
                errors=stream.errors,
                closefd=False,
            )
            setattr(sys, name, buffered)


def _discard_output() -> None:
    """Makes standard output take what it still buffers, and everything after it, in silence: the
    interpreter flushes it once more as it ends, and would complain."""
    with contextlib.suppress(OSError, ValueError):
        if sys.stdout.fileno() == _STDOUT:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, _STDOUT)
            os.close(nowhere)
            return
    sys.stdout = None  # a stream of another program that calls `main`


def behind(given: list[str]) -> list[str]:
    """Moves options for every command, such as --bootstrap, behind the command: users of other
    tools put them first."""
    moved: list[str] = []
    rest = list(given)
    while rest and rest[0].partition("=")[0] in FOR_ANY_COMMAND:
        count = 1 if "=" in rest[0] else 2
        moved += rest[:count]
        del rest[:count]
    return rest + moved


class _Help(RawDescriptionHelpFormatter):
    """Leaves room for the longest command: argparse forgets their indentation."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog)
        self._action_max_length = 4 + max(map(len, COMMANDS))


class _Version(Action):
    """Shows the version, which the core has: it is loaded for this, and not for `--help`."""

    def __call__(self, parser: ArgumentParser, *_: object) -> None:
        from headwater import __version__

        print(f"headwater {__version__}")
        parser.exit()


def parser_for(given: Sequence[str]) -> Parser:
    parser = Parser(
        prog="headwater",
        description="An event streaming platform that speaks Apache Kafka's protocol.",
        epilog=_EXAMPLES,
        formatter_class=_Help,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    parser.set_defaults(parser=parser)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    called = next((word for word in given if not word.startswith("-")), None)
    for name, summary in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=summary,
            description=summary[0].upper() + summary[1:] + ".",
            formatter_class=RawDescriptionHelpFormatter,
            allow_abbrev=False,
        )
        command.set_defaults(parser=command)
        if name == called:
            import_module(f"headwater.cli.{name}").define(command)
    return parser


if __name__ == "__main__":
    sys.exit(main())
