"""`headwater txn`: lists, describes and ends transactions, also those that hang."""

from __future__ import annotations

import time
from argparse import ArgumentParser, Namespace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from headwater.cli.arguments import from_zero, read_duration, read_partitions
from headwater.cli.connection import add_cluster_options, open_admin
from headwater.cli.errors import USAGE, CommandError
from headwater.cli.output import add_output_option, plural, print_fields, print_json, print_table
from headwater.cli.parser import add_actions
from headwater.cli.watch import add_watch_options, watch

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from headwater.blocking import Admin
    from headwater.client.admin import ActiveProducer, HangingTransaction, Transaction
    from headwater.model import TopicPartition

_EXAMPLES = """\
examples:
  headwater txn list --state Ongoing --longer-than 5m
  headwater txn describe billing-1                       its state, its partitions, since when
  headwater txn producers orders:0                       its producers, and open transactions
  headwater txn hanging                                  transactions no coordinator will end
  headwater txn abort billing-1                          shows what would be aborted
  headwater txn abort billing-1 --yes                    aborts it and fences its producer
  headwater txn abort --topic orders:0 --start 1234 --yes     ends one that hangs
"""
_HANGING_AFTER = "15m"
_NO_TIMEOUT_MS = 2**31 - 1  # of transactions of a two-phase commit
_OPEN = "Ongoing"
_SHOWN_MAX = 10


def define(parser: ArgumentParser) -> None:
    add_actions(
        parser,
        (
            ("list", "list the transactional ids of the cluster", _define_list),
            ("describe", "show the transaction of a transactional id", _define_describe),
            ("producers", "show the producers that partitions remember", _define_producers),
            ("hanging", "find transactions that no coordinator will end", _define_hanging),
            ("abort", "abort a transaction and fence its producer", _define_abort),
        ),
        examples=_EXAMPLES,
    )


def _define_list(action: ArgumentParser) -> None:
    action.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="TXN_STATE",
        help="only transactions in this state: Ongoing, PrepareCommit, CompleteAbort ...",
    )
    action.add_argument(
        "--producer-id",
        action="append",
        default=[],
        type=from_zero,
        metavar="N",
        help="only the transaction of this producer; may be repeated",
    )
    action.add_argument(
        "--longer-than",
        type=read_duration,
        metavar="DURATION",
        help="only transactions that have been open for longer, such as 90s or 5m",
    )
    action.add_argument(
        "--pattern", metavar="REGEX", help="only transactional ids that match (RE2 syntax)"
    )
    add_watch_options(action)
    _finish(action)
    action.set_defaults(run=lambda options: watch(options, lambda: _list(options)))


def _define_describe(action: ArgumentParser) -> None:
    action.add_argument("transactional_id", metavar="TRANSACTIONAL_ID")
    _finish(action)
    action.set_defaults(run=_describe)


def _define_producers(action: ArgumentParser) -> None:
    action.add_argument("partitions", nargs="+", metavar="TOPIC[:P,...]")
    _finish(action)
    action.set_defaults(run=_producers)


def _define_hanging(action: ArgumentParser) -> None:
    action.add_argument(
        "--topic",
        action="append",
        default=[],
        metavar="TOPIC[:P,...]",
        help="search only this topic, or some of its partitions; may be repeated",
    )
    action.add_argument(
        "--older-than",
        type=read_duration,
        default=_HANGING_AFTER,
        metavar="DURATION",
        help=f"only those that have written nothing for this long (default: {_HANGING_AFTER}, the "
        "longest timeout of a transaction by default)",
    )
    _finish(action)
    action.set_defaults(run=_hanging)


def _define_abort(action: ArgumentParser) -> None:
    action.add_argument("transactional_id", nargs="?", metavar="TRANSACTIONAL_ID")
    action.add_argument(
        "--topic", metavar="TOPIC:P", help="the partition in which a transaction hangs"
    )
    action.add_argument(
        "--start", type=from_zero, metavar="OFFSET", help="the offset at which it begins there"
    )
    action.add_argument(
        "--yes",
        "--execute",
        action="store_true",
        help="do it; without this only what would be aborted is shown",
    )
    _finish(action)
    action.set_defaults(run=_abort)


def _finish(action: ArgumentParser) -> None:
    add_cluster_options(action)
    add_output_option(action)


# list and describe


