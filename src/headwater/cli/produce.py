"""`headwater produce`: sends records from the command line, from files or from a pipe."""

from __future__ import annotations

import os
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, TextIO

from headwater.cli.arguments import from_zero, read_pairs
from headwater.cli.connection import (
    CLIENT_ID,
    START_TIMEOUT_MS,
    Cluster,
    add_cluster_options,
    add_property_option,
    cluster_of,
    explained_errors,
)
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import add_output_option, plural, print_json
from headwater.cli.progress import Progress
from headwater.cli.record_format import TypedRecord, headers_given, reader, unescaped
from headwater.cli.stopping import Stopped, StopSignals

if TYPE_CHECKING:
    from headwater.blocking import Producer

_BLOCK_MS = 10_000  # after this a missing topic is reported
_DELIVERY_MS = 30_000  # and after this that the cluster is gone
_BLOCK_BYTES = 64 << 10
_LAST_MS = 5_000  # for queued records after a failure

_EXAMPLES = """\
examples:
  headwater produce orders --value hello --key alice --header trace=7
  echo hello | headwater produce orders
  headwater produce orders --file lines.txt                    one record a line
  headwater produce orders --file pairs.txt --key-separator :  lines of KEY:VALUE
  headwater produce orders --file triples.tsv --format '%k\\t%h\\t%v'
  headwater produce orders --file order.xml --whole-file       the file is one record
  find . -type f -print0 | headwater produce files --delimiter '\\0'
  echo 'alice cafe00ff' | headwater produce orders --format '%k %v{hex}'
  headwater consume old --from beginning --until-end --format json | \\
      headwater produce new --format json                      with keys, headers, timestamps

formats: %k key, %v value, %h headers (name=value,name=value), %k{hex} %v{hex} %v{base64} encoded,
%% %{ %} the characters themselves, \\t \\0 \\xNN; or json: an object a line with key, value,
headers, partition, timestamp, where {"base64": "..."} stands for bytes and null for nothing.
Without a format the line is the value.
"""


def define(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument(
        "--value", action="append", metavar="TEXT", help="send this value; may be repeated"
    )
    parser.add_argument(
        "--file",
        action="append",
        metavar="PATH",
        help="read this file, - for standard input (default); may be repeated",
    )
    parser.add_argument(
        "--delimiter",
        metavar="TEXT",
        help="text at the end of each record: '\\0', ';' ... (default: newline)",
    )
    parser.add_argument("--whole-file", action="store_true", help="each file is one record")
    parser.add_argument("--format", metavar="FORMAT", help="the format of a line; see below")
    parser.add_argument(
        "--key-separator",
        metavar="TEXT",
        help="separates the key from the value in a line: ':' or '\\t'",
    )
    parser.add_argument(
        "--null", metavar="TEXT", help="a key or value that equals this text is null"
    )
    parser.add_argument("--key", metavar="TEXT", help="the key of records without one")
    parser.add_argument(
        "--header",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a header of every record; may be repeated",
    )
    parser.add_argument(
        "--partition",
        type=from_zero,
        metavar="N",
        help="send to this partition (default: chosen by key, or in turn)",
    )
    parser.add_argument(
        "--tombstone", action="store_true", help="send a null value, which deletes the key"
    )
    parser.add_argument(
        "--skip-bad", action="store_true", help="skip lines that are not valid records"
    )
    add_producer_options(parser)
    add_cluster_options(parser)
    add_output_option(parser)
    parser.set_defaults(run=run)


def add_producer_options(parser: ArgumentParser) -> None:
    """Options that `producer_config` reads."""
    parser.add_argument(
        "--acks",
        choices=("all", "1", "0"),
        default="all",
        help="replicas that must have a record before it counts as sent (default: all in sync)",
    )
    parser.add_argument(
        "--compression",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        default="none",
        help="compression of batches (default: none)",
    )
    add_property_option(parser)


def producer_config(options: Namespace, cluster: Cluster) -> dict[str, Any]:
    return (
        {
            "client.id": CLIENT_ID,
            "acks": options.acks,
            "compression.type": options.compression,
            "max.block.ms": _BLOCK_MS,
            "request.timeout.ms": _BLOCK_MS,
            "delivery.timeout.ms": _DELIVERY_MS,
        }
        | cluster.settings
        | read_pairs(options.property, "--property")
    )


@dataclass(slots=True)
class _Count:
    sent: int = 0
    skipped: int = 0


def run(options: Namespace) -> int:
    _check(options)
    form = options.format
    if options.key_separator is not None:
        form = f"%k{options.key_separator.replace('%', '%%')}%v"
    read = reader(form, None if options.null is None else os.fsencode(options.null))
    count = _Count()
    began = time.monotonic()
    with StopSignals() as stop, explained_errors(), ExitStack() as stack:
        from headwater.blocking import Producer
        from headwater.client.errors import ClientError

        cluster = cluster_of(options)
        producer: Producer = stack.enter_context(
            Producer(
                cluster.bootstrap,
                start_timeout_ms=START_TIMEOUT_MS,
                config=producer_config(options, cluster),
            )
        )
        lines, progress = _input(options, stack)
        try:
            _send(producer, options, read, _until(stop, lines), progress, count)
        except ClientError:
            with suppress(ClientError):  # the first error is the one to report
                producer.close(timeout_ms=_LAST_MS)
            raise
        producer.flush()
    _report(options, count, time.monotonic() - began)
    if stop.number is not None:
        sys.stdout.flush()
        raise Stopped(stop.number)
    return FAILED if count.skipped and not count.sent else 0


def _until(stop: StopSignals, lines: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, bytes]]:
    """Yields lines until a signal comes; only the wait for a line is interrupted."""
    while stop.number is None:
        try:
            stop.raises = True
            line = next(lines, None)
            stop.raises = False
        except Stopped:
            stop.raises = False
            return
        if line is None:
            return
        yield line


