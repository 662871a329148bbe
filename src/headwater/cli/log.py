"""`headwater log`: inspects the files of a node, Headwater's or Kafka's, running or not.

It only reads. `dump` shows every batch, index entry, producer and epoch; `verify` reads all of them
and reports damage.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from headwater.cli.errors import FAILED, CommandError
from headwater.cli.output import add_output_option, plural, print_json
from headwater.cli.parser import add_actions

if TYPE_CHECKING:
    from headwater.io import Disk
    from headwater.storage.dump import Row
    from headwater.storage.replicas import Comparison

_EXAMPLES = """\
examples:
  headwater log dump headwater-data/orders-0               every file of a partition
  headwater log dump orders-0/00000000000000000000.log --records
  headwater log dump headwater-data/__cluster_metadata-0 --records
  headwater log dump headwater-data --output json          one JSON object a line
  headwater log verify headwater-data                      every partition of a node
  headwater log verify node-1/data node-2/data node-3/data also compares their replicas
"""


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("dump", "show the contents of the files", _define_dump),
            ("verify", "read everything, report damage, and compare replicas", _define_verify),
        ),
        examples=_EXAMPLES,
    )


def _define_dump(action: ArgumentParser) -> None:
    _add_paths(action)
    action.add_argument("--records", action="store_true", help="include the records of each batch")
    action.add_argument(
        "--show-secrets",
        action="store_true",
        help="show passwords and keys of users in the metadata log, which are hidden otherwise",
    )
    add_output_option(action)
    action.set_defaults(run=_dump)


def _define_verify(action: ArgumentParser) -> None:
    _add_paths(action)
    add_output_option(action)
    action.set_defaults(run=_verify)


def _add_paths(action: ArgumentParser) -> None:
    action.add_argument(
        "paths",
        metavar="PATH",
        nargs="+",
        help="a log directory, a partition's directory, or a file in one",
    )


def _dump(options: Namespace) -> int:
    from headwater.io.disk import SystemDisk

    disk = SystemDisk()
    show = _print_line if options.output == "json" else _Text().show
    for path in _existing(disk, options.paths):
        for row in _rows(disk, path, options):
            show(row)
    return 0


def _rows(disk: Disk, path: str, options: Namespace) -> Iterator[Row]:
    """Yields the contents; a file that cannot be read ends the command."""
    from headwater.storage.dump import dump

    try:
        yield from dump(disk, path, records=options.records, secrets=options.show_secrets)
    except (OSError, ValueError) as error:
        raise CommandError(
            f"{path}: {error}", then=f"headwater log verify {path} reports all damage"
        ) from None


def _verify(options: Namespace) -> int:
    from headwater.io.disk import SystemDisk
    from headwater.storage.dump import verify

    disk = SystemDisk()
    findings = [
        finding for path in _existing(disk, options.paths) for finding in verify(disk, path)
    ]
    compared = list(_compared(disk, options.paths)) if len(options.paths) > 1 else []
    findings += [finding for each in compared for finding in each.findings]
    if options.output == "json":
        # One directory has no replicas to compare: then it is the list of findings alone.
        found = [finding._asdict() for finding in findings]
        rows = [_as_json(each) for each in compared]
        print_json({"findings": found, "partitions": rows} if len(options.paths) > 1 else found)
        return FAILED if findings else 0
    for finding in findings:
        print(f"{finding.path}: {finding.what}")
    for each in compared:
        for note in each.notes:
            print(f"{each.partition}: {note}")
    if len(options.paths) > 1:
        same = sum(not each.findings and each.compared_to > 0 for each in compared)
        print(f"{plural(same, 'partition')} with the same replicas up to the high watermark")
    if not findings:
        print("no damage found")
    return FAILED if findings else 0


def _compared(disk: Disk, paths: list[str]) -> Iterator[Comparison]:
    from headwater.storage.checkpoints import CheckpointCorrupt
    from headwater.storage.replicas import compare

    try:
        yield from compare(disk, paths)
    except CheckpointCorrupt as corrupt:
        raise CommandError(str(corrupt)) from None


def _as_json(each: Comparison) -> dict[str, Any]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "replicas": list(each.replicas),
        "from": each.compared_from,
        "to": each.compared_to,
        "same": not each.findings,
        "notes": list(each.notes),
    }


def _existing(disk: Disk, paths: list[str]) -> Iterator[str]:
    from headwater.storage.dump import has_log

    for path in paths:
        if not os.path.exists(path):
            raise CommandError(f"{path}: no such file or directory")
        if not has_log(disk, path):
            raise CommandError(
                f"{path}: no log found here",
                then="name a log directory, a partition's directory (orders-0), or a file in one",
            )
        yield path


class _Text:
    """Prints rows for people: a line for each file, then one for each row, indented."""

    def __init__(self) -> None:
        self._file: str | None = None

    def show(self, row: Row) -> None:
        if row["file"] != self._file:
            self._file = row["file"]
            print(self._file)
        indent = "    " if "value" in row else "  "
        words = [f"{name}={_text(value)}" for name, value in row.items() if name != "file"]
        print(indent + " ".join(words))


def _text(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "yes" if value else "no"
        case bytes():
            return repr(value)[1:]
        case tuple():
            return "{" + ", ".join(f"{name}: {_text(inner)}" for name, inner in value) + "}"
        case dict():
            return "{" + ", ".join(f"{name}: {_text(inner)}" for name, inner in value.items()) + "}"
        case list():
            return "[" + ", ".join(map(_text, value)) + "]"
        case _:
            return str(value)


def _print_line(row: Row) -> None:
    import json

    sys.stdout.write(json.dumps({name: _plain(value) for name, value in row.items()}) + "\n")


def _plain(value: Any) -> Any:
    """Returns bytes as text if they are UTF-8, otherwise as their base64."""
    match value:
        case bytes():
            try:
                return value.decode()
            except UnicodeDecodeError:
                from base64 import b64encode

                return {"base64": b64encode(value).decode()}
        case tuple():
            return [[name, _plain(inner)] for name, inner in value]
        case dict():
            return {name: _plain(inner) for name, inner in value.items()}
        case list():
            return [_plain(each) for each in value]
        case _:
            return value