def _list(options: Namespace) -> int:
    from headwater.client.admin.transactions import OPEN_STATES

    # To brokers, what has ended or never began is open since its last beginning, or since 1970.
    is_open_only = options.longer_than is not None and not options.state
    with open_admin(options) as admin:
        found = admin.list_transactions(
            states=OPEN_STATES if is_open_only else options.state,
            producer_ids=options.producer_id,
            longer_than_ms=_milliseconds(options.longer_than),
            pattern=options.pattern,
        )
    if not found and options.output == "text":
        print("no transactions")
        return 0
    rows = [
        (each.transactional_id, each.state, each.producer_id, each.coordinator_id) for each in found
    ]
    columns = ("transactional_id", "state", "producer_id", "coordinator")
    print_table(columns, rows, output=options.output)
    return 0


def _describe(options: Namespace) -> int:
    with open_admin(options) as admin:
        found = admin.describe_transaction(options.transactional_id)
    fields = _fields(found)
    if options.output == "text":
        fields["partitions"] = ", ".join(map(str, sorted(found.partitions))) or "-"
        if found.timeout_ms == _NO_TIMEOUT_MS:
            fields["timeout_ms"] = "none: it takes part in a two-phase commit"
    print_fields(fields, output=options.output)
    return 0


def _fields(found: Transaction) -> dict[str, object]:
    return {
        "transactional_id": found.transactional_id,
        "state": found.state,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
        "timeout_ms": found.timeout_ms,
        "started": None if found.start_ms is None else _time_text(found.start_ms),
        "open_for_ms": None if found.start_ms is None else _since_ms(found.start_ms),
        "coordinator": found.coordinator,
        "partitions": [
            {"topic": tp.topic, "partition": tp.partition} for tp in sorted(found.partitions)
        ],
    }


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else round(duration.total_seconds() * 1000)


def _time_text(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000).astimezone().isoformat(timespec="seconds")


def _since_ms(ms: int) -> int:
    return max(0, round(time.time() * 1000) - ms)


# producers and hanging


def _producers(options: Namespace) -> int:
    from headwater.client.admin import or_raise

    with open_admin(options) as admin:
        found = or_raise(admin.describe_producers(_partitions(admin, options.partitions)))
    rows = [
        (
            tp.topic,
            tp.partition,
            each.producer_id,
            each.producer_epoch,
            each.last_sequence,
            None if each.last_timestamp is None else _time_text(each.last_timestamp),
            each.coordinator_epoch,
            each.transaction_start,
        )
        for tp, producers in sorted(found.items())
        for each in producers
    ]
    if not rows and options.output == "text":
        print("no producers")
        return 0
    columns = (
        *("topic", "partition", "producer_id", "producer_epoch", "last_sequence", "last_write"),
        *("coordinator_epoch", "open_since_offset"),
    )
    print_table(columns, rows, output=options.output)
    return 0


def _partitions(admin: Admin, texts: list[str]) -> list[TopicPartition]:
    from headwater.client.admin import or_raise
    from headwater.model import TopicPartition

    chosen = [read_partitions(text, "TOPIC") for text in texts]
    described = or_raise(admin.describe_topics([topic for topic, _ in chosen]))
    return [
        TopicPartition(topic, number)
        for topic, numbers in chosen
        for number in (numbers or [each.index for each in described[topic].partitions])
    ]


def _hanging(options: Namespace) -> int:
    with open_admin(options) as admin:
        partitions = _partitions(admin, options.topic) if options.topic else None
        older_than_ms = _milliseconds(options.older_than) or 0
        found = admin.find_hanging_transactions(partitions, older_than_ms=older_than_ms)
        is_text = options.output == "text"
        long_open = _long_open(admin, partitions, older_than_ms) if is_text else []
    if not is_text:
        print_json([_hanging_fields(each) for each in found])
    elif not found:
        print("no transaction hangs")
    else:
        columns = (
            *("topic", "partition", "start", "transactional_id", "producer_id", "producer_epoch"),
            "last_write",
        )
        rows = [[_hanging_fields(each)[name] for name in columns] for each in found]
        print_table(columns, rows, output="text")
        first = found[0]
        print(
            f"\nconsumers with read_committed wait at these offsets: `headwater txn abort --topic "
            f"{first.partition.topic}:{first.partition.partition} --start {first.start}` ends one"
        )
    if long_open:
        _print_long_open(long_open)
    return 0


