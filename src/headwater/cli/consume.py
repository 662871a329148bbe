"""`headwater consume`: records of topics on the terminal, in a file or in a pipe."""

from __future__ import annotations

import os
import signal
import sys
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.actions import plural, read_pairs, read_partitions
from headwater.cli.cluster_options import (
    CLIENT_ID,
    START_TIMEOUT_MS,
    add_cluster_options,
    add_property_option,
    cluster_of,
    explained_errors,
)
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.numbers import from_one, seconds
from headwater.cli.output import RecordOutput
from headwater.cli.progress import Progress
from headwater.cli.record_format import JSON, printer
from headwater.cli.stopping import Stopped, StopSignals
from headwater.cli.times import read_time_ms

if TYPE_CHECKING:
    from headwater.blocking import Consumer
    from headwater.model import TopicPartition

_POLL_MS = 200
_TOPIC_TIMEOUT_MS = 2_000  # a person waits to hear that there is no such topic
_BEGINNING, _END = "beginning", "end"
_WORDS = {_BEGINNING: _BEGINNING, _END: _END, "earliest": _BEGINNING, "latest": _END}

_EXAMPLES = """\
examples:
  headwater consume orders                               what comes from now on
  headwater consume orders --from beginning --until-end  all there is, then ends
  headwater consume orders --from 2026-03-01T08:00 --max 10
  headwater consume orders --from 90m                    of the last hour and a half
  headwater consume orders --from -5 --until-end         the last five of each partition
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
        help="beginning, end, an offset, -N for N records before the end, a time, or a duration "
        "for so long ago; a group begins there only where it has no committed offset "
        "(default: end)",
    )
    parser.add_argument("--max", type=from_one, metavar="N", help="end after so many records")
    parser.add_argument(
        "--until-end", action="store_true", help="end at what is the end of the topics now"
    )
    parser.add_argument(
        "--timeout", type=seconds, metavar="SECONDS", help="end when nothing came for so long"
    )
    parser.add_argument("--format", metavar="FORMAT", help="how a record is shown; see below")
    parser.add_argument(
        "--null", metavar="TEXT", default="", help="what is shown for no key or no value"
    )
    parser.add_argument(
        "--uncommitted", action="store_true", help="records of open and aborted transactions, too"
    )
    add_property_option(parser)
    add_cluster_options(parser)
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="json is --format json"
    )
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    form = JSON if options.output == "json" else options.format
    show = printer(form, os.fsencode(options.null))
    topics = [read_partitions(each, "TOPIC") for each in options.topics]
    _check(options, topics)
    quiet = _Quiet()
    settings: dict[str, Any] = {}
    if options.group is not None:
        settings = {"group": options.group, "topics": [topic for topic, _ in topics]}
        settings["auto_offset_reset"] = "earliest" if options.start == _BEGINNING else "latest"
        settings["listener"] = quiet
    has_end = options.until_end or options.max is not None
    with StopSignals() as stop, explained_errors():
        from headwater.blocking import Consumer

        cluster = cluster_of(options)
        with Consumer(
            cluster.bootstrap,
            start_timeout_ms=START_TIMEOUT_MS,
            config={
                "client.id": CLIENT_ID,
                "isolation.level": "read_uncommitted" if options.uncommitted else "read_committed",
                # A name that is mistyped must not become a topic.
                "allow.auto.create.topics": False,
            }
            | cluster.settings
            | read_pairs(options.property, "--property"),
            **settings,
        ) as consumer:
            places = _places(consumer, topics)
            ends: dict[TopicPartition, int] | None = None
            if options.group is None:
                consumer.assign(places)
                ends = consumer.end_offsets(*places) if options.until_end else None
                _go_to(consumer, places, _END if options.start is None else options.start)
                quiet.begin()
            if options.max is None and ends is None and sys.stderr.isatty():
                print("waiting for records; Ctrl-C ends", file=sys.stderr)
            seen = _copy(consumer, show, options, ends, quiet, stop)
    # Ctrl-C is the usual end of reading what comes.
    if stop.number is not None and (has_end or stop.number != signal.SIGINT):
        raise Stopped(stop.number)
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
    if isinstance(options.start, _Offset | _Moment):
        raise CommandError(
            "--group goes on from its committed offsets: --from beginning or end",
            then=f"`headwater group reset {options.group}` moves them",
            code=USAGE,
        )


def _places(
    consumer: Consumer, topics: list[tuple[str, tuple[int, ...] | None]]
) -> list[TopicPartition]:
    """The partitions that were named; one that is not there ends the command."""
    places: list[TopicPartition] = []
    for topic, numbers in topics:
        known = consumer.partitions_for(topic, timeout_ms=_TOPIC_TIMEOUT_MS)
        chosen = [each for each in known if numbers is None or each.partition in numbers]
        missing = set(numbers or ()) - {each.partition for each in chosen}
        if missing:
            raise CommandError(
                f"there is no partition {topic}:{min(missing)}",
                then=f"{topic} has partitions 0 to {len(known) - 1}",
            )
        places += chosen
    return list(dict.fromkeys(places))


@dataclass(frozen=True, slots=True)
class _Offset:
    """This one in each partition; one below zero is counted from the end."""

    number: int


@dataclass(frozen=True, slots=True)
class _Moment:
    """The first record that is not older."""

    timestamp_ms: int


_Start = str | _Offset | _Moment


def _go_to(consumer: Consumer, places: list[TopicPartition], start: _Start) -> None:
    match start:
        case _Offset(number) if number < 0:
            ends = consumer.end_offsets(*places)
            for place, first in consumer.beginning_offsets(*places).items():
                consumer.seek(place, max(first, ends[place] + number))
        case _Offset(number):
            for place in places:
                consumer.seek(place, number)
        case _Moment(timestamp_ms):
            consumer.seek_to_time(timestamp_ms)
        case "beginning":
            consumer.seek_to_beginning()
        case _:
            consumer.seek_to_end()


class _Quiet:
    """For how long nothing has come. A member of a group waits for its partitions first, which is
    the group's time and not counted."""

    def __init__(self) -> None:
        self._since: float | None = None

    def begin(self) -> None:
        self._since = time.monotonic()

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.begin()

    def has_lasted(self, seconds: float | None) -> bool:
        if seconds is None or self._since is None:
            return False
        return time.monotonic() - self._since >= seconds


