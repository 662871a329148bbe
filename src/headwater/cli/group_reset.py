"""`headwater group reset`: shows where each offset would move, and moves them with --execute."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, NamedTuple

from headwater.cli.arguments import from_zero, read_partitions, whole
from headwater.cli.arguments import read_duration as _duration
from headwater.cli.arguments import read_time_ms as _time_ms
from headwater.cli.connection import one_line, open_admin
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import plural, print_json, print_table
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import Group
    from headwater.client.errors import ClientError


class Move(NamedTuple):
    """A move of one committed offset."""

    partition: TopicPartition
    current: int | None
    asked: int
    new: int

    @property
    def difference(self) -> int | None:
        return None if self.current is None else self.new - self.current


def define(parser: ArgumentParser) -> None:
    parser.add_argument("group", metavar="GROUP")
    which = parser.add_argument_group("which partitions")
    which.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:P,...]",
        help="a topic, or some of its partitions; may be repeated",
    )
    which.add_argument(
        "--all-topics", action="store_true", help="every partition with a committed offset"
    )
    where = parser.add_argument_group("where to").add_mutually_exclusive_group(required=True)
    where.add_argument("--to-earliest", action="store_true", help="the oldest record")
    where.add_argument("--to-latest", action="store_true", help="the end: only new records")
    where.add_argument(
        "--to-current",
        action="store_true",
        help="the committed offset, or the end if there is none",
    )
    where.add_argument("--to-offset", type=from_zero, metavar="N", help="this offset")
    where.add_argument(
        "--to-time",
        "--to-datetime",
        type=_time_ms,
        metavar="TIME",
        help="the first record of this time or later: 2026-03-01T08:00, local unless it has a zone",
    )
    where.add_argument(
        "--shift",
        "--shift-by",
        type=whole,
        metavar="N",
        help="forward by N records, or back if N < 0",
    )
    where.add_argument(
        "--by-duration",
        type=_duration,
        metavar="DURATION",
        help="the first record at most this old: P1D, PT90M, 1h30m",
    )
    where.add_argument(
        "--from-file",
        metavar="FILE",
        help="lines of TOPIC,PARTITION,OFFSET, as from kafka-consumer-groups --export",
    )
    does = parser.add_mutually_exclusive_group()
    does.add_argument(
        "--execute",
        "--yes",
        action="store_true",
        help="do it; without this only what would change is shown",
    )
    does.add_argument("--dry-run", action="store_true", help="only show it, as without --execute")
    parser.set_defaults(run=run)


def run(options: Namespace) -> int:
    chosen = [_chosen(text) for text in options.topic]
    if options.from_file is not None:
        if chosen or options.all_topics:
            raise CommandError(
                "--from-file cannot be combined with --topic or --all-topics", code=USAGE
            )
    elif bool(chosen) == options.all_topics:
        raise CommandError("expected either --topic TOPIC[:P,...] or --all-topics", code=USAGE)
    with open_admin(options) as admin:
        from headwater.cli.group_describe import find_group

        group = find_group(admin, options.group)
        committed = {
            where: each.offset for where, each in admin.group_offsets(options.group).items()
        }
        if options.from_file is not None:
            wanted = _from_file(options.from_file, options.group)
            leaders = _existing(admin, {(each.topic, each.partition) for each in wanted})
        else:
            wanted = {}
            leaders = _existing(admin, _partitions(chosen, committed, options.group))
        moves = _moves(admin, options, leaders, committed, wanted)
        if options.execute:
            _refuse_if_in_use(group)
            _commit(admin, options.group, moves)
    _show(options, group, moves)
    return 0


# Which partitions


def _chosen(text: str) -> tuple[str, tuple[int, ...] | None]:
    return read_partitions(text, "--topic")


Wish = set[tuple[str, int | None]]  # None: every partition of the topic


def _partitions(
    chosen: list[tuple[str, tuple[int, ...] | None]],
    committed: Mapping[TopicPartition, int],
    group_id: str,
) -> Wish:
    if chosen:
        return {
            (topic, number)
            for topic, numbers in chosen
            for number in (numbers if numbers is not None else (None,))
        }
    if not committed:
        raise CommandError(
            f"group {group_id} has committed no offsets", then="name topics with --topic"
        )
    return {(each.topic, each.partition) for each in committed}


def _existing(admin: Admin, wished: Wish) -> dict[TopicPartition, int | None]:
    """Returns the partitions with their leaders; one that does not exist ends the command."""
    leaders = _leaders(admin, {topic for topic, _ in wished})
    found: dict[TopicPartition, int | None] = {}
    for topic, number in sorted(wished, key=lambda each: (each[0], each[1] or 0)):
        matching = {
            each: leader
            for each, leader in leaders.items()
            if each.topic == topic and number in (None, each.partition)
        }
        if not matching:
            what = f"topic {topic}" if number is None else f"partition {topic}:{number}"
            raise CommandError(f"there is no {what}")
        found |= matching
    return dict(sorted(found.items()))


def _leaders(admin: Admin, topics: Collection[str]) -> dict[TopicPartition, int | None]:
    """Every partition of these topics with its leader; topics that do not exist are left out."""
    from headwater.client.admin import Topic

    return {
        TopicPartition(about.name, each.index): each.leader
        for about in admin.describe_topics(topics).values()
        if isinstance(about, Topic)
        for each in about.partitions
    }


# Where to


def _moves(
    admin: Admin,
    options: Namespace,
    leaders: Mapping[TopicPartition, int | None],
    committed: Mapping[TopicPartition, int],
    wanted: Mapping[TopicPartition, int],
) -> list[Move]:
    """Returns the moves. A new offset always lies within the log, as with Kafka's tool."""
    from headwater.client.admin import OffsetSpec

    starts = _offsets_at(admin, leaders, OffsetSpec.EARLIEST)
    ends = _offsets_at(admin, leaders, OffsetSpec.LATEST)
    for each in leaders:
        if each not in starts or each not in ends:
            raise CommandError(f"{each} has no leader, so its offsets are unknown")
    if options.to_earliest:
        new = starts
    elif options.to_latest:
        new = ends
    elif options.to_current:
        new = {each: committed.get(each, ends[each]) for each in leaders}
    elif options.to_offset is not None:
        new = dict.fromkeys(leaders, options.to_offset)
    elif options.shift is not None:
        new = {each: _known(each, committed) + options.shift for each in leaders}
    elif options.from_file is not None:
        new = dict(wanted)
    else:
        new = _offsets_at(admin, leaders, _asked_time_ms(options))
        new = {each: ends[each] if new.get(each, -1) < 0 else new[each] for each in leaders}
    return [
        Move(each, committed.get(each), new[each], min(max(new[each], starts[each]), ends[each]))
        for each in leaders
    ]


