"""Processes that use transactions and are killed for it: tellers, which move money between
accounts, and copiers, which are members of a group and write on what they read.

    python -m harness.transaction_workers teller|librdkafka-teller BOOTSTRAP NAME
    python -m harness.transaction_workers copier BOOTSTRAP NAME classic|consumer

Each prints a line for every transaction whose commit was acknowledged: a teller the names of its
transfers. The name is the transactional id. What a worker cannot go on after ends it.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import sys
import traceback
from typing import Any

from headwater import AbortableError, CommitOutcomeUnknown, Consumer, Producer, exactly_once

ACCOUNTS, NUMBERS, COPIES = "accounts", "numbers", "copies"
PARTITIONS = 3
GROUP = "copiers"
# How a worker ends whose producer cannot go on. librdkafka's cannot if a coordinator knows nothing
# of what it aborts: with version 1 that is refused.
FATAL = 3
_PATIENCE = 120.0
_RECORDS_MAX = 20


def transfer() -> tuple[str, list[tuple[int, str]]]:
    """Returns a transfer between two accounts: its name, and what is written to which partition."""
    name = os.urandom(8).hex()
    giver, taker = random.sample(range(PARTITIONS), 2)
    amount = random.randint(1, 100)
    return name, [(giver, f"{name} {-amount}"), (taker, f"{name} {amount}")]


def report(done: object) -> None:
    print(done, flush=True)


# Our clients


async def teller(bootstrap: str, name: str) -> None:
    async with Producer(bootstrap, transactional_id=name, linger_ms=1) as producer:
        for number in itertools.count():
            done, entries = transfer()
            await producer.begin_transaction()
            for partition, entry in entries:
                producer.submit(ACCOUNTS, entry, partition=partition)
            try:
                if number % 5 == 4:
                    await producer.flush()
                    await producer.abort_transaction()
                    continue
                await _commit(producer)
            except AbortableError:
                await producer.abort_transaction()
            else:
                report(done)


async def _commit(producer: Producer) -> None:
    while True:
        try:
            return await producer.commit_transaction()
        except CommitOutcomeUnknown:
            continue


async def copier(bootstrap: str, name: str, protocol: Any) -> None:
    classic: dict[str, Any] = {"session_timeout_ms": 6000} if protocol == "classic" else {}
    async with (
        Consumer(
            bootstrap,
            group=GROUP,
            topics=[NUMBERS],
            group_protocol=protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            **classic,
        ) as consumer,
        Producer(bootstrap, transactional_id=name, linger_ms=1) as producer,
    ):
        async for batch in exactly_once(consumer, producer, records_max=_RECORDS_MAX):
            for record in batch:
                producer.submit(COPIES, record.value, partition=record.partition)
            try:
                await batch.commit()
            except AbortableError:
                continue  # the group has gone on without it, for one; the batch is read again
            report(len(batch))


# librdkafka


def librdkafka_teller(bootstrap: str, name: str) -> None:
    from confluent_kafka import KafkaException

    producer = _librdkafka_producer(bootstrap, name)
    for number in itertools.count():
        done, entries = transfer()
        producer.begin_transaction()
        try:
            for partition, entry in entries:
                producer.produce(ACCOUNTS, entry, partition=partition)
            if number % 5 == 4:
                producer.flush(_PATIENCE)
                producer.abort_transaction(_PATIENCE)
                continue
            _librdkafka_commit(producer)
        except KafkaException as error:
            _librdkafka_abort(producer, error)
        else:
            report(done)


def _librdkafka_producer(bootstrap: str, name: str) -> Any:
    from confluent_kafka import KafkaException
    from confluent_kafka import Producer as RdProducer

    producer = RdProducer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": name,
            "linger.ms": 1,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    while True:
        try:
            producer.init_transactions(_PATIENCE)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
        else:
            return producer


def _librdkafka_commit(producer: Any) -> None:
    from confluent_kafka import KafkaException

    while True:
        try:
            producer.commit_transaction(_PATIENCE)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def _librdkafka_abort(producer: Any, error: Any) -> None:
    """Aborts, if that is what the error asks for, or if the call took too long."""
    from confluent_kafka import KafkaException

    if not (error.args[0].txn_requires_abort() or error.args[0].retriable()):
        raise error
    while True:
        try:
            producer.abort_transaction(_PATIENCE)
            return
        except KafkaException as again:
            if not again.args[0].retriable():
                raise


def main() -> None:
    kind, bootstrap, name, *more = sys.argv[1:]
    if kind == "teller":
        asyncio.run(teller(bootstrap, name))
    elif kind == "copier":
        asyncio.run(copier(bootstrap, name, *more))
    else:
        try:
            librdkafka_teller(bootstrap, name)
        except BaseException:
            traceback.print_exc()
            os._exit(FATAL)  # a producer that is destroyed may wait for its brokers for ever


if __name__ == "__main__":
    main()