def _long_open(
    admin: Admin, partitions: Collection[TopicPartition] | None, older_than_ms: int
) -> list[Transaction]:
    """Returns transactions that their coordinators know and that hold up readers all the same."""
    from headwater.client.admin import or_raise
    from headwater.client.admin.transactions import OPEN_STATES

    listed = admin.list_transactions(states=OPEN_STATES)
    described = or_raise(admin.describe_transactions([each.transactional_id for each in listed]))
    return [
        each
        for each in described.values()
        if each.start_ms is not None
        and _since_ms(each.start_ms) >= older_than_ms
        and (partitions is None or not each.partitions.isdisjoint(partitions))
    ]


def _print_long_open(found: Sequence[Transaction]) -> None:
    shown = ", ".join(f"{each.transactional_id} ({each.state})" for each in found[:_SHOWN_MAX])
    more = f" and {len(found) - _SHOWN_MAX} more" if len(found) > _SHOWN_MAX else ""
    print(
        f"\nconsumers with read_committed also wait for {shown}{more}: open for as long, and known "
        f"to the coordinator; `headwater txn describe {found[0].transactional_id}` shows one, "
        "`headwater txn abort` ends it"
    )


def _hanging_fields(each: HangingTransaction) -> dict[str, object]:
    return {
        "topic": each.partition.topic,
        "partition": each.partition.partition,
        "start": each.start,
        "transactional_id": each.transactional_id,
        "producer_id": each.producer_id,
        "producer_epoch": each.producer_epoch,
        "coordinator_epoch": each.coordinator_epoch,
        "last_write": None if each.last_timestamp is None else _time_text(each.last_timestamp),
    }


# abort


def _abort(options: Namespace) -> int:
    if (options.transactional_id is None) == (options.topic is None):
        raise CommandError(
            "give a transactional id, or --topic and --start of a transaction that hangs",
            code=USAGE,
        )
    if options.topic is not None:
        return _abort_hanging(options)
    with open_admin(options) as admin:
        found = admin.describe_transaction(options.transactional_id)
        if options.yes:
            admin.force_terminate_transaction(options.transactional_id)
    is_open = found.state == _OPEN
    if options.output == "json":
        print_json({**_fields(found), "aborted": options.yes and is_open, "fenced": options.yes})
        return 0
    count = plural(len(found.partitions), "partition")
    if not options.yes:
        print(f"{found.transactional_id}: {found.state}, {count}")
        does = "aborts it and fences" if is_open else "finds nothing to abort and only fences"
        print(f"\nnothing has changed yet: --yes {does} its producer")
    elif is_open:
        print(f"{found.transactional_id}: aborted ({found.state}, {count}), its producer is fenced")
    else:
        print(
            f"{found.transactional_id}: nothing to abort, it was {found.state}; its producer is "
            "fenced"
        )
    return 0


def _abort_hanging(options: Namespace) -> int:
    from headwater.client.admin import or_raise

    if options.start is None:
        raise CommandError("--topic needs --start, the offset at which it begins", code=USAGE)
    with open_admin(options) as admin:
        partitions = _partitions(admin, [options.topic])
        if len(partitions) != 1:
            raise CommandError(f"--topic {options.topic}: expected one partition, such as orders:0")
        (tp,) = partitions
        (producers,) = or_raise(admin.describe_producers([tp])).values()
        found = next((each for each in producers if each.transaction_start == options.start), None)
        if found is None:
            raise CommandError(
                f"no transaction that begins at offset {options.start} is open in {tp}",
                then=f"`headwater txn producers {tp.topic}:{tp.partition}` shows what is open",
            )
        if options.yes:
            admin.abort_transaction(
                tp,
                producer_id=found.producer_id,
                producer_epoch=found.producer_epoch,
                coordinator_epoch=found.coordinator_epoch,
            )
    _print_hanging(options, tp, found)
    return 0


def _print_hanging(options: Namespace, tp: TopicPartition, found: ActiveProducer) -> None:
    if options.output == "json":
        print_json(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "start": options.start,
                "producer_id": found.producer_id,
                "producer_epoch": found.producer_epoch,
                "aborted": options.yes,
            }
        )
        return
    what = f"the transaction of producer {found.producer_id} in {tp} from offset {options.start}"
    if options.yes:
        print(f"{what}: aborted")
    else:
        print(f"{what} is open")
        print("\nnothing has changed yet: --yes aborts it there, whatever its coordinator says")
