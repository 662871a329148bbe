"""`headwater consume`: records of topics on the terminal, in a file or in a pipe."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from typing import TYPE_CHECKING, Any

from headwater.cli.actions import plural, read_partitions
from headwater.cli.cluster_options import (
    CLIENT_ID,
    add_cluster_options,
    bootstrap_of,
    explained_errors,
)
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.progress import Progress
from headwater.cli.record_format import JSON, printer
from headwater.cli.times import read_time_ms

if TYPE_CHECKING:
    from headwater.blocking import Consumer
    from headwater.model import TopicPartition

_POLL_MS = 200
_TOPIC_TIMEOUT_MS = 2_000  # a person waits to hear that there is no such topic
_BEGINNING, _END = "beginning", "end"

_EXAMPLES = """\
examples:
  headwater consume orders                               what comes from now on
  headwater consume orders --from beginning --until-end  all there is, then ends
  headwater consume orders --from 2026-03-01T08:00 --max 10
  headwater consume orders:0,1 --from 5000               two partitions, from an offset
  headwater consume orders --group billing               as a member of a group; commits
  headwater consume orders --format '%d %p/%o %k = %v'
  headwater consume orders --format json                 an object a line

formats: %k key, %v value, %h headers, %t topic, %p partition, %o offset, %T timestamp in ms, %d
its date, %% a percent sign, \\n \\t \\0; or json. Without a format each value is a line.
"""


def define(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument("topics", metavar="TOPIC", nargs="+", help="or TOPIC:0,1 for partitions")
    parser.add_argument("--group", metavar="GROUP", help="share the topics with this group")
    parser.add_argument(
        "--from",
        dest="start",
        type=_start,
        metavar="WHERE",
        help="beginning, end, an offset, or a time; a group begins there only where it has no "
        "committed offset (default: end)",
    )
    parser.add_argument("--max", type=_positive, metavar="N", help="end after so many records")
    parser.add_argument(
        "--until-end", action="store_true", help="end at what is the end of the topics now"
    )
    parser.add_argument(
        "--timeout", type=float, metavar="SECONDS", help="end when nothing came for so long"
    )
    parser.add_argument("--format", metavar="FORMAT", help="how a record is shown; see below")
    parser.add_argument(
        "--uncommitted", action="store_true", help="records of open and aborted transactions, too"
    )
    add_cluster_options(parser)
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="json is --format json"
    )
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    show = printer(JSON if options.output == "json" else options.format)
    topics = [read_partitions(each, "TOPIC") for each in options.topics]
    _check(options, topics)
    settings: dict[str, Any] = {}
    if options.group is not None:
        settings = {"group": options.group, "topics": [topic for topic, _ in topics]}
        settings["auto_offset_reset"] = "earliest" if options.start == _BEGINNING else "latest"
    seen = 0
    with explained_errors():
        from headwater.blocking import Consumer

        with Consumer(
            bootstrap_of(options),
            client_id=CLIENT_ID,
            isolation_level="read_uncommitted" if options.uncommitted else "read_committed",
            **settings,
        ) as consumer:
            ends: dict[TopicPartition, int] | None = None
            if options.group is None:
                ends = _assign(consumer, topics, options)
            if options.max is None and ends is None and sys.stderr.isatty():
                print("waiting for records; Ctrl-C ends", file=sys.stderr)
            try:
                seen = _copy(consumer, show, options, ends)
            except KeyboardInterrupt:
                return 0  # the usual end of reading what comes
    if sys.stderr.isatty():
        print(plural(seen, "record"), file=sys.stderr)
    return 0


def _check(options: Namespace, topics: list[tuple[str, tuple[int, ...] | None]]) -> None:
    if options.group is None:
        return
    if any(partitions is not None for _, partitions in topics):
        raise CommandError("--group shares out whole topics, not TOPIC:PARTITION", code=USAGE)
    if options.until_end:
        raise CommandError("--until-end does not go with --group: use --timeout", code=USAGE)
    if options.start not in (None, _BEGINNING, _END):
        raise CommandError(
            "--group goes on from its committed offsets: --from beginning or end",
            then=f"`headwater group reset {options.group}` moves them",
            code=USAGE,
        )


def _assign(
    consumer: Consumer, topics: list[tuple[str, tuple[int, ...] | None]], options: Namespace
) -> dict[TopicPartition, int] | None:
    """Takes the partitions and goes to where reading begins; where it ends, if it does."""
    from headwater.model import TopicPartition

    places: list[TopicPartition] = []
    for topic, numbers in topics:
        if numbers is None:
            places += consumer.partitions_for(topic, timeout_ms=_TOPIC_TIMEOUT_MS)
        else:
            places += [TopicPartition(topic, number) for number in numbers]
    consumer.assign(places)
    ends = consumer.end_offsets(*places) if options.until_end else None
    start: str | int | tuple[int] = _END if options.start is None else options.start
    if start == _BEGINNING:
        consumer.seek_to_beginning()
    elif start == _END:
        consumer.seek_to_end()
    elif isinstance(start, int):
        for place in places:
            consumer.seek(place, start)
    elif isinstance(start, tuple):
        consumer.seek_to_time(start[0])
    return ends


def _copy(
    consumer: Consumer, show: Any, options: Namespace, ends: dict[TopicPartition, int] | None
) -> int:
    """Prints records until what was asked for is there; answers how many."""
    from headwater.model import TopicPartition

    out = sys.stdout.buffer
    left = options.max
    quiet_since = time.monotonic()
    # Between the lines of records a bar would be no help, nor where nobody knows of an end.
    shows = (ends is not None or left is not None) and not sys.stdout.isatty()
    with Progress(left, "records", shows=shows) as progress:
        while left is None or left > 0:
            if ends is not None and all(
                consumer.position(place) >= end for place, end in ends.items()
            ):
                break
            records = consumer.poll(timeout_ms=_POLL_MS, records_max=min(left or 5000, 5000))
            if ends is not None:
                records = [
                    each
                    for each in records
                    if each.offset < ends[TopicPartition(each.topic, each.partition)]
                ]
            if records:
                out.write(b"".join(map(show, records)))
                out.flush()
                progress.add(len(records))
                left = None if left is None else left - len(records)
                quiet_since = time.monotonic()
            elif options.timeout is not None and time.monotonic() - quiet_since >= options.timeout:
                break
        return progress.done


def _start(text: str) -> str | int | tuple[int]:
    """A word, an offset, or a moment."""
    if text in (_BEGINNING, _END):
        return text
    if text.isdigit():
        return int(text)
    try:
        return (read_time_ms(text),)
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"{text}: expected beginning, end, an offset, or a time such as 2026-03-01T08:00"
        ) from None


def _positive(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise ArgumentTypeError(f"{text}: expected 1 or more")
    return int(text)
