"""`headwater consume`: records of topics on the terminal, in a file or in a pipe."""

from __future__ import annotations

import os
import re
import signal
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import from_one, read_pairs, read_partitions, seconds
from headwater.cli.connection import (
    CLIENT_ID,
    START_TIMEOUT_MS,
    add_cluster_options,
    add_property_option,
    cluster_of,
    explained_errors,
    open_admin,
)
from headwater.cli.consume_bounds import (
    BEGINNING,
    END,
    Moment,
    Offset,
    Offsets,
    find_ends,
    read_bound,
    seek_to,
)
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import RecordOutput, plural
from headwater.cli.progress import Progress
from headwater.cli.record_format import JSON, printer, unescaped
from headwater.cli.stopping import Stopped, StopSignals

if TYPE_CHECKING:
    from headwater import ConsumedRecord
    from headwater.blocking import Consumer
    from headwater.model import TopicPartition

_POLL_MS = 200
_POLL_RECORDS = 5000
_TOPIC_TIMEOUT_MS = 2_000  # a person waits for the news that a topic does not exist

_EXAMPLES = """\
examples:
  headwater consume orders                               new records, until Ctrl-C
  headwater consume orders --from beginning --until-end  all records, then exit
  headwater consume orders --from 2026-03-01T08:00 --max 10
  headwater consume orders --from 90m                    the last hour and a half, and on
  headwater consume orders --from 2d --to 1d             the day before the last day
  headwater consume orders --from -5 --until-end         the last five of each partition
  headwater consume orders:0,1 --from 5000 --to 5010     two partitions, ten offsets of each
  headwater consume orders clicks --from beginning --until-end --format '%t: %v'
  headwater consume 'orders-.*' --regex --from beginning --until-end
  headwater consume orders --group billing               as a member of a group; commits
  headwater consume orders --group billing --until-end   what the group has not read yet
  headwater consume orders --format '%d %p/%o %k = %v'
  headwater consume orders --format '%o %V bytes: %v{hex}'
  headwater consume orders --format json                 one JSON object a line
  headwater consume orders --delimiter '\\0' | xargs -0 -n 1 echo

formats: %k key, %v value, %h headers, %t topic, %p partition, %o offset, %T timestamp in ms, %d
its date, %K size of the key, %V of the value (-1: none), %H number of headers, %k{hex} %v{hex}
%v{base64} encoded, %% %{ %} the characters themselves, \\n \\t \\r \\0 \\xNN; or json. Without a
format each value is a line.
"""


