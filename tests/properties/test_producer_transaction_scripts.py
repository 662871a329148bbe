"""Random scripts of transactions against a coordinator that loses requests and replies.

Whatever happens: what a successful commit wrote is seen, once, with its offsets; what was aborted
or refused is never seen; and a transaction whose outcome is unknown is seen whole or not at all.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from random import Random

import pytest

from headwater import (
    AbortableError,
    ClientError,
    CommitOutcomeUnknown,
    FatalError,
    Producer,
    RetriableError,
    TopicPartition,
)
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from tests.support.fake_coordinator import LOSE_REPLY, LOSE_REQUEST, TOPIC, FakeCoordinator

_FOR_ALL = (
    LOSE_REQUEST,
    LOSE_REPLY,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
)
_FOR_RECORDS = (
    LOSE_REQUEST,
    LOSE_REPLY,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
)
_FOR_OFFSETS = (*_FOR_ALL, ErrorCode.ILLEGAL_GENERATION, ErrorCode.TRANSACTION_ABORTABLE)
_PATIENCE_SECONDS = 60.0


class Script:
    """Transactions of one producer by a seed, and what may be seen of each."""

    def __init__(self, seed: int, broker: FakeCoordinator) -> None:
        self.random = Random(seed)
        self.broker = broker
        self.must: dict[int, list[bytes]] = {}
        self.may: dict[int, list[bytes]] = {}
        self.never: dict[int, list[bytes]] = {}
        self.happened: Counter[str] = Counter()

    def fault(self, key: ApiKey) -> int:
        if self.random.random() > 0.15:
            return 0
        match key:
            case ApiKey.PRODUCE:
                return self.random.choice(_FOR_RECORDS)
            case ApiKey.TXN_OFFSET_COMMIT:
                return self.random.choice(_FOR_OFFSETS)
            case _:
                return self.random.choice(_FOR_ALL)

    async def run(self, producer: Producer, transactions: int) -> None:
        self.broker.fault = self.fault
        for number in range(transactions):
            await self._until_answered(producer.begin_transaction)
            values = [f"{number}.{i}".encode() for i in range(self.random.randint(0, 6))]
            try:
                await self._write(producer, number, values)
                await self._end(producer, number, values)
            except AbortableError:
                self.happened["spoilt"] += 1
                self.never[number] = values
                await self._until_answered(producer.abort_transaction)

    async def _write(self, producer: Producer, number: int, values: list[bytes]) -> None:
        for value in values:
            partition = self.random.randrange(3)
            if self.random.random() < 0.3:
                try:
                    await producer.send(TOPIC, value, partition=partition)
                except FatalError:
                    raise
                except ClientError as error:
                    raise AbortableError(str(error)) from error
            else:
                producer.submit(TOPIC, value, partition=partition)
        if self.random.random() < 0.5:
            await producer.send_offsets({TopicPartition("in", 0): number + 1}, "group")

    async def _end(self, producer: Producer, number: int, values: list[bytes]) -> None:
        if self.random.random() < 0.3:
            self.never[number] = values
            self.happened["aborted"] += 1
            await self._until_answered(producer.abort_transaction)
            return
        self.may[number] = values
        try:
            await producer.commit_transaction()
        except CommitOutcomeUnknown:
            self.happened["unknown"] += 1
            with pytest.raises(ClientError, match="commit again"):
                await producer.abort_transaction()
            await self._until_answered(producer.commit_transaction)
        except AbortableError:
            del self.may[number]
            raise
        self.happened["committed"] += 1
        self.must[number] = self.may.pop(number)

    async def _until_answered(self, call: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await call()
                return
            except RetriableError:
                self.happened["asked again"] += 1

    def judge(self) -> None:
        seen = Counter(self.broker.visible)
        assert max(seen.values(), default=1) == 1, "a record was written twice"
        expected = {value for values in self.must.values() for value in values}
        assert set(seen) == expected
        assert not seen.keys() & {value for values in self.never.values() for value in values}
        stored = self.broker.offsets.get(("in", 0), 0)
        assert stored == 0 or stored - 1 in self.must
        assert not self.broker.ongoing
        assert not self.may


async def _started(broker: FakeCoordinator, seed: int) -> Producer:
    """Returns a producer; with a short patience it may take several to begin on a busy machine."""
    while True:
        producer = Producer(
            broker.bootstrap,
            transactional_id="t",
            retry_backoff_ms=1,
            retry_backoff_max_ms=4,
            reconnect_backoff_ms=1,
            reconnect_backoff_max_ms=4,
            max_block_ms=40 if seed % 3 == 0 else 10_000,
            start_timeout_ms=20_000,
        )
        with suppress(RetriableError):
            await producer.start()
            return producer


@pytest.mark.parametrize("uses_v2", [True, False], ids=["v2", "v1"])
@pytest.mark.parametrize("seed", range(12))
def test_every_transaction_is_seen_whole_or_not_at_all(seed: int, uses_v2: bool) -> None:
    async def run() -> Script:
        async with FakeCoordinator(uses_v2=uses_v2) as broker:
            script = Script(seed, broker)
            producer = await _started(broker, seed)
            try:
                await script.run(producer, 25)
            finally:
                await producer.close()
            script.judge()
            return script

    async def bounded() -> Script:
        async with asyncio.timeout(_PATIENCE_SECONDS):
            return await run()

    script = asyncio.run(bounded())
    assert script.happened["committed"] > 3
    assert script.happened["aborted"] + script.happened["spoilt"] > 1
