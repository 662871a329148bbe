"""Transactions as partitions and groups see them, on real nodes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from harness.wire import Wire, batch, records_of, until
from headwater.errors import ErrorCode
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from headwater.protocol.messages.delete_groups import DeleteGroupsRequest
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from headwater.protocol.messages.end_txn import EndTxnRequest
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    TopicProduceData,
)
from headwater.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from headwater.testing import EmbeddedBroker, HeadwaterCluster

PATIENCE = 60.0
TRANSACTIONS = 1  # a type of FindCoordinator
_BROKER, _ALL_BROKERS = 4, ""
_SET, _DELETE = 0, 1
COMMITTED = 1  # an isolation level
# The last version of Produce for each transaction version, and of EndTxn.
GENERATIONS = pytest.mark.parametrize(("produced", "ended"), [(11, 4), (12, 5)], ids=["v1", "v2"])


class Transactions:
    """A transactional producer by its requests."""

    def __init__(self, wire: Wire, name: str, *, produced: int = 12, ended: int = 5) -> None:
        self.wire, self.id = wire, f"{name}-id"
        self.produced, self.ended = produced, ended
        self.sequences: dict[tuple[str, int], int] = {}
        request = FindCoordinatorRequest(key_type=TRANSACTIONS, coordinator_keys=[self.id])
        until(lambda: wire.ask(request).coordinators[0].error_code == 0 or None, "the coordinator")
        self.init()

    def init(self) -> None:
        request = InitProducerIdRequest(
            transactional_id=self.id,
            transaction_timeout_ms=60_000,
            producer_id=-1,
            producer_epoch=-1,
        )
        answer = until(lambda: _good(self.wire.ask(request)), "a producer id")
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        self.sequences.clear()

    def add(self, topic: str, *partitions: int) -> None:
        """Tells the coordinator, as producers of version 1 do."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        (found,) = self.wire.ask(request, 3).results_by_topic_v3_and_below
        assert {each.partition_error_code for each in found.results_by_partition} == {0}

    def request(self, topic: str, *values: bytes, partition: int = 0) -> ProduceRequest:
        key = topic, partition
        sequence = self.sequences.get(key, 0)
        self.sequences[key] = sequence + len(values)
        records = batch(
            values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            transactional=True,
        )
        data = TopicProduceData(
            name=topic, partition_data=[PartitionProduceData(index=partition, records=records)]
        )
        return ProduceRequest(
            transactional_id=self.id, acks=-1, timeout_ms=10_000, topic_data=[data]
        )

    def send(self, topic: str, *values: bytes) -> ErrorCode:
        return code_of(self.wire.ask(self.request(topic, *values), self.produced))

    def end(self, *, commits: bool) -> None:
        request = EndTxnRequest(
            transactional_id=self.id,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            committed=commits,
        )
        answer = until(lambda: _good(self.wire.ask(request, self.ended)), "the end")
        if self.ended >= 5:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()

    def commit_offset(self, group: str, topic: str, offset: int, **more: Any) -> ErrorCode:
        request = TxnOffsetCommitRequest(
            transactional_id=self.id,
            group_id=group,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=0, committed_offset=offset, committed_metadata=""
                        )
                    ],
                )
            ],
            **more,
        )
        (found,) = self.wire.ask(request, 5).topics
        return ErrorCode(found.partitions[0].error_code)


def _good(answer: Any) -> Any:
    assert answer.error_code in (0, ErrorCode.CONCURRENT_TRANSACTIONS), ErrorCode(answer.error_code)
    return answer if answer.error_code == 0 else None


def code_of(answer: Any) -> ErrorCode:
    result: PartitionProduceResponse
    ((result,),) = (topic.partition_responses for topic in answer.responses)
    return ErrorCode(result.error_code)


def stable_end(wire: Wire, topic: str) -> int:
    end: int = wire.fetch(topic, isolation_level=COMMITTED).last_stable_offset
    return end