def define(parser: ArgumentParser) -> None:
    parser.epilog = _EXAMPLES
    parser.add_argument(
        "topics", metavar="TOPIC", nargs="+", help="a topic, or TOPIC:0,1 for some partitions"
    )
    parser.add_argument(
        "--regex",
        action="store_true",
        help="TOPIC is a regular expression for the whole name; a group also gets topics that are "
        "created later",
    )
    parser.add_argument("--group", metavar="GROUP", help="read as a member of this group")
    parser.add_argument(
        "--from",
        dest="start",
        type=read_bound,
        metavar="WHERE",
        help="beginning, end, an offset, -N for N records before the end, a time, or a duration "
        "for that long ago; a group begins there only where it has no committed offset "
        "(default: end)",
    )
    end = parser.add_mutually_exclusive_group()
    end.add_argument(
        "--to",
        type=read_bound,
        metavar="WHERE",
        help="exit before this offset or time in each partition, written as for --from",
    )
    end.add_argument(
        "--until-end",
        dest="to",
        action="store_const",
        const=END,
        help="exit at the current end of the topics",
    )
    parser.add_argument("--max", type=from_one, metavar="N", help="exit after N records")
    parser.add_argument(
        "--timeout",
        type=seconds,
        metavar="SECONDS",
        help="exit when no record has come for this long",
    )
    parser.add_argument("--format", metavar="FORMAT", help="how a record is shown; see below")
    parser.add_argument(
        "--delimiter",
        metavar="TEXT",
        help="text at the end of each record: '\\0', '' ... (default: newline)",
    )
    parser.add_argument(
        "--null", metavar="TEXT", default="", help="shown for a missing key or value"
    )
    parser.add_argument(
        "--uncommitted",
        action="store_true",
        help="include records of open and aborted transactions",
    )
    add_property_option(parser)
    add_cluster_options(parser)
    parser.add_argument(
        "--output", choices=("text", "json"), default="text", help="json is --format json"
    )
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    form = JSON if options.output == "json" else options.format
    topics = [(each, None) if options.regex else read_partitions(each) for each in options.topics]
    _check(options, topics, form)
    delimiter = None if options.delimiter is None else unescaped(options.delimiter)
    show = printer(form, os.fsencode(options.null), delimiter)
    has_end = options.to is not None or options.max is not None
    silence = _Silence()
    with StopSignals() as stop, explained_errors():
        from headwater.blocking import Consumer

        settings: dict[str, Any] = {}
        if options.regex:
            pattern = _pattern(options.topics)
            topics = [(topic, None) for topic in _matching(options, pattern)]
            settings["pattern"] = pattern
        elif options.group is not None:
            settings["topics"] = [topic for topic, _ in topics]
        if options.group is None:
            settings = {}  # its partitions are assigned below
        else:
            settings |= {
                "group": options.group,
                "auto_offset_reset": "earliest" if options.start == BEGINNING else "latest",
                "listener": silence,
            }
        cluster = cluster_of(options)
        with Consumer(
            cluster.bootstrap,
            start_timeout_ms=START_TIMEOUT_MS,
            config={
                "client.id": CLIENT_ID,
                "isolation.level": "read_uncommitted" if options.uncommitted else "read_committed",
                # A mistyped name must not become a topic.
                "allow.auto.create.topics": False,
            }
            | cluster.settings
            | read_pairs(options.property, "--property"),
            **settings,
        ) as consumer:
            partitions = _partitions(consumer, topics)
            ends = None if options.to is None else find_ends(consumer, partitions, options.to)
            if options.group is None:
                consumer.assign(partitions)
                seek_to(consumer, partitions, END if options.start is None else options.start)
                silence.begin()
            if not has_end and sys.stderr.isatty():
                print("waiting for records; Ctrl-C ends", file=sys.stderr)
            reading = _Reading(consumer, ends, is_member=options.group is not None)
            count = _copy(reading, show, options, silence, stop)
    # Ctrl-C is the usual way to end reading new records.
    if stop.number is not None and (has_end or stop.number != signal.SIGINT):
        raise Stopped(stop.number)
    if sys.stderr.isatty():
        print(plural(count, "record"), file=sys.stderr)
    return 0


def _check(
    options: Namespace, topics: Sequence[tuple[str, tuple[int, ...] | None]], form: str | None
) -> None:
    if form == JSON and options.delimiter is not None:
        raise CommandError("--delimiter: a JSON object ends with its line", code=USAGE)
    if options.group is None:
        return
    if any(partitions is not None for _, partitions in topics):
        raise CommandError("--group reads whole topics, not TOPIC:PARTITION", code=USAGE)
    if isinstance(options.start, Offset | Moment):
        raise CommandError(
            "--group continues from its committed offsets: --from takes beginning or end",
            then=f"`headwater group reset {options.group}` moves them",
            code=USAGE,
        )


# Which partitions


def _pattern(expressions: Sequence[str]) -> re.Pattern[str]:
    for each in expressions:
        try:
            re.compile(each)
        except re.error as error:
            raise CommandError(f"--regex {each}: {error}", code=USAGE) from None
    return re.compile("|".join(f"(?:{each})" for each in expressions))


def _matching(options: Namespace, pattern: re.Pattern[str]) -> list[str]:
    with open_admin(options) as admin:
        names = [each.name for each in admin.list_topics() if pattern.fullmatch(each.name)]
    if not names:
        raise CommandError(
            f"no topic matches {' or '.join(options.topics)}",
            then="`headwater topic list` shows the topics",
        )
    return names


