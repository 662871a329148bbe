"""A broker with a transaction coordinator that fits on a page, and loses what it is told to lose.

It has one node, a topic of some partitions, and one transactional id; both generations of the
protocol. What is committed is in `visible`. `fault` is asked before each request: it may lose the
request, lose the reply, or name an error code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headwater import _core
from headwater.errors import ErrorCode
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.add_offsets_to_txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
)
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from headwater.protocol.messages.api_versions import ApiVersionsResponse, FinalizedFeatureKey
from headwater.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headwater.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from headwater.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from headwater.protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic
from headwater.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headwater.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.support.fake_broker import FakeBroker, HangUp

TOPIC = "orders"
PRODUCER_ID = 7
LOSE_REQUEST = -1001
LOSE_REPLY = -1002
_FIRST_V2_PRODUCE = 12


@dataclass(slots=True)
class Numbers:
    """The batches of one epoch in a partition: their first sequences, and what is next."""

    epoch: int = -1
    next: int = 0
    known: set[int] = field(default_factory=set)


class FakeCoordinator(FakeBroker):
    def __init__(self, *, uses_v2: bool, partitions: int = 3) -> None:
        super().__init__()
        self.uses_v2 = uses_v2
        self._code = 0  # what the request at hand is to be refused with
        self.fault: Callable[[ApiKey], int] = lambda _: 0
        self.epoch = -1
        self.ongoing = False
        self.last_end: bool | None = None  # how the last transaction ended
        self.fenced_from: int | None = None  # the epoch that the last renewal came with
        self.added: set[int] = set()
        self.pending: list[bytes] = []  # of the open transaction
        self.pending_offsets: dict[tuple[str, int], int] = {}
        self.visible: list[bytes] = []
        self.offsets: dict[tuple[str, int], int] = {}
        self.aborted: list[bytes] = []
        self.numbers = {number: Numbers() for number in range(partitions)}
        self.topics = [
            MetadataResponseTopic(
                name=TOPIC,
                topic_id=bytes(15) + b"\x01",
                partitions=[
                    MetadataResponsePartition(
                        partition_index=number, leader_id=1, replica_nodes=[1], isr_nodes=[1]
                    )
                    for number in range(partitions)
                ],
            )
        ]
        handlers: dict[ApiKey, Callable[[Any], Message]] = {
            ApiKey.INIT_PRODUCER_ID: self._init,
            ApiKey.ADD_PARTITIONS_TO_TXN: self._add_partitions,
            ApiKey.ADD_OFFSETS_TO_TXN: self._add_offsets,
            ApiKey.TXN_OFFSET_COMMIT: self._commit_offsets,
            ApiKey.END_TXN: self._end,
            ApiKey.PRODUCE: self._produce,
        }
        for key, handler in handlers.items():
            self.answers[key] = partial(self._serve_api, key, handler)
        self.answers[ApiKey.FIND_COORDINATOR] = self._find

    def versions(self) -> ApiVersionsResponse:
        answer = super().versions()
        for each in answer.api_keys:
            if each.api_key == ApiKey.INIT_PRODUCER_ID:
                each.max_version = 6
        if self.uses_v2:
            answer.finalized_features_epoch = 1
            answer.finalized_features = [
                FinalizedFeatureKey(
                    name="transaction.version", max_version_level=2, min_version_level=2
                )
            ]
        return answer

    def _serve_api(
        self, key: ApiKey, handler: Callable[[Any], Message], request: Message
    ) -> Message:
        fault = self.fault(key)
        if fault == LOSE_REQUEST:
            raise HangUp
        self._code = max(fault, 0)
        answer = handler(request)
        if fault == LOSE_REPLY:
            raise HangUp
        return answer

    def _find(self, request: Any) -> FindCoordinatorResponse:
        return FindCoordinatorResponse(
            coordinators=[
                Coordinator(key=key, node_id=1, host="127.0.0.1", port=self.address.port)
                for key in request.coordinator_keys
            ]
        )

    # The transactional id

    def _finish(self, *, commits: bool) -> None:
        if commits:
            self.visible += self.pending
            self.offsets |= self.pending_offsets
        else:
            self.aborted += self.pending
        self.pending, self.pending_offsets = [], {}
        self.added.clear()
        self.ongoing = False
        self.last_end = commits

    def _init(self, request: InitProducerIdRequest) -> InitProducerIdResponse:
        if self._code:
            return InitProducerIdResponse(error_code=self._code)
        if request.producer_id == -1:
            if self.ongoing:
                self._finish(commits=False)
            self.epoch += 1
            self.fenced_from = None
        elif request.producer_epoch == self.epoch and not self.ongoing:
            self.fenced_from = self.epoch
            self.epoch += 1
            self.last_end = None
        elif request.producer_epoch != self.fenced_from or self.ongoing:
            return InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        return InitProducerIdResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    def _refusal(self, epoch: int) -> int:
        if self._code:
            return self._code
        return 0 if epoch == self.epoch else ErrorCode.PRODUCER_FENCED

    def _add_partitions(self, request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnResponse:
        code = self._refusal(request.v3_and_below_producer_epoch)
        numbers = [n for topic in request.v3_and_below_topics for n in topic.partitions]
        if not code:
            self.ongoing = True
            self.added |= set(numbers)
        results = [
            AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=code)
            for number in numbers
        ]
        return AddPartitionsToTxnResponse(
            results_by_topic_v3_and_below=[
                AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=results)
            ]
        )

    def _add_offsets(self, request: AddOffsetsToTxnRequest) -> AddOffsetsToTxnResponse:
        code = self._refusal(request.producer_epoch)
        self.ongoing |= not code
        return AddOffsetsToTxnResponse(error_code=code)

    def _commit_offsets(self, request: TxnOffsetCommitRequest) -> TxnOffsetCommitResponse:
        code = self._refusal(request.producer_epoch)
        if not code and not self.uses_v2 and not self.ongoing:
            code = ErrorCode.INVALID_TXN_STATE
        if not code:
            self.ongoing = True
            self.pending_offsets |= {
                (topic.name, each.partition_index): each.committed_offset
                for topic in request.topics
                for each in topic.partitions
            }
        return TxnOffsetCommitResponse(
            topics=[
                TxnOffsetCommitResponseTopic(
                    name=topic.name,
                    partitions=[
                        TxnOffsetCommitResponsePartition(
                            partition_index=each.partition_index, error_code=code
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )

    def _end(self, request: EndTxnRequest) -> EndTxnResponse:
        if self._code:
            return EndTxnResponse(error_code=self._code)
        if self.uses_v2:
            return self._end_v2(request)
        if request.producer_epoch != self.epoch:
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        if self.ongoing:
            self._finish(commits=request.committed)
        elif self.last_end != request.committed:
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        return EndTxnResponse()

    def _end_v2(self, request: EndTxnRequest) -> EndTxnResponse:
        if request.producer_epoch == self.epoch - 1 and not self.ongoing:
            if self.last_end != request.committed:
                return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        elif request.producer_epoch != self.epoch:
            return EndTxnResponse(error_code=ErrorCode.PRODUCER_FENCED)
        elif self.ongoing or not request.committed:
            self._finish(commits=request.committed)
            self.epoch += 1
        else:
            return EndTxnResponse(error_code=ErrorCode.INVALID_TXN_STATE)
        return EndTxnResponse(producer_id=PRODUCER_ID, producer_epoch=self.epoch)

    # The log

    def _produce(self, request: ProduceRequest) -> ProduceResponse:
        version = self.versions_asked[-1][1]
        assert (version >= _FIRST_V2_PRODUCE) == self.uses_v2
        return ProduceResponse(
            responses=[
                TopicProduceResponse(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        PartitionProduceResponse(
                            index=each.index,
                            error_code=self._append(each.index, bytes(each.records or b"")),
                            base_offset=0,
                        )
                        for each in topic.partition_data
                    ],
                )
                for topic in request.topic_data
            ]
        )

    def _append(self, partition: int, data: bytes) -> int:
        batch = _core.validate(data)
        assert batch.is_transactional
        if batch.producer_epoch != self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        numbers = self.numbers[partition]
        if numbers.epoch != batch.producer_epoch:
            numbers = self.numbers[partition] = Numbers(batch.producer_epoch)
        if batch.base_sequence in numbers.known:
            return 0  # a duplicate
        if self._code:
            return self._code
        if batch.base_sequence != numbers.next:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if not self.uses_v2 and partition not in self.added:
            return ErrorCode.INVALID_TXN_STATE
        self.ongoing = True
        numbers.known.add(batch.base_sequence)
        numbers.next += batch.count
        self.pending += [record.value or b"" for record in _core.decode(data)]
        return 0
