"""Those who use transactions in a cluster's history, with our own clients.

A transactional producer that commits and aborts by chance, sometimes one of two with the same
transactional id; members of a group that consume, transform and produce; readers of committed data;
and a plain producer between them. What each does and hears goes to the checker at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import aclosing
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headwater.client.consumer import Consumer
from headwater.client.errors import (
    AbortableError,
    ClientError,
    CommitOutcomeUnknown,
    RetriableError,
)
from headwater.client.exactly_once import TransactionBatch, exactly_once
from headwater.client.producer import Producer, RecordMetadata
from headwater.io import Host
from headwater.model import TopicPartition
from headwater.testing.sim.checker import Outcome
from headwater.testing.sim.fleet import Fleet
from headwater.testing.sim.transaction_checker import Anomaly, TransactionChecker, Txn
from headwater.testing.sim.violation import Violation

PIPELINE = "pipeline"
_CLOSE_MS = 5_000
_END_ATTEMPTS_MAX = 6
_HOPS_MAX = 2


class Desk:
    """Takes what clients tell, and keeps the first violation for the history: callbacks run inside
    a client, which takes what they raise for a mistake of theirs."""

    def __init__(self, fleet: Fleet, partitions: list[TopicPartition]) -> None:
        self.fleet = fleet
        self.partitions = partitions
        self.checker = TransactionChecker()
        self.violation: Violation | None = None
        self.committed = 0
        self.read = 0

    def judge(self, anomalies: Iterable[Anomaly]) -> None:
        found = list(anomalies)
        if found:
            violation = self.fleet.fail("; ".join(map(str, found[:3])))
            self.violation = self.violation or violation
            raise violation

    def note(self, what: str) -> None:
        self.fleet.world.note(what)

    def end(self, txn: Txn, outcome: Outcome) -> None:
        if txn.outcome is not Outcome.INVOKE:
            return
        self.note(f"{txn.name} ends: {outcome.value}")
        self.fleet.world.happened(f"transaction {outcome.value}")
        self.committed += outcome is Outcome.OK
        self.judge(self.checker.end(txn, outcome))

    def send(self, producer: Producer, txn: Txn, tp: TopicPartition, value: str) -> None:
        name = f"{tp.topic}-{tp.partition}"
        self.checker.write(txn, name, value)

        def delivered(metadata: RecordMetadata | None, error: ClientError | None) -> None:
            if metadata is not None and metadata.offset >= 0:
                self.judge(self.checker.acknowledged(name, metadata.offset, value))

        producer.submit(tp.topic, value, partition=tp.partition, on_delivery=delivered)

    def take(self, reader: str, records: Iterable[Any]) -> None:
        for record in records:
            self.read += 1
            name = f"{record.topic}-{record.partition}"
            value = bytes(record.value).decode()
            self.judge(self.checker.poll(reader, name, [(record.offset, value)]))


def draw_settings(random: Random) -> dict[str, Any]:
    return {
        "linger_ms": random.choice((0, 5, 50)),
        "transaction_timeout_ms": random.choice((3_000, 8_000, 20_000)),
        "request_timeout_ms": random.choice((1_500, 4_000)),
        "delivery_timeout_ms": random.choice((6_000, 20_000)),
        "max_block_ms": random.choice((3_000, 10_000)),
    }


async def commit(desk: Desk, producer: Producer, txn: Txn) -> None:
    """Commits, and asks again while the outcome is unknown."""
    desk.checker.ask(txn)
    for attempt in range(_END_ATTEMPTS_MAX):
        try:
            await producer.commit_transaction()
            break
        except CommitOutcomeUnknown:
            desk.fleet.world.happened("commit with an unknown outcome")
            if attempt == _END_ATTEMPTS_MAX - 1:
                raise
    desk.end(txn, Outcome.OK)


async def abort(desk: Desk, producer: Producer, txn: Txn) -> None:
    """Aborts what cannot be committed any more, whatever the abort says."""
    desk.end(txn, Outcome.FAIL)
    for attempt in range(_END_ATTEMPTS_MAX):
        try:
            await producer.abort_transaction()
            return
        except RetriableError:
            if attempt == _END_ATTEMPTS_MAX - 1:
                raise


@dataclass(slots=True)
class TransactionalActor:
    desk: Desk
    name: str
    random: Random
    transactional_id: str
    settings: dict[str, Any] = field(default_factory=dict)
    _lives: int = 0
    _values: int = 0

    async def run(self, host: Host) -> None:
        desk, random = self.desk, self.random
        self.settings = draw_settings(random)
        while True:
            self._lives += 1
            process = f"{self.name}.{self._lives}"
            producer = Producer(
                desk.fleet.bootstrap,
                host=host,
                client_id=process,
                transactional_id=self.transactional_id,
                **self.settings,
            )
            try:
                await producer.start()
                for number in range(random.choice((2, 8, 100))):
                    await asyncio.sleep(random.random() * 0.6)
                    await self._transact(producer, f"{process}:{number}")
            except ClientError as error:
                desk.note(f"{process} fails: {type(error).__name__}: {error}")
                desk.fleet.world.happened(f"{type(error).__name__} of a transactional producer")
                await asyncio.sleep(random.random() * 2.0)
            finally:
                try:
                    await producer.close(timeout_ms=_CLOSE_MS)
                except ClientError as error:
                    desk.note(f"{process} closes with {type(error).__name__}")

    async def _transact(self, producer: Producer, name: str) -> None:
        desk, random = self.desk, self.random
        txn = desk.checker.begin(name)
        try:
            await producer.begin_transaction()
            for _ in range(random.choice((1, 2, 3, 5))):
                tp = random.choice(desk.partitions)
                self._values += 1
                desk.send(producer, txn, tp, f"0/{self.name}:{self._values}")
                if random.random() < 0.3:
                    await asyncio.sleep(random.random() * 0.5)
            if random.random() < 0.03:
                await asyncio.sleep(12.0)  # too long for some timeouts
            if random.random() < 0.25:
                if random.random() < 0.5:
                    await producer.flush()
                await abort(desk, producer, txn)
            else:
                await commit(desk, producer, txn)
        except AbortableError:
            await abort(desk, producer, txn)
        except ClientError:
            desk.end(txn, Outcome.UNKNOWN if txn.is_asked else Outcome.FAIL)
            raise


@dataclass(slots=True)
class PlainActor:
    """Writes records without transactions to the same partitions: each is committed at once."""

    desk: Desk
    name: str
    random: Random
    _lives: int = 0
    _values: int = 0

    async def run(self, host: Host) -> None:
        desk, random = self.desk, self.random
        while True:
            self._lives += 1
            process = f"{self.name}.{self._lives}"
            producer = Producer(
                desk.fleet.bootstrap, host=host, client_id=process, request_timeout_ms=3_000
            )
            try:
                await producer.start()
                while True:
                    await asyncio.sleep(random.random() * 2.0)
                    self._values += 1
                    value = f"0/{self.name}:{self._values}"
                    txn = desk.checker.begin(value)
                    desk.checker.ask(txn)
                    desk.send(producer, txn, random.choice(desk.partitions), value)
                    await producer.flush()
            except ClientError as error:
                desk.note(f"{process} fails: {type(error).__name__}: {error}")
                await asyncio.sleep(1.0)
            finally:
                await producer.close(timeout_ms=_CLOSE_MS)


class _Abandoned(Exception):
    """The body of a loop gives up."""


@dataclass(slots=True)
class PipelineActor:
    """Consumes, transforms and produces exactly once, in a ring: what it has read with fewer hops
    goes to one of the same partitions again."""

    desk: Desk
    name: str
    random: Random
    protocol: str
    settled: bool = False  # it gives up no more, and is as quick as it can be
    _lives: int = 0
    _values: int = 0
    _batches: int = 0

    async def run(self, host: Host) -> None:
        desk, random = self.desk, self.random
        settings = draw_settings(random)
        while True:
            self._lives += 1
            process = f"{self.name}.{self._lives}"
            producer = Producer(
                desk.fleet.bootstrap,
                host=host,
                client_id=process,
                transactional_id=self.name,
                **settings,
            )
            group: dict[str, Any] = {"group_protocol": self.protocol}
            if self.protocol == "classic":
                group |= {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 2_000}
                group["max_poll_interval_ms"] = 30_000
            consumer: Consumer[bytes, bytes] = Consumer(
                desk.fleet.bootstrap,
                group=PIPELINE,
                topics=sorted({tp.topic for tp in desk.partitions}),
                host=host,
                client_id=process,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                request_timeout_ms=4_000,
                default_api_timeout_ms=10_000,
                **group,
            )
            try:
                await producer.start()
                await consumer.start()
                while True:
                    try:
                        await self._loop(consumer, producer, process)
                    except _Abandoned:
                        desk.fleet.world.happened("a batch was given up")
            except ClientError as error:
                desk.note(f"{process} fails: {type(error).__name__}: {error}")
                desk.fleet.world.happened(f"{type(error).__name__} of a pipeline")
                await asyncio.sleep(random.random() * 2.0)
            finally:
                for client in (consumer, producer):
                    try:
                        await client.close(timeout_ms=_CLOSE_MS)
                    except ClientError as error:
                        desk.note(f"{process} closes with {type(error).__name__}")

    async def _loop(
        self, consumer: Consumer[bytes, bytes], producer: Producer, process: str
    ) -> None:
        desk, random = self.desk, self.random
        records_max = random.choice((1, 5, 50))
        previous: Txn | None = None
        try:
            async with aclosing(
                exactly_once(consumer, producer, records_max=records_max)
            ) as batches:
                async for batch in batches:
                    if previous is not None:
                        # Committed, or aborted and read again: only the records can tell.
                        desk.end(previous, Outcome.UNKNOWN)
                    self._batches += 1
                    previous = txn = desk.checker.begin(f"{process}:{self._batches}", PIPELINE)
                    await self._transform(producer, txn, batch)
        except BaseException:
            if previous is not None:
                desk.end(previous, Outcome.UNKNOWN if previous.is_asked else Outcome.FAIL)
            raise

    async def _transform(
        self, producer: Producer, txn: Txn, batch: TransactionBatch[bytes, bytes]
    ) -> None:
        desk, random = self.desk, self.random
        for record in batch:
            value = bytes(record.value).decode()
            name = f"{record.topic}-{record.partition}"
            desk.take(txn.name, [record])
            desk.checker.process(txn, name, record.offset, value)
            hops = int(value.partition("/")[0])
            if hops < _HOPS_MAX:
                self._values += 1
                out = f"{hops + 1}/{self.name}:{self._values}"
                desk.send(producer, txn, random.choice(desk.partitions), out)
        if random.random() < 0.2 and not self.settled:
            await asyncio.sleep(random.random() * 2.0)
        if random.random() < 0.1 and not self.settled:
            raise _Abandoned
        desk.checker.ask(txn)
        if random.random() < 0.7:
            try:
                await batch.commit()
            except AbortableError:
                desk.end(txn, Outcome.FAIL)
            else:
                desk.end(txn, Outcome.OK)


@dataclass(slots=True)
class CommittedReader:
    """Reads committed data of all partitions, now and then from the beginning again."""

    desk: Desk
    name: str
    random: Random
    _lives: int = 0

    async def run(self, host: Host) -> None:
        desk, random = self.desk, self.random
        while True:
            self._lives += 1
            process = f"{self.name}.{self._lives}"
            consumer = committed_reader(
                desk, host, process, fetch_max_bytes=random.choice((200, 50_000))
            )
            try:
                await consumer.start()
                consumer.assign(desk.partitions)
                for _ in range(random.choice((5, 20, 60))):
                    await asyncio.sleep(random.random() * 0.5)
                    desk.take(process, await consumer.poll(timeout_ms=500))
            except ClientError as error:
                desk.note(f"{process} fails: {type(error).__name__}: {error}")
                await asyncio.sleep(1.0)
            finally:
                await consumer.close(timeout_ms=_CLOSE_MS)


def committed_reader(
    desk: Desk, host: Host, process: str, **settings: Any
) -> Consumer[bytes, bytes]:
    return Consumer(
        desk.fleet.bootstrap,
        host=host,
        client_id=process,
        auto_offset_reset="earliest",
        isolation_level="read_committed",
        request_timeout_ms=5_000,
        **settings,
    )
