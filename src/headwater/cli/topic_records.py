"""`headwater topic records`: shows the offsets of a topic, and deletes its oldest records."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headwater.cli.arguments import from_zero, read_time_ms
from headwater.cli.connection import one_line, open_admin
from headwater.cli.errors import FAILED, USAGE, CommandError
from headwater.cli.output import plural, print_json, print_outcome, print_table
from headwater.cli.topic_describe import require_topics
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.blocking import Admin
    from headwater.client.admin import Topic


@dataclass(frozen=True, slots=True)
class Extent:
    """The offsets of a partition, up to an exclusive end; None if it has no leader."""

    partition: int
    start: int | None
    end: int | None

    @property
    def records(self) -> int | None:
        """The number of records, at most: compaction and transactions leave gaps."""
        return None if self.start is None or self.end is None else self.end - self.start


def define(action: ArgumentParser) -> None:
    action.add_argument("topic", metavar="TOPIC")
    action.add_argument("--partition", metavar="N,...", type=_numbers, help="only these partitions")
    where = action.add_argument_group("deleting").add_mutually_exclusive_group()
    where.add_argument(
        "--delete-before",
        metavar="OFFSET",
        type=from_zero,
        help="delete records before this offset",
    )
    where.add_argument(
        "--delete-before-time",
        metavar="TIME",
        type=read_time_ms,
        help="delete records before the first one of this time or later: 2026-03-01T08:00",
    )
    where.add_argument("--delete-all", action="store_true", help="delete every record")
    action.add_argument(
        "--yes", action="store_true", help="do it; without this only what would be deleted is shown"
    )
    action.set_defaults(run=run)


def run(options: Namespace) -> int:
    deletes = (
        options.delete_all
        or options.delete_before is not None
        or options.delete_before_time is not None
    )
    if options.yes and not deletes:
        raise CommandError(
            "--yes needs one of --delete-before, --delete-before-time and --delete-all", code=USAGE
        )
    with open_admin(options) as admin:
        topic = require_topics(admin, [options.topic])[options.topic]
        extents = _chosen(extents_of(admin, topic), options)
        if not deletes:
            _show(extents, options)
            return 0
        cuts = _cuts(admin, options, extents)
        if not options.yes:
            _preview(extents, cuts, options)
            return 0
        return _delete(admin, options, extents, cuts)


def _numbers(text: str) -> set[int]:
    try:
        return {int(number) for number in text.split(",")}
    except ValueError:
        raise ArgumentTypeError(f"{text}: expected numbers such as 0,1") from None


def extents_of(admin: Admin, topic: Topic) -> list[Extent]:
    """Returns the extents; partitions without a leader are not waited for."""
    from headwater.client.admin import OffsetFound, OffsetSpec

    led = [
        TopicPartition(topic.name, each.index)
        for each in topic.partitions
        if each.leader is not None
    ]
    starts = admin.list_offsets(dict.fromkeys(led, OffsetSpec.EARLIEST))
    ends = admin.list_offsets(dict.fromkeys(led, OffsetSpec.LATEST))

    def offset(found: object) -> int | None:
        return found.offset if isinstance(found, OffsetFound) else None

    return [
        Extent(each.index, offset(starts.get(where)), offset(ends.get(where)))
        for each in topic.partitions
        for where in (TopicPartition(topic.name, each.index),)
    ]


def count_records(admin: Admin, topic: Topic) -> int | None:
    return _total(extents_of(admin, topic))


def _total(extents: list[Extent]) -> int | None:
    """The records of all partitions; None if one of them is unknown."""
    counts = [each.records for each in extents]
    return None if None in counts else sum(count or 0 for count in counts)


def _chosen(extents: list[Extent], options: Namespace) -> list[Extent]:
    if options.partition is None:
        return extents
    missing = options.partition - {each.partition for each in extents}
    if missing:
        raise CommandError(f"there is no partition {options.topic}:{min(missing)}")
    return [each for each in extents if each.partition in options.partition]


def _cuts(admin: Admin, options: Namespace, extents: list[Extent]) -> dict[int, int]:
    """Returns the new start of each partition, within its log."""
    for each in extents:
        if each.records is None:
            raise CommandError(
                f"{options.topic}-{each.partition} has no leader, so its offsets are unknown"
            )
    wanted: dict[int, int | None]
    if options.delete_all:
        wanted = {each.partition: each.end for each in extents}
    elif options.delete_before is not None:
        wanted = {each.partition: options.delete_before for each in extents}
    else:
        from headwater.client.admin import or_raise

        found = or_raise(
            admin.list_offsets(
                {
                    TopicPartition(options.topic, each.partition): options.delete_before_time
                    for each in extents
                }
            )
        )
        wanted = {where.partition: at.offset for where, at in found.items()}
    cuts = {}
    for each in extents:
        assert each.start is not None
        assert each.end is not None
        asked = wanted[each.partition]
        # Without a record of that time or later, all of them are older.
        cuts[each.partition] = min(max(each.end if asked is None else asked, each.start), each.end)
    return cuts


def _show(extents: list[Extent], options: Namespace) -> None:
    total = _total(extents)
    if options.output == "json":
        print_json(
            {
                "topic": options.topic,
                "records": total,
                "partitions": [
                    {
                        "partition": each.partition,
                        "start": each.start,
                        "end": each.end,
                        "records": each.records,
                    }
                    for each in extents
                ],
            }
        )
        return
    rows = [(each.partition, each.start, each.end, each.records) for each in extents]
    print_table(("partition", "start", "end", "records"), rows, output="text")
    known = [each for each in extents if each.records is not None]
    count = plural(sum(each.records or 0 for each in known), "record")
    unknown = "" if total is not None else f"; {len(extents) - len(known)} without a leader"
    print(f"\n{count} in {plural(len(known), 'partition')}{unknown}")


def _rows(extents: list[Extent], cuts: dict[int, int]) -> list[dict[str, Any]]:
    return [
        {
            "partition": each.partition,
            "start": each.start,
            "new_start": cuts[each.partition],
            "end": each.end,
            "deleted": cuts[each.partition] - (each.start or 0),
        }
        for each in extents
    ]


def _preview(extents: list[Extent], cuts: dict[int, int], options: Namespace) -> None:
    rows = _rows(extents, cuts)
    if options.output == "json":
        print_json({"topic": options.topic, "executed": False, "partitions": rows})
        return
    columns = ("partition", "start", "new start", "end", "deleted")
    print_table(columns, [tuple(row.values()) for row in rows], output="text")
    count = plural(sum(row["deleted"] for row in rows), "record")
    print(f"\nnothing has changed yet: --yes deletes {count} for good")


def _delete(admin: Admin, options: Namespace, extents: list[Extent], cuts: dict[int, int]) -> int:
    done = admin.delete_records(
        {TopicPartition(options.topic, number): cut for number, cut in cuts.items()}
    )
    rows = _rows(extents, cuts)
    failed = []
    for row in rows:
        result = done[TopicPartition(options.topic, row["partition"])]
        if isinstance(result, int):
            row["new_start"] = result
        else:
            row["deleted"] = 0
            row["error"] = one_line(result)
            failed.append(row)
    if options.output == "json":
        print_json({"topic": options.topic, "executed": True, "partitions": rows})
    else:
        for row in failed:
            print_outcome(f"partition {row['partition']}: {row['error']}", is_done=False)
        print(f"done: {plural(sum(row['deleted'] for row in rows), 'record')} deleted")
    return FAILED if failed else 0
