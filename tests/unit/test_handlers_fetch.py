"""Fetch: what a reader gets, and when its wait ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from headwater import _core
from headwater.broker.context import Context, Later
from headwater.broker.fetch_sessions import FetchSessions
from headwater.broker.handlers import fetch
from headwater.broker.partition import Partition
from headwater.errors import ErrorCode
from headwater.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from headwater.storage import UNGUARDED, Origin
from tests.support.logs import NOW, TOPIC_ID, TP, batch, lead, marker, open_log, sent, settings

VERSION = 12
NEVER_MS = 3_600_000


class Bench:
    """One partition, led here, and the fetch handler."""

    def __init__(self, isr: tuple[int, ...] = (1,), **topic_settings: object) -> None:
        log = open_log(config=settings(**topic_settings))
        self.partition = Partition(TP, TOPIC_ID, log, SimpleNamespace(), high_watermark=0)
        lead(self.partition, epoch=1, isr=isr, replicas=isr)
        self.broker: Any = SimpleNamespace(
            partitions=SimpleNamespace(get=lambda topic, index: self.partition),
            authorizer=None,
            config=SimpleNamespace(fetch_max_bytes=1 << 20),
            clock=SimpleNamespace(monotonic=lambda: 0.0),
            fetch_sessions=FetchSessions(10, Random(1)),
        )

    def append(self, data: bytearray) -> None:
        self.partition.append(data, acks=1, now_ms=NOW, origin=Origin.COORDINATOR, guard=UNGUARDED)

    def fetch(self, offset: int, **more: Any) -> Later:
        request = FetchRequest(
            max_wait_ms=more.pop("max_wait_ms", NEVER_MS),
            min_bytes=more.pop("min_bytes", 1),
            isolation_level=more.pop("isolation_level", fetch.READ_COMMITTED),
            session_epoch=-1,
            topics=[
                FetchTopic(
                    topic=TP.topic,
                    partitions=[
                        FetchPartition(
                            partition=TP.partition,
                            fetch_offset=offset,
                            partition_max_bytes=more.pop("bytes_max", 1 << 20),
                        )
                    ],
                )
            ],
        )
        connection: Any = SimpleNamespace(on_gone={}, on_next=None)
        handled: Any = fetch.handle(self.broker, Context(connection, VERSION, "test"), request)
        if isinstance(handled, Later):
            return handled
        answer = Later()
        answer.answer(handled)
        return answer


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await story()

    asyncio.run(main())


async def turns() -> None:
    """Lets everything happen that is due now."""
    for _ in range(5):
        await asyncio.sleep(0)


def only(response: FetchResponse) -> PartitionData:
    (topic,) = response.responses
    (data,) = topic.partitions
    return data


def offsets(data: PartitionData) -> list[int]:
    found: Any = data.records
    return [each.base_offset for each in _core.scan(found)[0]] if len(found) else []


def test_an_open_transaction_does_not_wake_readers_of_committed_records() -> None:
    async def story() -> None:
        bench = Bench()
        bench.append(sent(7, 0, transactional=True))
        fetched = bench.fetch(0)
        for sequence in range(1, 4):
            bench.append(sent(7, sequence, transactional=True))
            bench.append(batch(b"of another producer"))
            await turns()
            assert not fetched.is_answered
        bench.append(marker(7, abort=False))
        assert offsets(only(await fetched)) == list(range(8))

    run(story)


def test_without_a_transaction_the_next_batch_ends_the_wait() -> None:
    async def story() -> None:
        bench = Bench()
        fetched = bench.fetch(0)
        bench.append(batch(b"plain"))
        assert offsets(only(await fetched)) == [0]

    run(story)


def test_only_what_is_decided_counts_for_min_bytes() -> None:
    async def story() -> None:
        bench = Bench()
        size = len(batch(b"x"))
        fetched = bench.fetch(0, min_bytes=3 * size)
        bench.append(batch(b"x"))
        bench.append(sent(7, 0, transactional=True))
        bench.append(batch(b"x" * 3 * size))
        await turns()
        assert not fetched.is_answered
        bench.append(sent(8, 0, transactional=True))
        bench.append(marker(7, abort=False))
        # The second transaction holds back all from its first record on.
        assert offsets(only(await fetched)) == [0, 1, 2]

    run(story)


def test_a_wait_ends_in_time_with_what_is_decided() -> None:
    async def story() -> None:
        bench = Bench()
        bench.append(batch(b"x"))
        bench.append(sent(7, 0, transactional=True))
        data = only(await bench.fetch(0, min_bytes=1 << 19, max_wait_ms=1))
        assert offsets(data) == [0]
        assert data.last_stable_offset == 1

    run(story)


def test_the_aborted_transactions_are_those_of_the_slice() -> None:
    async def story() -> None:
        bench = Bench(index_interval_bytes=1)
        for producer in range(20):
            bench.append(sent(producer, 0, transactional=True))
            bench.append(marker(producer, abort=True))
        whole = only(await bench.fetch(0))
        assert [each.producer_id for each in whole.aborted_transactions or ()] == list(range(20))
        data = only(await bench.fetch(10, bytes_max=3 * len(marker(0, abort=True))))
        assert set(offsets(data)) >= {10, 11}
        found = [each.producer_id for each in data.aborted_transactions or ()]
        assert found[0] == 5
        assert len(found) <= 3

    run(story)


def test_what_is_not_replicated_yet_is_neither_read_nor_out_of_range() -> None:
    """A new leader's high watermark lags: consumers that read further before must not reset."""

    async def story() -> None:
        bench = Bench(isr=(1, 2))
        for _ in range(3):
            bench.append(batch(b"x"))
        assert bench.partition.high_watermark == 0
        for offset, code in ((0, 0), (2, 0), (3, 0), (4, ErrorCode.OFFSET_OUT_OF_RANGE)):
            data = only(await bench.fetch(offset, max_wait_ms=0, isolation_level=0))
            assert (data.error_code, offsets(data)) == (code, [])

    run(story)


def test_an_unknown_isolation_level_is_refused() -> None:
    async def story() -> None:
        bench = Bench()
        bench.append(sent(7, 0, transactional=True))
        data = only(await bench.fetch(0, isolation_level=5))
        assert (data.error_code, data.high_watermark) == (ErrorCode.INVALID_REQUEST, -1)
        assert not data.records

    run(story)
