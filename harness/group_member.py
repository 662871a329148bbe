"""One member of a group in a process of its own, which others may stop, pause or kill.

`python -m harness.group_member CLIENT BOOTSTRAP GROUP TOPIC NAME SESSION_MS` with CLIENT one of
`librdkafka` (classic), `librdkafka-consumer` (KIP-848), `kafka-python` and `aiokafka`. It reads,
commits what it has read, and prints a JSON object a line: what it was assigned and lost, and what
it has read. SIGTERM makes it leave.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import sys
from typing import Any

_stopping = False


def _stop(*_: object) -> None:
    global _stopping
    _stopping = True


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def run_librdkafka(
    bootstrap: str, group: str, topic: str, name: str, session_ms: int, *, modern: bool
) -> None:
    from confluent_kafka import Consumer, KafkaException

    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": name,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "log_level": 2,
    }
    if modern:
        config["group.protocol"] = "consumer"
    else:
        config |= {"session.timeout.ms": session_ms, "heartbeat.interval.ms": 500}
    consumer = Consumer(config)

    def on_assign(_: object, partitions: Any) -> None:
        say(assigned=[each.partition for each in partitions])

    def on_revoke(_: object, partitions: Any) -> None:
        say(revoked=[each.partition for each in partitions])

    consumer.subscribe([topic], on_assign=on_assign, on_revoke=on_revoke, on_lost=on_revoke)
    say(ready=name)
    while not _stopping:
        messages = [each for each in consumer.consume(500, timeout=0.1) if not each.error()]
        if messages:
            try:
                consumer.commit(asynchronous=False)
            except KafkaException as refused:
                say(refused=refused.args[0].name())
            else:
                say(read=[each.value().decode() for each in messages])
    consumer.close()


def run_kafka_python(bootstrap: str, group: str, topic: str, name: str, session_ms: int) -> None:
    from kafka import ConsumerRebalanceListener, KafkaConsumer
    from kafka.errors import KafkaError

    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=500,
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            generation = consumer._coordinator._generation.generation_id
            say(assigned=[each.partition for each in assigned], generation=generation)

        def on_partitions_revoked(self, revoked: Any) -> None:
            say(revoked=[each.partition for each in revoked])

    consumer.subscribe([topic], listener=Listener())
    # kafka-python 3.0.12 joins again if it led before it knew the topic, and forgets that it does
    # if a poll ends between its JoinGroup and its SyncGroup: it then sends no heartbeat ever again.
    # topics() gets it the metadata first.
    consumer.topics()
    say(ready=name)
    while not _stopping:
        read = [each for batch in consumer.poll(100).values() for each in batch]
        if read:
            try:
                consumer.commit()
            except KafkaError as refused:
                say(refused=type(refused).__name__)
            else:
                say(read=[each.value.decode() for each in read])
    with contextlib.suppress(KafkaError):
        consumer.close()


async def run_aiokafka(bootstrap: str, group: str, topic: str, name: str, session_ms: int) -> None:
    from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.errors import KafkaError

    consumer = AIOKafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=group,
        client_id=name,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=session_ms,
        heartbeat_interval_ms=500,
        partition_assignment_strategy=[RangePartitionAssignor],  # what others speak as well
    )

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_assigned(self, assigned: Any) -> None:
            say(assigned=[each.partition for each in assigned])

        def on_partitions_revoked(self, revoked: Any) -> None:
            say(revoked=[each.partition for each in revoked])

    consumer.subscribe([topic], listener=Listener())
    await consumer.start()
    say(ready=name)
    while not _stopping:
        batches = await consumer.getmany(timeout_ms=100)
        read = [each for batch in batches.values() for each in batch]
        if read:
            try:
                await consumer.commit()
            except KafkaError as refused:
                say(refused=type(refused).__name__)
            else:
                say(read=[each.value.decode() for each in read])
    await consumer.stop()


def main() -> None:
    signal.signal(signal.SIGTERM, _stop)
    client, bootstrap, group, topic, name, session = sys.argv[1:]
    if client == "kafka-python":
        run_kafka_python(bootstrap, group, topic, name, int(session))
    elif client == "aiokafka":
        asyncio.run(run_aiokafka(bootstrap, group, topic, name, int(session)))
    else:
        modern = client == "librdkafka-consumer"
        run_librdkafka(bootstrap, group, topic, name, int(session), modern=modern)


if __name__ == "__main__":
    main()