def await_stable(wire: Wire, topic: str, end: int) -> None:
    """Waits for the marker of a transaction."""
    until(lambda: stable_end(wire, topic) == end or None, f"a stable end of {end}")


def committed(wire: Wire, group: str, topic: str) -> int | ErrorCode:
    request = OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group,
                topics=[OffsetFetchRequestTopics(name=topic, partition_indexes=[0])],
            )
        ],
        require_stable=True,
    )
    ((found,),) = (t.partitions for t in wire.ask(request, 9).groups[0].topics)
    return ErrorCode(found.error_code) if found.error_code else int(found.committed_offset)


@GENERATIONS
@pytest.mark.parametrize("commits", [True, False])
def test_readers_of_committed_records_see_the_end_of_a_transaction(
    wire: Wire, topic: str, produced: int, ended: int, commits: bool
) -> None:
    wire.topic_id(topic)
    producer = Transactions(wire, topic, produced=produced, ended=ended)
    if produced < 12:
        producer.add(topic, 0)
    assert producer.send(topic, b"a", b"b") is ErrorCode.NONE
    assert stable_end(wire, topic) == 0
    producer.end(commits=commits)
    await_stable(wire, topic, 3)
    data = wire.fetch(topic, isolation_level=COMMITTED)
    aborted = [(each.producer_id, each.first_offset) for each in data.aborted_transactions or []]
    assert aborted == ([] if commits else [(producer.producer_id, 0)])
    assert [record.value for record in records_of(data)][:2] == [b"a", b"b"]