def _send(
    producer: Producer,
    options: Namespace,
    read: Callable[[bytes], TypedRecord],
    lines: Iterator[tuple[str, bytes]],
    progress: Progress,
    count: _Count,
) -> None:
    headers = headers_given(options.header)
    key = None if options.key is None else os.fsencode(options.key)
    for where, line in lines:
        try:
            record = read(line)
        except ValueError as error:
            if not options.skip_bad:
                producer.flush()
                raise CommandError(
                    f"{where}: {error}",
                    then=f"sent before it: {plural(count.sent, 'record')}; "
                    "--skip-bad skips such lines",
                ) from None
            count.skipped += 1
            continue
        _submit(producer, options, record, key, headers)
        count.sent += 1
        progress.add(len(line) + 1 if options.value is None else 1)


def _check(options: Namespace) -> None:
    if options.value is not None and options.file is not None:
        raise CommandError("--value and --file cannot be combined", code=USAGE)
    if options.whole_file and (options.value is not None or options.delimiter is not None):
        other = "--value" if options.value is not None else "--delimiter"
        raise CommandError(f"--whole-file and {other} cannot be combined", code=USAGE)
    if options.delimiter == "":
        raise CommandError("--delimiter: expected some text between records", code=USAGE)
    if options.format is not None and options.key_separator is not None:
        raise CommandError("--format and --key-separator cannot be combined", code=USAGE)
    if options.key_separator == "":
        raise CommandError("--key-separator: expected some text between key and value", code=USAGE)
    if options.tombstone:
        if options.value is not None or options.key is None:
            raise CommandError("--tombstone needs --key, and takes no --value", code=USAGE)
        options.value = [""]


def _submit(
    producer: Producer,
    options: Namespace,
    record: TypedRecord,
    key: bytes | None,
    headers: tuple[tuple[str, bytes | None], ...],
) -> None:
    producer.submit(
        options.topic,
        value=None if options.tombstone else record.value,
        key=key if record.key is None else record.key,
        headers=record.headers + headers or None,
        partition=options.partition if record.partition is None else record.partition,
        timestamp=record.timestamp,
    )


def _input(options: Namespace, stack: ExitStack) -> tuple[Iterator[tuple[str, bytes]], Progress]:
    """Returns the lines with their places, and a bar whose length is known for files."""
    if options.value is not None:
        lines: Any = ((f"--value {text}", os.fsencode(text)) for text in options.value)
        return lines, stack.enter_context(Progress(len(options.value), "records"))
    paths = options.file or ["-"]
    sizes = [_size(path) for path in paths]
    known = [size for size in sizes if size is not None]
    total = sum(known) if len(known) == len(sizes) else None
    if options.whole_file:
        lines = _whole_files(paths)
    else:
        lines = _lines(paths, b"\n" if options.delimiter is None else unescaped(options.delimiter))
    if "-" in paths and _stdin().isatty():
        print("one record a line; Ctrl-D ends", file=sys.stderr)
        return lines, Progress(None, "bytes")
    return lines, stack.enter_context(Progress(total, "bytes"))


def _size(path: str) -> int | None:
    if path == "-":
        return None
    try:
        return os.stat(path).st_size
    except OSError as error:
        raise CommandError(f"--file {path}: {(error.strerror or str(error)).lower()}") from None


def _lines(paths: list[str], delimiter: bytes) -> Iterator[tuple[str, bytes]]:
    """The pieces of the files between delimiters, each with its place."""
    for path in paths:
        name = "standard input" if path == "-" else path
        unit = "line" if delimiter == b"\n" else "record"
        with _open(path) as file:
            pieces = file if delimiter == b"\n" else _pieces(file, delimiter)
            for number, piece in enumerate(pieces, 1):
                yield f"{name}, {unit} {number}", piece.removesuffix(delimiter)


def _pieces(file: IO[bytes], delimiter: bytes) -> Iterator[bytes]:
    """The pieces with their delimiters, each as soon as it is complete."""
    rest = b""
    # Takes what a terminal or a pipe has, instead of waiting for a full block.
    read = getattr(file, "read1", file.read)
    while block := read(max(_BLOCK_BYTES, len(rest))):
        *pieces, rest = (rest + block).split(delimiter)
        for piece in pieces:
            yield piece + delimiter
    if rest:
        yield rest


def _whole_files(paths: list[str]) -> Iterator[tuple[str, bytes]]:
    for path in paths:
        with _open(path) as file:
            yield "standard input" if path == "-" else path, file.read()


def _stdin() -> TextIO:
    if sys.stdin is None:  # the caller has closed it
        raise CommandError(
            "standard input is closed", then="give the records with --value or --file", code=USAGE
        )
    return sys.stdin


def _open(path: str) -> IO[bytes]:
    if path == "-":
        return _stdin().buffer
    try:
        return open(path, "rb")
    except OSError as error:
        raise CommandError(f"--file {path}: {(error.strerror or str(error)).lower()}") from None


def _report(options: Namespace, count: _Count, seconds: float) -> None:
    if options.output == "json":
        print_json(
            {
                "topic": options.topic,
                "records": count.sent,
                "skipped": count.skipped,
                "seconds": round(seconds, 3),
            }
        )
        return
    skipped = f", {plural(count.skipped, 'line')} skipped" if count.skipped else ""
    print(f"{plural(count.sent, 'record')} sent to {options.topic}{skipped}", file=sys.stderr)