def _copy(
    consumer: Consumer,
    show: Any,
    options: Namespace,
    ends: dict[TopicPartition, int] | None,
    quiet: _Quiet,
    stop: StopSignals,
) -> int:
    """Prints records until the end that was asked for, or a signal; returns how many.

    A record counts as consumed by its group once the next poll, or the close, finds it written: an
    exception on the way leaves it to be read again."""
    from headwater.model import TopicPartition

    out = RecordOutput(stop)
    left = options.max
    stop.raises = False
    # Between the lines of records a bar would be no help, nor where nobody knows of an end.
    shows = (ends is not None or left is not None) and not sys.stdout.isatty()
    with Progress(_total(consumer, left, ends), "records", shows=shows) as progress:
        while (left is None or left > 0) and stop.number is None:
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
                progress.add(len(records))
                left = None if left is None else left - len(records)
                quiet.begin()
            elif quiet.has_lasted(options.timeout):
                break
            elif out.is_reader_gone():
                raise BrokenPipeError
        return progress.done


def _total(
    consumer: Consumer, left: int | None, ends: dict[TopicPartition, int] | None
) -> int | None:
    """How many records will come, or a few fewer: compaction and transactions leave gaps."""
    if ends is None:
        return left
    there = sum(max(0, end - consumer.position(place)) for place, end in ends.items())
    return there if left is None else min(left, there)


def _start(text: str) -> _Start:
    """A word, an offset, or a moment."""
    if text in _WORDS:
        return _WORDS[text]
    if text.removeprefix("-").isdigit():
        return _Offset(int(text))
    try:
        return _Moment(read_time_ms(text))
    except ArgumentTypeError:
        raise ArgumentTypeError(
            f"{text}: expected beginning, end, an offset, a time such as 2026-03-01T08:00, or 90m "
            "for so long ago"
        ) from None