def test_a_partition_that_was_not_added_is_not_written_to(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    producer = Transactions(wire, topic, produced=11, ended=4)
    assert producer.send(topic, b"a") is ErrorCode.TRANSACTION_ABORTABLE
    assert wire.values(topic) == []


def test_verification_is_switched_off_and_on_while_the_node_runs(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)

    def verification(value: str | None) -> None:
        config = AlterableConfig(
            name="transaction.partition.verification.enable",
            config_operation=_SET if value is not None else _DELETE,
            value=value,
        )
        resource = AlterConfigsResource(
            resource_type=_BROKER, resource_name=_ALL_BROKERS, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
        assert wire.ask(request).responses[0].error_code == 0

    verification("false")
    try:
        producer = Transactions(wire, topic, produced=11, ended=4)
        assert producer.send(topic, b"a") is ErrorCode.NONE
        # Of version 2 the leader adds the partition itself, whatever the setting says.
        newer = Transactions(wire, f"{topic}-2")
        assert newer.send(topic, b"b") is ErrorCode.NONE
        newer.end(commits=True)
    finally:
        verification(None)
    other = Transactions(wire, f"{topic}-1", produced=11, ended=4)
    assert other.send(topic, b"c") is ErrorCode.TRANSACTION_ABORTABLE
    # The coordinator does not know of the first one's transaction. This ends it.
    producer.init()
    producer.add(topic, 0)
    producer.end(commits=False)
    await_stable(wire, topic, 4)


def test_a_batch_that_comes_after_the_abort_is_refused(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    producer = Transactions(wire, topic)
    producer.send(topic, b"a")
    late = producer.request(topic, b"late")
    producer.end(commits=False)
    await_stable(wire, topic, 2)
    assert code_of(wire.ask(late, 12)) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert stable_end(wire, topic) == wire.fetch(topic).high_watermark == 2


def test_batches_of_a_connection_keep_their_order_while_one_is_verified(
    wire: Wire, topic: str
) -> None:
    wire.topic_id(topic)
    producer = Transactions(wire, topic)
    for number in range(3):
        requests = [producer.request(topic, b"%d" % index) for index in range(20)]
        for request in requests:
            wire.send(request, 12)
        assert [code_of(wire.receive()) for _ in requests] == [ErrorCode.NONE] * 20
        producer.end(commits=True)
        await_stable(wire, topic, 21 * (number + 1))
    values = [value for value in wire.values(topic) if value is not None and value.isdigit()]
    assert values == [b"%d" % index for index in range(20)] * 3


def test_another_instance_fences_and_aborts_the_first(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    first = Transactions(wire, topic)
    first.send(topic, b"gone")
    second = Transactions(wire, topic)
    assert (second.producer_id, second.epoch > first.epoch) == (first.producer_id, True)
    assert first.send(topic, b"more") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert second.send(topic, b"kept") is ErrorCode.NONE
    second.end(commits=True)
    await_stable(wire, topic, 4)
    data = wire.fetch(topic, isolation_level=COMMITTED)
    assert [each.first_offset for each in data.aborted_transactions or []] == [0]


def test_an_open_transaction_is_described(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    producer = Transactions(wire, topic)
    wire.produce(topic, batch([b"before"]))
    producer.send(topic, b"a")
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    (found,) = wire.ask(request).topics[0].partitions[0].active_producers
    assert (found.producer_id, found.producer_epoch) == (producer.producer_id, producer.epoch)
    assert (found.last_sequence, found.current_txn_start_offset) == (0, 1)
    producer.end(commits=True)
    await_stable(wire, topic, 3)
    (found,) = wire.ask(request).topics[0].partitions[0].active_producers
    assert (found.current_txn_start_offset, found.coordinator_epoch >= 0) == (-1, True)


# Groups


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_of_a_transaction_wait_for_its_end(wire: Wire, topic: str, commits: bool) -> None:
    wire.topic_id(topic)
    group = f"{topic}-group"
    wire.await_coordinator(group)
    producer = Transactions(wire, topic)
    assert producer.commit_offset(group, topic, 7) is ErrorCode.NONE
    assert committed(wire, group, topic) is ErrorCode.UNSTABLE_OFFSET_COMMIT
    producer.end(commits=commits)
    found = until(
        lambda: (
            (
                (now := committed(wire, group, topic)) is not ErrorCode.UNSTABLE_OFFSET_COMMIT
                and (now,)
            )
            or None
        ),
        "the marker",
    )
    assert found == ((7,) if commits else (-1,))


def test_offsets_are_fenced_by_member_and_generation(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    group = f"{topic}-group"
    wire.await_coordinator(group)
    producer = Transactions(wire, topic)
    stale: dict[str, Any] = {"generation_id_or_member_epoch": 5, "member_id": "gone"}
    code = producer.commit_offset(group, topic, 7, **stale)
    assert code is ErrorCode.ILLEGAL_GENERATION
    assert producer.commit_offset(group, f"no-{topic}", 7) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert producer.commit_offset("", topic, 7) is ErrorCode.INVALID_GROUP_ID
    producer.epoch += 1
    assert producer.commit_offset(group, topic, 7) is ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_group_that_is_deleted_meanwhile_stays_so(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    group = f"{topic}-group"
    wire.await_coordinator(group)
    producer = Transactions(wire, topic)
    producer.commit_offset(group, topic, 7)
    (deleted,) = wire.ask(DeleteGroupsRequest(groups_names=[group])).results
    assert deleted.error_code == 0
    assert committed(wire, group, topic) == -1
    producer.end(commits=True)
    producer.send(topic, b"next")  # accepted when the transaction before is complete
    assert committed(wire, group, topic) == -1


def test_offsets_of_a_topic_that_is_deleted_meanwhile_go_with_it(wire: Wire, topic: str) -> None:
    wire.topic_id(topic)
    other = f"{topic}-other"
    wire.topic_id(other)
    group = f"{topic}-group"
    wire.await_coordinator(group)
    producer = Transactions(wire, topic)
    producer.commit_offset(group, topic, 7)
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=topic, topic_id=bytes(16))], timeout_ms=10_000
    )
    assert wire.ask(request).responses[0].error_code == 0
    until(lambda: committed(wire, group, topic) == -1 or None, "the offset to go")
    producer.end(commits=True)
    producer.send(other, b"next")
    assert committed(wire, group, topic) == -1


# Restarts and other nodes


def test_open_and_ended_transactions_survive_a_restart(tmp_path: Path) -> None:
    options: dict[str, Any] = {"data": tmp_path / "data"}
    with EmbeddedBroker(**options) as broker, Wire(broker.bootstrap) as wire:
        for topic in ("ended", "open"):
            wire.topic_id(topic)
        wire.await_coordinator("group")
        ended, opened = Transactions(wire, "ended"), Transactions(wire, "opened")
        ended.send("ended", b"gone")
        ended.end(commits=False)
        opened.send("open", b"kept")
        opened.commit_offset("group", "open", 7)
        await_stable(wire, "ended", 2)
    with EmbeddedBroker(**options) as broker, Wire(broker.bootstrap) as wire:
        for topic in ("ended", "open"):
            wire.topic_id(topic)
        wire.await_coordinator("group")
        data = wire.fetch("ended", isolation_level=COMMITTED)
        assert [each.first_offset for each in data.aborted_transactions or []] == [0]
        assert stable_end(wire, "open") == 0
        assert committed(wire, "group", "open") is ErrorCode.UNSTABLE_OFFSET_COMMIT
        opened.wire = wire
        assert opened.send("open", b"too") is ErrorCode.NONE
        opened.end(commits=True)
        await_stable(wire, "open", 3)
        until(lambda: committed(wire, "group", "open") == 7 or None, "the offset")


@pytest.mark.headwater(topics={"orders": 3, "paid": 3}, nodes=3)
def test_transactions_go_on_while_leaders_and_coordinators_are_killed(
    headwater_cluster: HeadwaterCluster,
) -> None:
    """Each transaction writes one number to two topics; every fourth one is aborted."""
    cluster = headwater_cluster
    for topic in ("orders", "paid"):
        for partition in range(3):
            cluster.wait_isr(topic, partition)
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "transactional.id": "mover",
            "transaction.timeout.ms": 60_000,
            "message.timeout.ms": 55_000,
        }
    )
    producer.init_transactions(PATIENCE)
    expected = []
    for number in range(60):
        if number in (20, 40):
            cluster.kill(cluster.wait_leader("orders", number % 3))
        producer.begin_transaction()
        for topic in ("orders", "paid"):
            producer.produce(topic, str(number).encode(), partition=number % 3)
        if number % 4 == 0:
            assert producer.flush(PATIENCE) == 0  # else it would not even send them
            producer.abort_transaction(PATIENCE)
        else:
            producer.commit_transaction(PATIENCE)
            expected.append(number)
        if number in (20, 40):
            cluster.start(*({1, 2, 3} - set(cluster.running)))
            for partition in range(3):
                cluster.wait_isr("orders", partition)
                cluster.wait_isr("paid", partition)
    assert read_committed(cluster, "orders", len(expected)) == expected
    assert read_committed(cluster, "paid", len(expected)) == expected
    cluster.stop()
    for name in ("orders-0", "orders-1", "orders-2"):
        for kind in ("log", "txnindex"):
            copies = {replica_file(cluster, node, name, kind) for node in (1, 2, 3)}
            assert len(copies) == 1, f"replicas of {name} differ in their {kind}"
            assert copies != {b""}


def replica_file(cluster: HeadwaterCluster, node: int, partition: str, kind: str) -> bytes:
    return (Path(cluster.data(node)) / partition / f"{0:020}.{kind}").read_bytes()


def read_committed(cluster: HeadwaterCluster, topic: str, count: int) -> list[int]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": f"{topic}-readers",
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe([topic])
    found: list[int] = []
    ended: set[int] = set()
    try:
        while len(ended) < 3:
            message = consumer.poll(PATIENCE)
            assert message is not None, f"{len(found)} of {count} records"
            if message.error() is not None:
                ended.add(message.partition())
            else:
                ended.discard(message.partition())
                found.append(int(message.value()))
    finally:
        consumer.close()
    return sorted(found)
