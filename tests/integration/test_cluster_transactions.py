"""Transactions on three real nodes: coordinators and leaders that die while a transaction ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from harness.transactions import NOT_YET, TransactionalProducer, find_coordinator
from harness.wire import Closed, Wire, until
from headwater.broker.coordinators.hashing import partition_of
from headwater.errors import ErrorCode
from headwater.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from headwater.testing import HeadwaterCluster

PARTITIONS = 3
SETTINGS = {"transaction.state.log.num.partitions": str(PARTITIONS)}
THREE = pytest.mark.headwater(nodes=3, settings=SETTINGS)
ALL_IN_SYNC = pytest.mark.headwater(
    nodes=3, settings=SETTINGS | {"transaction.state.log.min.isr": "3"}
)
NODES = (1, 2, 3)


class Wires:
    """A connection to each node; a broken one is made again."""

    def __init__(self, cluster: HeadwaterCluster) -> None:
        self._cluster = cluster
        self._stack = ExitStack()
        self._open: dict[int, Wire] = {}

    def __getitem__(self, node: int) -> Wire:
        wire = self._open.get(node)
        if wire is None:
            wire = Wire(self._cluster.addresses[node], timeout=60.0)
            self._open[node] = self._stack.enter_context(wire)
        return wire

    def forget(self, node: int) -> None:
        self._open.pop(node, None)

    def any(self) -> Wire:
        return self[self._cluster.running[0]]

    def close(self) -> None:
        self._stack.close()


@pytest.fixture
def wires(headwater_cluster: HeadwaterCluster) -> Iterator[Wires]:
    wires = Wires(headwater_cluster)
    yield wires
    wires.close()


def create(wires: Wires, topic: str, *leaders: int) -> None:
    """Creates a topic whose partitions have one replica each."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=-1,
                replication_factor=-1,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=[leader])
                    for index, leader in enumerate(leaders)
                ],
                configs=[],
            )
        ],
        timeout_ms=30_000,
    )
    (result,) = wires.any().ask(request).topics
    assert result.error_code == 0, result.error_message
    for index, leader in enumerate(leaders):
        until(
            lambda index=index, leader=leader: (  # type: ignore[misc]
                wires[leader].offset_at(topic, -1, partition=index).error_code == 0 or None
            ),
            f"a leader of {topic}-{index}",
        )


def begin(cluster: HeadwaterCluster, wires: Wires, *, coordinator: int) -> TransactionalProducer:
    """Returns a producer whose coordinator is this node, once all replicas of that are in sync."""
    find_coordinator(wires.any(), "any")
    for index in range(PARTITIONS):
        cluster.wait_isr("__transaction_state", index)
        if cluster.wait_leader("__transaction_state", index) == coordinator:
            break
    else:
        raise AssertionError(f"node {coordinator} coordinates nothing")
    name = next(
        f"t{number}" for number in range(1000) if partition_of(f"t{number}", PARTITIONS) == index
    )
    producer = TransactionalProducer(wires[coordinator], name)
    producer.init()
    return producer


def find_again(wires: Wires, producer: TransactionalProducer, *, but: int) -> None:
    """Connects to the node that has become the coordinator."""

    def found() -> int | None:
        node = find_coordinator(wires.any(), producer.id)
        return node if node != but else None

    producer.wire = wires[until(found, "another coordinator", 60.0)]
    until(lambda: producer.describe().error_code not in NOT_YET or None, "a load", 60.0)


def state(producer: TransactionalProducer) -> str:
    return producer.describe().transaction_state


def ends(wires: Wires, topic: str, *leaders: int) -> list[int]:
    return [
        wires[leader].offset_at(topic, -1, partition=index).offset
        for index, leader in enumerate(leaders)
    ]


@THREE
def test_markers_reach_all_nodes(headwater_cluster: HeadwaterCluster, wires: Wires) -> None:
    create(wires, "orders", *NODES)
    for coordinator in NODES:
        producer = begin(headwater_cluster, wires, coordinator=coordinator)
        producer.added("orders", 0, 1, 2)
        producer.end(commits=True)
        until(lambda p=producer: state(p) == "CompleteCommit" or None, "the end")  # type: ignore[misc]
        producer.added("orders", 0, 2)  # waits for the end, if it has to
        producer.end(commits=False)
        producer.added("orders", 1)
        producer.end(commits=True)
        until(lambda p=producer: state(p) == "CompleteCommit" or None, "the end")  # type: ignore[misc]
    assert ends(wires, "orders", *NODES) == [6, 6, 6]