def _partitions(
    consumer: Consumer, topics: Sequence[tuple[str, tuple[int, ...] | None]]
) -> list[TopicPartition]:
    """The partitions that were named; one that does not exist ends the command."""
    found: list[TopicPartition] = []
    for topic, numbers in topics:
        known = consumer.partitions_for(topic, timeout_ms=_TOPIC_TIMEOUT_MS)
        chosen = [each for each in known if numbers is None or each.partition in numbers]
        missing = set(numbers or ()) - {each.partition for each in chosen}
        if missing:
            raise CommandError(
                f"there is no partition {topic}:{min(missing)}",
                then=f"{topic} has partitions 0 to {len(known) - 1}",
            )
        found += chosen
    return list(dict.fromkeys(found))


# Reading


class _Silence:
    """Measures how long no record has come. A member of a group first waits for its partitions;
    that time does not count."""

    def __init__(self) -> None:
        self._since: float | None = None

    def begin(self) -> None:
        self._since = time.monotonic()

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.begin()

    @property
    def has_begun(self) -> bool:
        return self._since is not None

    def has_lasted(self, limit: float | None) -> bool:
        if limit is None or self._since is None:
            return False
        return time.monotonic() - self._since >= limit


class _Reading:
    """Records up to the end of each partition, if there is one."""

    def __init__(self, consumer: Consumer, ends: Offsets | None, *, is_member: bool) -> None:
        self._consumer = consumer
        self._ends = ends
        self._is_member = is_member
        self._finished: set[TopicPartition] = set()

    def total(self) -> int | None:
        """The number of records to come, or a few more: compaction and transactions leave gaps."""
        if self._ends is None or self._is_member:
            return None
        position = self._consumer.position
        return sum(max(0, end - position(where)) for where, end in self._ends.items())

    def is_finished(self) -> bool:
        """Tells whether every partition is at its end; for a member of a group, those assigned."""
        if self._ends is None:
            return False
        wanted = self._consumer.assignment() if self._is_member else self._ends
        return all(self._is_at_end(where) for where in wanted)

    def _is_at_end(self, where: TopicPartition) -> bool:
        assert self._ends is not None
        # A topic that a pattern matches since has no end: it is left for the next time.
        if where not in self._finished and (
            where not in self._ends or self._consumer.position(where) >= self._ends[where]
        ):
            self._consumer.pause(where)
            self._finished.add(where)
        return where in self._finished

    def poll(self, records_max: int) -> list[ConsumedRecord]:
        records = self._consumer.poll(timeout_ms=_POLL_MS, records_max=records_max)
        if self._ends is None:
            return records
        from headwater.model import TopicPartition

        kept: list[ConsumedRecord] = []
        beyond: Offsets = {}
        for each in records:
            where = TopicPartition(each.topic, each.partition)
            if each.offset < self._ends.get(where, 0):
                kept.append(each)
            else:
                beyond.setdefault(where, each.offset)
        for where, offset in beyond.items():
            self._consumer.seek(where, offset)  # a group must not commit what is not shown
            self._consumer.pause(where)
        return kept


def _copy(
    reading: _Reading,
    show: Callable[[ConsumedRecord], bytes],
    options: Namespace,
    silence: _Silence,
    stop: StopSignals,
) -> int:
    """Prints records until the end that was asked for, or a signal; returns how many.

    A record counts as consumed by its group once the next poll, or the close, finds it written: an
    exception on the way leaves it to be read again."""
    out = RecordOutput(stop)
    left = options.max
    total = reading.total()
    if left is not None:
        total = left if total is None else min(left, total)
    stop.raises = False
    # A bar does not help between lines of records on a terminal, nor without a known end.
    with Progress(
        total, "records", shows=total is not None and not sys.stdout.isatty()
    ) as progress:
        while (left is None or left > 0) and stop.number is None:
            if silence.has_begun and reading.is_finished():
                break
            records = reading.poll(min(left or _POLL_RECORDS, _POLL_RECORDS))
            if records:
                out.write(b"".join(map(show, records)))
                progress.add(len(records))
                left = None if left is None else left - len(records)
                silence.begin()
            elif silence.has_lasted(options.timeout):
                break
            elif out.is_reader_gone():
                raise BrokenPipeError
        return progress.done
