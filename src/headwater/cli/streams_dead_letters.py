"""`headwater streams replay-dead-letters`: sends dead letters to the topics that they came from.

They are sent as the records that they were, without the headers that say why they failed. Records
and the position in the dead-letter topic are one transaction, so that each letter is replayed once,
however often the command is called.
"""

from __future__ import annotations

from argparse import Namespace
from collections import Counter
from typing import TYPE_CHECKING, Any

from headwater.cli.connection import CLIENT_ID, cluster_of, explained_errors
from headwater.cli.errors import CommandError
from headwater.cli.output import plural, print_json, print_table
from headwater.cli.streams import app_status

if TYPE_CHECKING:
    from headwater.blocking import Consumer
    from headwater.model import TopicPartition

_OURS = "headwater."
_AT_ONCE = 500


def replay(options: Namespace) -> int:
    from headwater.blocking import Consumer, Producer
    from headwater.client.errors import UnknownTopic
    from headwater.spark.dead_letters import REASON, TOPIC

    status = app_status(options)
    letters = status.dead_letters
    if letters is None:
        raise CommandError(f"app {status.name} has no dead letters")
    group = f"{letters}.replay"
    sent: Counter[tuple[str, str]] = Counter()
    skipped = 0
    with explained_errors():
        cluster = cluster_of(options)
        common: dict[str, Any] = {"config": cluster.settings, "client_id": CLIENT_ID}
        with Consumer(
            cluster.bootstrap,
            group=group,
            isolation_level="read_committed",
            allow_auto_create_topics=False,
            enable_auto_commit=False,
            **common,
        ) as consumer:
            try:
                partitions = consumer.partitions_for(letters)
            except UnknownTopic:
                raise CommandError(f"there is no topic {letters}") from None
            ends = _begin(consumer, partitions)
            with Producer(cluster.bootstrap, transactional_id=group, **common) as producer:
                limit = options.records_max
                while any(consumer.position(each) < ends[each] for each in partitions):
                    room = _AT_ONCE if limit is None else min(_AT_ONCE, limit - sum(sent.values()))
                    if room <= 0:
                        break
                    records = consumer.poll(timeout_ms=1000, records_max=room)
                    if not records:
                        continue
                    replayed = []
                    for record in records:
                        headers = {name: value or b"" for name, value in record.headers}
                        topic = headers.get(TOPIC, b"").decode()
                        if not topic:  # it was made of several records: there is none to replay
                            skipped += 1
                            continue
                        reason = headers.get(REASON, b"").decode(errors="replace")
                        sent[topic, reason] += 1
                        own = [each for each in record.headers if not each[0].startswith(_OURS)]
                        replayed.append((topic, record, own))
                    if not options.yes:
                        continue
                    with producer.transaction() as transaction:
                        for topic, record, own in replayed:
                            producer.submit(
                                topic,
                                record.value,
                                key=record.key,
                                headers=own,
                                timestamp=record.timestamp,
                            )
                        transaction.send_offsets(consumer.positions(), group)
    _report(options, status.name, sent, skipped)
    return 0


def _begin(
    consumer: Consumer[Any, Any], partitions: list[TopicPartition]
) -> dict[TopicPartition, int]:
    """Goes to where the last replay ended; returns where the topic ends now."""
    consumer.assign(partitions)
    known = consumer.committed(*partitions)
    for each in partitions:
        before = known.get(each)
        if before is None:
            consumer.seek_to_beginning(each)
        else:
            consumer.seek(each, before.offset)
    return dict(consumer.end_offsets(*partitions))


def _report(options: Namespace, app: str, sent: Counter[tuple[str, str]], skipped: int) -> None:
    total = sum(sent.values())
    if options.output == "json":
        topics: Counter[str] = Counter()
        for (topic, _), count in sent.items():
            topics[topic] += count
        print_json(
            {"app": app, "topics": dict(topics), "skipped": skipped, "replayed": options.yes}
        )
        return
    if not total:
        print(f"app {app} has no dead letters that were not replayed")
    elif options.yes:
        print(f"replayed {plural(total, 'dead letter')}")
    else:
        rows = [(topic, count, reason) for (topic, reason), count in sorted(sent.items())]
        print_table(("topic", "records", "reason"), rows, output=options.output)
        print("\nnothing was sent yet: --yes sends them")
    if skipped:
        print(f"left out {plural(skipped, 'letter')} that no single record stands for")