@THREE
def test_a_marker_waits_for_the_leader_of_its_partition(
    headwater_cluster: HeadwaterCluster, wires: Wires
) -> None:
    create(wires, "orders", 1, 2)
    producer = begin(headwater_cluster, wires, coordinator=1)
    producer.added("orders", 0, 1)
    headwater_cluster.kill(2)
    wires.forget(2)
    producer.end(commits=True)  # decided, whatever becomes of node 2
    assert state(producer) == "PrepareCommit"
    until(lambda: ends(wires, "orders", 1) == [1] or None, "the marker of the existing partition")
    (left,) = producer.describe().topics
    assert (left.topic, left.partitions) == ("orders", [1])
    assert producer.add("orders", 0) == [ErrorCode.CONCURRENT_TRANSACTIONS]
    assert producer.try_init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    headwater_cluster.start(2)
    until(lambda: state(producer) == "CompleteCommit" or None, "the end", 60.0)
    assert ends(wires, "orders", 1, 2) == [1, 1]
    producer.added("orders", 0, 1)
    producer.end(commits=True)


@THREE
def test_the_next_coordinator_goes_on_with_the_end(
    headwater_cluster: HeadwaterCluster, wires: Wires
) -> None:
    create(wires, "orders", 1, 2)
    producer = begin(headwater_cluster, wires, coordinator=3)
    producer.added("orders", 0, 1)
    headwater_cluster.kill(2)
    wires.forget(2)
    producer.end(commits=False)
    assert state(producer) == "PrepareAbort"
    headwater_cluster.launch(2)
    headwater_cluster.kill(3)
    wires.forget(3)
    headwater_cluster.wait_ready(2)
    find_again(wires, producer, but=3)
    until(lambda: state(producer) == "CompleteAbort" or None, "the end", 60.0)
    # The first coordinator has marked the partition of node 1 as well, perhaps; not so the other.
    first, second = ends(wires, "orders", 1, 2)
    assert first in (1, 2)
    assert second == 1
    producer.added("orders", 1)
    producer.end(commits=True)


@THREE
def test_open_transactions_move_with_their_coordinator(
    headwater_cluster: HeadwaterCluster, wires: Wires
) -> None:
    create(wires, "orders", 1)
    producer = begin(headwater_cluster, wires, coordinator=2)
    producer.added("orders", 0)
    before = producer.describe()
    headwater_cluster.kill(2)
    wires.forget(2)
    find_again(wires, producer, but=2)
    assert producer.describe() == before
    producer.end(commits=True)
    until(lambda: state(producer) == "CompleteCommit" or None, "the end")
    assert ends(wires, "orders", 1) == [1]
    headwater_cluster.start(2)
    late = TransactionalProducer(wires[2], producer.id)
    late.producer_id, late.epoch = before.producer_id, before.producer_epoch
    headwater_cluster.wait_isr("__transaction_state", partition_of(producer.id, PARTITIONS))
    answer = late.try_end(commits=False)
    # Wherever the id is coordinated now: the transaction was committed and stays so.
    assert answer.error_code in (ErrorCode.INVALID_TXN_STATE, ErrorCode.NOT_COORDINATOR)


@ALL_IN_SYNC
def test_nothing_changes_while_too_few_replicas_are_in_sync(
    headwater_cluster: HeadwaterCluster, wires: Wires
) -> None:
    create(wires, "orders", 1, 2)
    producer = begin(headwater_cluster, wires, coordinator=1)
    producer.added("orders", 0, 1)
    before = producer.describe()
    headwater_cluster.kill(2)
    wires.forget(2)
    index = partition_of(producer.id, PARTITIONS)
    headwater_cluster.wait_isr("__transaction_state", index, nodes=[1, 3])
    unavailable = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert producer.try_end(commits=True).error_code == unavailable
    assert producer.try_init().error_code == unavailable
    assert producer.add("orders", 0) == [unavailable]
    assert producer.add_as_broker("orders", 0, verify_only=True) == [0]  # which writes nothing
    assert producer.describe() == before
    headwater_cluster.start(2)
    headwater_cluster.wait_isr("__transaction_state", index)
    producer.end(commits=True)
    until(lambda: state(producer) == "CompleteCommit" or None, "the end", 60.0)
    assert ends(wires, "orders", 1, 2) == [1, 1]


@THREE
def test_a_coordinator_that_was_cut_off_decides_nothing(
    headwater_cluster: HeadwaterCluster, wires: Wires
) -> None:
    """It hears neither that it has a successor nor what that has decided."""
    create(wires, "orders", 1)
    producer = begin(headwater_cluster, wires, coordinator=2)
    producer.added("orders", 0)
    first = wires[2]
    headwater_cluster.cut_off(2)
    wires.forget(2)
    late = TransactionalProducer(first, producer.id)
    late.producer_id, late.epoch = producer.producer_id, producer.epoch
    find_again(wires, producer, but=2)
    producer.end(commits=False)
    until(lambda: state(producer) == "CompleteAbort" or None, "the end")
    headwater_cluster.reconnect(2)
    try:
        answer = late.try_end(commits=True)
    except Closed:
        pass
    else:
        assert answer.error_code != 0
    assert state(producer) == "CompleteAbort"
    assert ends(wires, "orders", 1) == [1]