def _offsets_at(
    admin: Admin, leaders: Mapping[TopicPartition, int | None], at: int
) -> dict[TopicPartition, int]:
    """The offset for a time (or an `OffsetSpec`) in each partition that has a leader; -1 if all
    records are older. Partitions without a leader are not waited for."""
    from headwater.client.admin import OffsetFound

    led = [where for where, leader in leaders.items() if leader is not None]
    return {
        where: -1 if each.offset is None else each.offset
        for where, each in admin.list_offsets(dict.fromkeys(led, at)).items()
        if isinstance(each, OffsetFound)
    }


def _known(partition: TopicPartition, committed: Mapping[TopicPartition, int]) -> int:
    if partition not in committed:
        raise CommandError(
            f"{partition} has no committed offset to shift",
            then="leave it out, or set it with --to-offset",
        )
    return committed[partition]


def _asked_time_ms(options: Namespace) -> int:
    if options.to_time is not None:
        return int(options.to_time)
    from time import time

    return int((time() - options.by_duration.total_seconds()) * 1000)


def _from_file(path: str, group_id: str) -> dict[TopicPartition, int]:
    """Reads lines of TOPIC,PARTITION,OFFSET, or of GROUP and these; other groups are skipped."""
    import csv

    wanted = {}
    try:
        with open(path, encoding="utf-8", newline="") as file:
            for number, row in enumerate(csv.reader(file), start=1):
                cells = [cell.strip() for cell in row]
                if len(cells) == 4 and cells.pop(0) != group_id:
                    continue
                if not cells:
                    continue
                try:
                    topic, partition, offset = cells
                    wanted[TopicPartition(topic, int(partition))] = int(offset)
                except ValueError:
                    raise CommandError(
                        f"--from-file {path}, line {number}: expected TOPIC,PARTITION,OFFSET",
                        code=USAGE,
                    ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise CommandError(f"--from-file {path}: {reason}", code=USAGE) from None
    except (UnicodeDecodeError, csv.Error):
        raise CommandError(f"--from-file {path}: not a text file", code=USAGE) from None
    if not wanted:
        raise CommandError(f"--from-file {path}: no offsets for group {group_id}", code=USAGE)
    return wanted


# Moving


def _refuse_if_in_use(group: Group | None) -> None:
    if group is not None and not group.is_empty:
        from headwater.cli.group import who_is_in

        raise CommandError(
            f"nothing was changed: {group.id} is {group.state}, and {who_is_in(group)}",
            then="stop its members, wait until it is Empty, and try again",
        )


def _commit(admin: Admin, group_id: str, moves: list[Move]) -> None:
    moved = admin.alter_group_offsets(group_id, {move.partition: move.new for move in moves})
    refused = [f"{where}: {_refusal(error)}" for where, error in moved.items() if error is not None]
    if refused:
        raise CommandError(f"not all offsets were moved: {'; '.join(sorted(refused))}")


def _refusal(error: ClientError) -> str:
    from headwater.client.errors import CommitFailed

    if isinstance(error, CommitFailed):
        return "a member has joined the group in the meantime"
    return one_line(error)


def _show(options: Namespace, group: Group | None, moves: list[Move]) -> None:
    if options.output == "json":
        print_json(
            {
                "group": options.group,
                "executed": options.execute,
                "partitions": [
                    {
                        "topic": move.partition.topic,
                        "partition": move.partition.partition,
                        "current": move.current,
                        "asked": move.asked,
                        "new": move.new,
                        "difference": move.difference,
                    }
                    for move in moves
                ],
            }
        )
        return
    columns = ("topic", "partition", "current", "new", "difference")
    rows = [
        (
            move.partition.topic,
            move.partition.partition,
            move.current,
            move.new,
            None if move.difference is None else _signed(move.difference),
        )
        for move in moves
    ]
    print_table(columns, rows, output="text")
    print()
    for move in moves:
        if move.asked != move.new:
            print(f"{move.partition} has no offset {move.asked}; {move.new} is used instead")
    if options.execute:
        print(f"done: {plural(len(moves), 'offset')} of {options.group} moved")
        return
    print("nothing has changed yet: --execute does it")
    if group is not None and not group.is_empty:
        from headwater.cli.group import who_is_in

        print(f"stop its members first: {who_is_in(group)}")


def _signed(number: int) -> str:
    return f"{number:+d}" if number else "0"
