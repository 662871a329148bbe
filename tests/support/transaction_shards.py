"""A shard of the transaction coordinator with its log, driven as its driver would do it.

Every record goes through its bytes, and after every decision a shard that has only read the log
must equal the living one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from headwater.coordination import Decision, Note, Record, Token
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol import Message, decode, encode
from headwater.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headwater.protocol.messages.describe_transactions import TransactionState
from headwater.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headwater.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.protocol.records.transactions import TransactionLogKey, TransactionLogValue
from headwater.transactions.settings import TransactionSettings
from headwater.transactions.shard import GetProducerId, SendMarkers, TransactionShard
from headwater.transactions.transaction import Identity, NeedsProducerId, value_version

R = TypeVar("R", bound=Message)

ID = "payments"
START_MS = 1_700_000_000_000
FIRST_PRODUCER_ID = 1000
OFFSETS = TopicPartition("__consumer_offsets", 7)


def tps(text: str) -> list[TopicPartition]:
    """`orders:0,1 stock:2` as partitions."""
    return [
        TopicPartition(topic, int(index))
        for part in text.split()
        for topic, _, indexes in (part.partition(":"),)
        for index in indexes.split(",")
    ]


class TransactionDesk:
    """Asks a shard, keeps its log, and holds the markers that it wants to be written."""

    def __init__(self, settings: TransactionSettings | None = None) -> None:
        self.settings = settings or TransactionSettings()
        self.now = 1000.0
        self.log: list[tuple[str, int, bytes | None]] = []  # id, version of the value, value
        self.markers: list[SendMarkers] = []
        self.notes: list[Note] = []
        self.written: list[Record] = []  # by the latest decision
        self.wanted_ids = 0
        self.next_producer_id = FIRST_PRODUCER_ID
        self._tokens = 0
        self.shard = TransactionShard(self.settings)
        self.shard.on_loaded(self.now)
        self.twin = TransactionShard(self.settings)  # has only read the log

    @property
    def now_ms(self) -> int:
        return START_MS + round(self.now * 1000)

    # The driver's part

    def new_id(self) -> int:
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def ask(self, decide: Callable[[Token, int | None], Decision], response: type[R]) -> R:
        """Returns the one reply of a decision, with a new producer id if it needs one."""
        self._tokens += 1
        try:
            decision = decide(self._tokens, None)
        except NeedsProducerId:
            decision = decide(self._tokens, self.new_id())
        self.carry_out(decision)
        ((token, message),) = decision.replies
        assert token == self._tokens
        assert isinstance(message, response)
        return message

    def carry_out(self, decision: Decision) -> None:
        self.written = list(decision.records)
        for record in decision.records:
            assert isinstance(record.key, TransactionLogKey)
            value = record.value
            if value is None:
                self.log.append((record.key.transactional_id, 0, None))
            else:
                assert isinstance(value, TransactionLogValue)
                version = value_version(value)
                row = (record.key.transactional_id, version, encode(value, version))
                self.log.append(row)
            for shard in (self.shard, self.twin):
                shard.apply(self._record(len(self.log) - 1), offset=len(self.log) - 1)
        self.notes.extend(decision.notes)
        for effect in decision.effects:
            if isinstance(effect, SendMarkers):
                self.markers.append(effect)
            else:
                assert effect == GetProducerId()
                self.wanted_ids += 1
        if decision.records:
            assert self.twin.durable_state() == self.shard.durable_state()

    def _record(self, offset: int) -> Record:
        transactional_id, version, data = self.log[offset]
        value = None if data is None else decode(TransactionLogValue, data, version, 0)
        return Record(TransactionLogKey(transactional_id=transactional_id), value)

    def replayed(self) -> TransactionShard:
        shard = TransactionShard(self.settings)
        for offset in range(len(self.log)):
            shard.apply(self._record(offset), offset=offset)
        return shard

    def restart(self) -> None:
        """Another broker loads the shard. Markers that are under way report to the old one."""
        assert self.replayed().durable_state() == self.shard.durable_state()
        self._load()

    def _load(self) -> None:
        self.shard, self.twin = self.replayed(), self.replayed()
        self.markers = []
        self.carry_out(self.shard.on_loaded(self.now))
        self.tick()

    def load(self, value: TransactionLogValue, *, name: str = ID) -> None:
        """Starts with a log that has this record."""
        version = value_version(value)
        self.log.append((name, version, encode(value, version)))
        self._load()

    def set_version(self, transaction_version: int) -> None:
        self.settings = TransactionSettings(transaction_version=transaction_version)
        self.shard.on_settings(self.settings)

    def tick(self) -> None:
        while self.shard.next_deadline() <= self.now:
            self.carry_out(self.shard.on_tick(self.now, self.now_ms))

    def advance(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.shard.next_deadline()) <= end:
            self.now = max(due, self.now)
            self.tick()
        self.now = end

    # Requests

    def init(
        self,
        expected: Identity | tuple[int, int] | None = None,
        *,
        name: str = ID,
        timeout_ms: int = 60_000,
        version: int = 5,
        enable_2pc: bool = False,
        keep: bool = False,
    ) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=name,
            transaction_timeout_ms=timeout_ms,
            producer_id=expected[0] if expected else -1,
            producer_epoch=expected[1] if expected else -1,
            enable_2pc=enable_2pc,
            keep_prepared_txn=keep,
        )
        return self.ask(
            lambda token, new_id: self.shard.decide_init(
                token,
                request,
                version=version,
                new_producer_id=new_id,
                now=self.now,
                now_ms=self.now_ms,
            ),
            InitProducerIdResponse,
        )

    def start(self, *, name: str = ID, timeout_ms: int = 60_000) -> Identity:
        """Initializes an id, aborting what is open, as a client does; returns who it is."""
        while True:
            response = self.init(name=name, timeout_ms=timeout_ms)
            if response.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:
                self.write_markers()
                continue
            assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
            return Identity(response.producer_id, response.producer_epoch)

    def add(
        self,
        client: tuple[int, int],
        partitions: str = "orders:0",
        *,
        name: str = ID,
        version: int = 5,
        verify: bool = False,
    ) -> ErrorCode | dict[TopicPartition, ErrorCode]:
        """Adds or verifies partitions; returns the code that all have, or each one's."""
        topics: dict[str, list[int]] = {}
        for topic, index in tps(partitions):
            topics.setdefault(topic, []).append(index)
        request = AddPartitionsToTxnTransaction(
            transactional_id=name,
            producer_id=client[0],
            producer_epoch=client[1],
            verify_only=verify,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes)
                for name, indexes in topics.items()
            ],
        )
        result = self.ask(
            lambda token, _: self.shard.decide_add_partitions(
                token, request, version=version, now=self.now, now_ms=self.now_ms
            ),
            AddPartitionsToTxnResult,
        )
        assert result.transactional_id == name
        codes = {
            TopicPartition(topic.name, found.partition_index): ErrorCode(found.partition_error_code)
            for topic in result.topic_results
            for found in topic.results_by_partition
        }
        assert list(codes) == tps(partitions)
        distinct = set(codes.values())
        return distinct.pop() if len(distinct) == 1 else codes

    def add_offsets(
        self, client: tuple[int, int], *, name: str = ID, version: int = 4
    ) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=client[0], producer_epoch=client[1], group_id="g"
        )
        response = self.ask(
            lambda token, _: self.shard.decide_add_offsets(
                token,
                request,
                partition=OFFSETS,
                version=version,
                now=self.now,
                now_ms=self.now_ms,
            ),
            AddOffsetsToTxnResponse,
        )
        return ErrorCode(response.error_code)

    def end(
        self,
        client: tuple[int, int],
        outcome: str = "commit",
        *,
        name: str = ID,
        version: int = 5,
    ) -> ErrorCode | Identity:
        """Returns the error, or who the client is from now on (for version 5)."""
        assert outcome in ("commit", "abort")
        request = EndTxnRequest(
            transactional_id=name,
            producer_id=client[0],
            producer_epoch=client[1],
            committed=outcome == "commit",
        )
        response = self.ask(
            lambda token, new_id: self.shard.decide_end(
                token,
                request,
                version=version,
                new_producer_id=new_id,
                now=self.now,
                now_ms=self.now_ms,
            ),
            EndTxnResponse,
        )
        if response.error_code or response.producer_id < 0:
            return ErrorCode(response.error_code)
        return Identity(response.producer_id, response.producer_epoch)

    def write_markers(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Writes markers: all that are wanted, or those of some partitions."""
        for markers in list(self.markers):
            chosen = [
                tp for tp in markers.partitions if partitions is None or tp in tuple(partitions)
            ]
            self.report(markers, chosen)
            if partitions is None:
                self.markers.remove(markers)

    def report(self, markers: SendMarkers, partitions: Iterable[TopicPartition]) -> None:
        self.carry_out(self.shard.on_markers_written(markers, partitions, now_ms=self.now_ms))

    def give_ids(self) -> None:
        """Hands over the producer ids that timeouts have asked for."""
        while self.wanted_ids:
            self.wanted_ids -= 1
            self.carry_out(self.shard.on_producer_id(self.new_id(), self.now, self.now_ms))

    # Looking

    def described(self, name: str = ID) -> TransactionState:
        return self.shard.describe(name)

    def state(self, name: str = ID) -> str:
        return self.described(name).transaction_state

    def who(self, name: str = ID) -> Identity:
        found = self.described(name)
        return Identity(found.producer_id, found.producer_epoch)

    def versions(self) -> list[int]:
        """The versions of the values in the log."""
        return [version for _, version, data in self.log if data is not None]


def refused(response: InitProducerIdResponse) -> ErrorCode:
    """The code of a refusal, which has no id and no epoch."""
    assert (response.producer_id, response.producer_epoch) == (-1, -1)
    return ErrorCode(response.error_code)


def got(response: InitProducerIdResponse) -> Identity:
    assert response.error_code == ErrorCode.NONE, ErrorCode(response.error_code)
    return Identity(response.producer_id, response.producer_epoch)
