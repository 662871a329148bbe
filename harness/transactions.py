"""A transactional producer in single requests, for tests of brokers."""

from __future__ import annotations

from typing import Any

from harness.wire import Wire, until
from headwater import _core
from headwater.errors import ErrorCode
from headwater.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from headwater.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    TransactionState,
)
from headwater.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.init_producer_id import (
    InitProducerIdRequest,
    InitProducerIdResponse,
)

TRANSACTION = 1  # a key type of FindCoordinator
CLIENTS_ADD = 3  # the last version of AddPartitionsToTxn for clients
BROKERS_ADD = 5
# The last versions before each transaction raises the epoch (KIP-890), and the first ones since.
PRODUCE_V1, PRODUCE_V2 = 11, 12
END_V1, END_V2 = 4, 5
NOT_YET = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


def find_coordinator(wire: Wire, transactional_id: str) -> int:
    """Returns the node that coordinates an id, once there is one."""
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])

    def found() -> int | None:
        (answer,) = wire.ask(request).coordinators
        return answer.node_id if answer.error_code == 0 else None

    return until(found, f"a coordinator of {transactional_id}")


class TransactionalProducer:
    """One transactional id on one connection to its coordinator."""

    def __init__(self, wire: Wire, transactional_id: str) -> None:
        self.wire = wire
        self.id = transactional_id
        self.producer_id = -1
        self.epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def try_init(self, *, version: int | None = None, **fields: Any) -> InitProducerIdResponse:
        request = InitProducerIdRequest(
            transactional_id=self.id, **{"transaction_timeout_ms": 60_000, **fields}
        )
        answer: InitProducerIdResponse = self.wire.ask(request, version)
        return answer

    def init(self, *, version: int | None = None, **fields: Any) -> InitProducerIdResponse:
        """Takes the next epoch, once that is possible."""
        find_coordinator(self.wire, self.id)

        def found() -> InitProducerIdResponse | None:
            answer = self.try_init(version=version, **fields)
            return None if answer.error_code in NOT_YET else answer

        answer = until(found, f"an epoch of {self.id}")
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()
        return answer

    def add(self, topic: str, *partitions: int) -> list[int]:
        """Adds partitions as a producer of version 1 does; returns their codes."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        answer = self.wire.ask(request, CLIENTS_ADD)
        return _codes(answer.results_by_topic_v3_and_below)

    def added(self, topic: str, *partitions: int) -> None:
        """Adds partitions, once that is possible."""

        def found() -> list[int] | None:
            codes = self.add(topic, *partitions)
            return None if set(codes) & set(NOT_YET) else codes

        assert until(found, "partitions in the transaction") == [0] * len(partitions)

    def add_as_broker(
        self, topic: str, *partitions: int, verify_only: bool, version: int = BROKERS_ADD
    ) -> list[int]:
        """Adds or verifies partitions as the broker does that is to write to them."""
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            verify_only=verify_only,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        answer = self.wire.ask(AddPartitionsToTxnRequest(transactions=[transaction]), version)
        assert answer.error_code == 0
        (result,) = answer.results_by_transaction
        assert result.transactional_id == self.id
        return _codes(result.topic_results)

    def add_offsets(self, group_id: str, *, version: int | None = None) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            group_id=group_id,
        )
        code: int = self.wire.ask(request, version).error_code
        return code

    def try_end(self, *, commits: bool, version: int = END_V2) -> EndTxnResponse:
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        answer: EndTxnResponse = self.wire.ask(request, version)
        return answer

    def end(self, *, commits: bool, version: int = END_V2) -> EndTxnResponse:
        """Ends the transaction, once that is possible; takes over the next epoch."""

        def found() -> EndTxnResponse | None:
            answer = self.try_end(commits=commits, version=version)
            return None if answer.error_code in NOT_YET else answer

        answer = until(found, f"the end of a transaction of {self.id}")
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        if version >= END_V2:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    def describe(self) -> TransactionState:
        request = DescribeTransactionsRequest(transactional_ids=[self.id])
        (state,) = self.wire.ask(request).transaction_states
        found: TransactionState = state
        return found

    def batch(self, topic: str, *values: bytes, partition: int = 0) -> bytes:
        """A batch of the transaction, with the next sequence."""
        sequence = self.sequences.get((topic, partition), 0)
        self.sequences[topic, partition] = sequence + len(values)
        return _core.encode(
            [(None, value, (), 1_700_000_000_000) for value in values],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def produce(
        self, topic: str, *values: bytes, partition: int = 0, version: int = PRODUCE_V2
    ) -> int:
        """Writes records; returns the code. Version 2 adds the partition to the transaction."""
        request, _ = self.wire.produce_request(
            topic, self.batch(topic, *values, partition=partition), partition, version=version
        )
        request.transactional_id = self.id
        ((answer,),) = (
            each.partition_responses for each in self.wire.ask(request, version).responses
        )
        code: int = answer.error_code
        return code


def _codes(topics: list[AddPartitionsToTxnTopicResult]) -> list[int]:
    """Returns the codes in the order of the partitions; brokers have orders of their own."""
    found = {
        each.partition_index: each.partition_error_code
        for topic in topics
        for each in topic.results_by_partition
    }
    return [found[index] for index in sorted(found)]
