"""Transactions on a node, request by request: the coordinator, its topic, its restarts.

Most of these run against Apache Kafka as well (HEADWATER_TEST_BOOTSTRAP).
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from harness.transactions import (
    BROKERS_ADD,
    END_V1,
    END_V2,
    PRODUCE_V1,
    TransactionalProducer,
    find_coordinator,
)
from harness.wire import Wire, until
from headwater.blocking import Admin
from headwater.client.admin import FeatureUpdate, UpgradeType
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from headwater.protocol.messages.describe_transactions import DescribeTransactionsRequest
from headwater.protocol.messages.end_txn import EndTxnRequest
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from headwater.protocol.messages.list_transactions import ListTransactionsRequest
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker

TOPIC = 2  # a resource type of DescribeConfigs
SHARE = 2  # a key type of FindCoordinator
UNSTABLE_INIT = 6


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test has, nor an earlier run on the same broker."""
    return f"{request.node.originalname[-60:]}-{uuid4().hex[:8]}"


@pytest.fixture
def producer(wire: Wire, name: str) -> TransactionalProducer:
    producer = TransactionalProducer(wire, name)
    producer.init()
    return producer


# The coordinator


def test_the_topic_is_made_when_a_coordinator_is_first_looked_for(make_broker: MakeBroker) -> None:
    broker = make_broker(
        {
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.segment.bytes": "1048576",
            "unclean.leader.election.enable": "true",
            "compression.type": "zstd",
        }
    )
    with Wire(broker.bootstrap) as wire:
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=["t"])
        (first,) = wire.ask(request).coordinators
        assert first.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert find_coordinator(wire, "t") == 1
        topic = MetadataRequestTopic(name="__transaction_state")
        (about,) = wire.ask(MetadataRequest(topics=[topic])).topics
        assert about.is_internal
        assert len(about.partitions) == 3
        resource = DescribeConfigsResource(
            resource_type=TOPIC, resource_name="__transaction_state", configuration_keys=None
        )
        (described,) = wire.ask(DescribeConfigsRequest(resources=[resource])).results
        configs = {each.name: each.value for each in described.configs}
        assert configs["cleanup.policy"] == "compact"
        assert configs["compression.type"] == "uncompressed"
        assert configs["unclean.leader.election.enable"] == "false"
        assert configs["min.insync.replicas"] == "1"
        assert configs["segment.bytes"] == "1048576"


def test_a_key_of_share_state_is_checked(make_broker: MakeBroker) -> None:
    """Kafka answers the same for a wrong key. It has coordinators for a right one."""
    topic_id = "AAAAAAAAAAAAAAAAAAAAAA"
    with Wire(make_broker().bootstrap) as wire:

        def find(key: str) -> int:
            request = FindCoordinatorRequest(key_type=SHARE, coordinator_keys=[key])
            (answer,) = wire.ask(request).coordinators
            code: int = answer.error_code
            return code

        for wrong in ("", "g", "g:0", f" :{topic_id}:0", "g:short:0", f"g:{topic_id}:x"):
            assert find(wrong) == ErrorCode.INVALID_REQUEST, wrong
        for right in (f"g:{topic_id}:0", f"a:b:{topic_id}:11"):
            assert find(right) == ErrorCode.COORDINATOR_NOT_AVAILABLE, right


def test_an_id_without_a_name_is_refused(wire: Wire) -> None:
    producer = TransactionalProducer(wire, "")
    assert producer.try_init().error_code == ErrorCode.INVALID_REQUEST
    assert producer.try_end(commits=True).error_code == ErrorCode.INVALID_REQUEST
    assert producer.add_offsets("g") == ErrorCode.INVALID_REQUEST
    assert producer.describe().error_code == ErrorCode.INVALID_REQUEST


def test_before_there_is_a_coordinator_clients_are_sent_away(make_broker: MakeBroker) -> None:
    with Wire(make_broker().bootstrap) as wire:
        wire.create_topic("orders")
        producer = TransactionalProducer(wire, "t")
        assert producer.try_init().error_code == ErrorCode.NOT_COORDINATOR
        assert producer.try_end(commits=True).error_code == ErrorCode.NOT_COORDINATOR
        assert producer.add("orders", 0) == [ErrorCode.NOT_COORDINATOR]
        assert producer.add_offsets("g") == ErrorCode.NOT_COORDINATOR
        assert producer.describe().error_code == ErrorCode.NOT_COORDINATOR
        assert wire.ask(ListTransactionsRequest()).transaction_states == []


# Identity


def test_each_instance_of_a_producer_fences_the_one_before(
    wire: Wire, producer: TransactionalProducer
) -> None:
    topic = f"{producer.id}-topic"
    wire.create_topic(topic)
    second = TransactionalProducer(wire, producer.id)
    second.init()
    assert second.producer_id == producer.producer_id
    assert second.epoch > producer.epoch
    fenced = ErrorCode.PRODUCER_FENCED
    assert producer.add(topic, 0) == [fenced]
    assert producer.add_offsets("g") == fenced
    assert producer.add_offsets("g", version=1) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.try_end(commits=True).error_code == fenced
    old = producer.try_end(commits=True, version=1)
    assert old.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    late = producer.try_init(producer_id=producer.producer_id, producer_epoch=producer.epoch)
    assert late.error_code == fenced
    assert (late.producer_id, late.producer_epoch) == (-1, -1)
    assert second.add(topic, 0) == [0]


def test_a_new_instance_aborts_what_the_one_before_left_open(
    wire: Wire, producer: TransactionalProducer
) -> None:
    topic = f"{producer.id}-topic"
    wire.create_topic(topic, 2)
    assert producer.add(topic, 0, 1) == [0, 0]
    second = TransactionalProducer(wire, producer.id)
    assert second.try_init().error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    second.init()
    assert second.describe().transaction_state == "Empty"
    assert producer.try_end(commits=True).error_code == ErrorCode.PRODUCER_FENCED
    assert second.try_end(commits=True).error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(wire: Wire, name: str, timeout_ms: int) -> None:
    producer = TransactionalProducer(wire, name)
    find_coordinator(wire, name)
    until(lambda: producer.try_init().error_code == 0 or None, "a coordinator that has been loaded")
    answer = producer.try_init(transaction_timeout_ms=timeout_ms)
    assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


def test_many_ids_have_producer_ids_of_their_own(make_broker: MakeBroker) -> None:
    """More than the broker gets from the controller at a time."""
    with Wire(make_broker().bootstrap) as wire:
        find_coordinator(wire, "t0")
        producers = [TransactionalProducer(wire, f"t{number}") for number in range(1100)]
        for producer in producers:
            producer.init()
        assert len({producer.producer_id for producer in producers}) == 1100


def test_only_new_ids_wait_for_their_turn(make_broker: MakeBroker) -> None:
    """The next epoch of an id takes no producer id, however often it is asked for: each task of a
    Spark query begins its transaction so."""
    broker = make_broker({"headwater.producer.ids.per.second.max": "1"})

    def waits() -> bool:
        return any("producer ids a second" in line for line in broker.log_lines)

    with Wire(broker.bootstrap) as wire:
        find_coordinator(wire, "t")
        producer = TransactionalProducer(wire, "t")
        for _ in range(50):
            producer.init()
        assert producer.epoch == 49
        assert not waits()
        for number in range(50):
            wire.send(
                InitProducerIdRequest(
                    transactional_id=f"new-{number}", transaction_timeout_ms=60_000
                )
            )
        until(waits, "a client that has to wait")


# Partitions and ends


@pytest.mark.parametrize("version", [END_V1, END_V2])
@pytest.mark.parametrize("commits", [True, False])
def test_a_transaction_ends_with_a_marker_in_each_partition(
    wire: Wire, producer: TransactionalProducer, version: int, commits: bool
) -> None:
    topic = f"{producer.id}-topic"
    wire.create_topic(topic, 3)
    assert producer.add(topic, 0, 2) == [0, 0]
    ongoing = producer.describe()
    assert ongoing.transaction_state == "Ongoing"
    assert [(each.topic, sorted(each.partitions)) for each in ongoing.topics] == [(topic, [0, 2])]
    assert ongoing.transaction_start_time_ms > 0
    assert ongoing.transaction_timeout_ms == 60_000
    epoch = producer.epoch
    producer.end(commits=commits, version=version)
    assert producer.epoch == (epoch + 1 if version == END_V2 else epoch)
    complete = "CompleteCommit" if commits else "CompleteAbort"
    until(lambda: producer.describe().transaction_state == complete or None, complete)
    assert producer.describe().topics == []
    ends = [wire.offset_at(topic, -1, partition=index).offset for index in range(3)]
    assert ends == [1, 0, 1]


def test_a_repeated_end_is_answered_like_the_first(
    wire: Wire, producer: TransactionalProducer
) -> None:
    topic = f"{producer.id}-topic"
    wire.create_topic(topic)
    producer.added(topic, 0)
    epoch = producer.epoch
    first = producer.end(commits=True)
    producer.epoch = epoch  # the answer was lost
    again = producer.end(commits=True)
    assert (again.producer_id, again.producer_epoch) == (first.producer_id, epoch + 1)
    assert wire.offset_at(topic, -1).offset == 1
    producer.epoch = epoch
    assert producer.try_end(commits=False).error_code == ErrorCode.INVALID_TXN_STATE


def test_nothing_is_added_if_one_of_the_partitions_does_not_exist(
    wire: Wire, producer: TransactionalProducer
) -> None:
    topic = f"{producer.id}-topic"
    wire.create_topic(topic)
    unknown, not_attempted = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
    assert producer.add(topic, 0, 1) == [not_attempted, unknown]
    assert producer.add_as_broker(topic, 0, 1, verify_only=True) == [not_attempted, unknown]
    assert producer.describe().transaction_state == "Empty"


def test_a_producer_cannot_add_internal_topics(wire: Wire, producer: TransactionalProducer) -> None:
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert producer.add("__transaction_state", 0) == [refused]
    assert producer.describe().transaction_state == "Empty"


def test_brokers_add_and_verify_for_many_transactions_at_once(
    wire: Wire, producer: TransactionalProducer
) -> None:
    topic = f"{producer.id}-topic"
    wire.create_topic(topic, 2)
    other = TransactionalProducer(wire, f"{producer.id}-other")
    other.init()
    assert producer.add_as_broker(topic, 0, verify_only=True) == [ErrorCode.TRANSACTION_ABORTABLE]
    assert producer.add_as_broker(topic, 0, verify_only=False) == [0]
    assert producer.add_as_broker(topic, 0, 1, verify_only=True) == [
        0,
        ErrorCode.TRANSACTION_ABORTABLE,
    ]

    def transaction(who: TransactionalProducer, behind: int = 0) -> AddPartitionsToTxnTransaction:
        return AddPartitionsToTxnTransaction(
            transactional_id=who.id,
            producer_id=who.producer_id,
            producer_epoch=who.epoch - behind,
            topics=[AddPartitionsToTxnTopic(name=topic, partitions=[1])],
        )

    unknown = TransactionalProducer(wire, f"{producer.id}-unknown")
    request = AddPartitionsToTxnRequest(
        transactions=[
            transaction(producer),
            transaction(other, behind=1),
            transaction(unknown),
        ]
    )
    answer = wire.ask(request, BROKERS_ADD)
    codes = {
        result.transactional_id: result.topic_results[0]
        .results_by_partition[0]
        .partition_error_code
        for result in answer.results_by_transaction
    }
    assert codes == {
        producer.id: 0,
        other.id: ErrorCode.PRODUCER_FENCED,
        unknown.id: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    }


def test_the_offsets_of_a_group_are_part_of_a_transaction(
    wire: Wire, producer: TransactionalProducer
) -> None:
    wire.await_coordinator("billing")
    assert producer.add_offsets("billing") == 0
    ((topic, partitions),) = [(each.topic, each.partitions) for each in producer.describe().topics]
    assert topic == "__consumer_offsets"
    (index,) = partitions
    before = wire.offset_at(topic, -1, partition=index).offset
    producer.end(commits=True, version=END_V1)
    until(
        lambda: wire.offset_at(topic, -1, partition=index).offset == before + 1 or None,
        "a marker in the groups' topic",
    )


def test_a_topic_that_is_deleted_does_not_hold_up_the_end(
    wire: Wire, producer: TransactionalProducer
) -> None:
    topic = f"{producer.id}-topic"
    wire.create_topic(topic)
    producer.added(topic, 0)
    gone = DeleteTopicState(name=topic, topic_id=bytes(16))
    request = DeleteTopicsRequest(topics=[gone], timeout_ms=10_000)
    assert wire.ask(request).responses[0].error_code == 0
    producer.end(commits=True)
    until(lambda: producer.describe().transaction_state == "CompleteCommit" or None, "the end")


def test_a_transaction_that_takes_too_long_is_aborted(make_broker: MakeBroker) -> None:
    interval = "transaction.abort.timed.out.transaction.cleanup.interval.ms"
    with Wire(make_broker({interval: "20"}).bootstrap) as wire:
        wire.create_topic("orders")
        producer = TransactionalProducer(wire, "t")
        producer.init(transaction_timeout_ms=50)
        producer.added("orders", 0)
        until(lambda: producer.describe().transaction_state == "CompleteAbort" or None, "an abort")
        assert wire.offset_at("orders", -1).offset == 1
        fenced = producer.try_end(commits=True, version=END_V1)
        assert fenced.error_code == ErrorCode.PRODUCER_FENCED
        # A client of version 2 that lost an answer has the same epoch, and asked for an abort.
        late = producer.try_end(commits=True)
        assert late.error_code == ErrorCode.INVALID_TXN_STATE
        producer.init()


def test_an_id_that_nobody_uses_expires(make_broker: MakeBroker) -> None:
    settings = {
        "transactional.id.expiration.ms": "50",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "20",
    }
    with Wire(make_broker(settings).bootstrap) as wire:
        producer = TransactionalProducer(wire, "t")
        producer.init()
        not_found = ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        until(lambda: producer.describe().error_code == not_found or None, "the end of the id")
        assert producer.try_end(commits=True).error_code == ErrorCode.INVALID_PRODUCER_ID_MAPPING


# Administration


def test_transactions_are_listed_by_every_filter(make_broker: MakeBroker) -> None:
    with Wire(make_broker().bootstrap) as wire:
        wire.create_topic("orders")
        idle, open_ = TransactionalProducer(wire, "a-idle"), TransactionalProducer(wire, "b-open")
        idle.init()
        open_.init()
        open_.added("orders", 0)

        def listed(version: int = 2, **filters: Any) -> list[str]:
            answer = wire.ask(ListTransactionsRequest(**filters), version)
            assert answer.error_code == 0
            return sorted(each.transactional_id for each in answer.transaction_states)

        assert listed(0) == ["a-idle", "b-open"]
        assert listed(state_filters=["Ongoing"]) == ["b-open"]
        assert listed(state_filters=["Ongoing", "Empty"]) == ["a-idle", "b-open"]
        assert listed(state_filters=["Nonsense"]) == []
        assert listed(producer_id_filters=[idle.producer_id]) == ["a-idle"]
        assert listed(duration_filter=3_600_000) == ["a-idle"]  # it began before all time
        assert listed(transactional_id_pattern="b-.*") == ["b-open"]
        assert listed(transactional_id_pattern="") == ["a-idle", "b-open"]
        answer = wire.ask(ListTransactionsRequest(state_filters=["Ongoing", "Nonsense"]))
        assert answer.unknown_state_filters == ["Nonsense"]
        (state,) = answer.transaction_states
        assert (state.producer_id, state.transaction_state) == (open_.producer_id, "Ongoing")
        bad = wire.ask(ListTransactionsRequest(transactional_id_pattern="("))
        assert bad.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
        describe = DescribeTransactionsRequest(transactional_ids=["b-open", "nobody", ""])
        states = wire.ask(describe).transaction_states
        assert [(each.transactional_id, each.error_code) for each in states] == [
            ("b-open", 0),
            ("nobody", ErrorCode.TRANSACTIONAL_ID_NOT_FOUND),
            ("", ErrorCode.INVALID_REQUEST),
        ]


# Restarts


@pytest.mark.parametrize("buffer_bytes", ["5242880", "1"])
def test_open_transactions_survive_a_restart(make_broker: MakeBroker, buffer_bytes: str) -> None:
    broker = make_broker({"transaction.state.log.load.buffer.size": buffer_bytes})
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("orders")
        producers = [TransactionalProducer(wire, f"t{number}") for number in range(20)]
        for producer in producers:
            producer.init()
        for producer in producers[:10]:
            producer.added("orders", 0)
        before = [producer.describe() for producer in producers]
    broker.restart()
    with Wire(broker.bootstrap) as wire:
        find_coordinator(wire, "t0")
        until(lambda: wire.ask(ListTransactionsRequest()).error_code == 0 or None, "a load")
        for producer, state in zip(producers, before, strict=True):
            producer.wire = wire
            assert producer.describe() == state
        producers[0].end(commits=True)
        producers[1].end(commits=False)
        assert wire.offset_at("orders", -1).offset == 2


def test_what_was_being_ended_is_ended_after_a_restart(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("orders")
        producer = TransactionalProducer(wire, "t")
        producer.init()
        producer.added("orders", 0)
        request = EndTxnRequest(
            transactional_id="t",
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=True,
        )
        wire.send(request, END_V2)
    broker.restart()
    with Wire(broker.bootstrap) as wire:
        find_coordinator(wire, "t")
        producer.wire = wire
        until(lambda: producer.describe().error_code == 0 or None, "a load")
        state = producer.describe().transaction_state
        if state == "Ongoing":  # the request was never read
            producer.end(commits=True)
        until(lambda: producer.describe().transaction_state == "CompleteCommit" or None, "the end")
        assert wire.offset_at("orders", -1).offset == 1


# Versions


def test_two_phase_commit_is_offered_only_when_it_is_switched_on(make_broker: MakeBroker) -> None:
    def newest(broker: EmbeddedBroker) -> int:
        with Wire(broker.bootstrap) as wire:
            (found,) = [
                each.max_version
                for each in wire.api_versions().api_keys
                if each.api_key == ApiKey.INIT_PRODUCER_ID
            ]
            version: int = found
            return version

    assert newest(make_broker()) == UNSTABLE_INIT - 1
    unstable = {"unstable.api.versions.enable": "true"}
    broker = make_broker(unstable)
    assert newest(broker) == UNSTABLE_INIT
    with Wire(broker.bootstrap) as wire:
        producer = TransactionalProducer(wire, "t")
        producer.init(version=UNSTABLE_INIT)
        refused = producer.try_init(version=UNSTABLE_INIT, enable_2pc=True)
        assert refused.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    broker = make_broker(unstable | {"transaction.two.phase.commit.enable": "true"})
    with Wire(broker.bootstrap) as wire:
        wire.create_topic("orders")
        producer = TransactionalProducer(wire, "t")
        producer.init(version=UNSTABLE_INIT, enable_2pc=True, transaction_timeout_ms=-1)
        producer.added("orders", 0)
        assert producer.describe().transaction_timeout_ms == 2**31 - 1
        writer = (producer.producer_id, producer.epoch)
        kept = producer.init(version=UNSTABLE_INIT, enable_2pc=True, keep_prepared_txn=True)
        assert (kept.ongoing_txn_producer_id, kept.ongoing_txn_producer_epoch) == writer
        assert producer.describe().transaction_state == "Ongoing"
        producer.end(commits=True)
        until(lambda: producer.describe().transaction_state == "CompleteCommit" or None, "the end")
        assert wire.offset_at("orders", -1).offset == 1


def test_the_level_may_change_while_transactions_are_open(make_broker: MakeBroker) -> None:
    """Each is ended by the version of its client, before and after a restart at another level."""
    broker = make_broker({"transaction.state.log.num.partitions": "1"})

    def set_level(level: int) -> None:
        kind = UpgradeType.SAFE_DOWNGRADE if level < 2 else UpgradeType.UPGRADE
        with Admin(broker.bootstrap) as admin:
            update = FeatureUpdate(level, kind)
            found = admin.update_features({"transaction.version": update})
            assert found == {"transaction.version": None}

    with Wire(broker.bootstrap) as wire:
        wire.create_topic("orders")
        old, new, late = (TransactionalProducer(wire, name) for name in ("old", "new", "late"))
        for producer in (old, new, late):
            producer.init()
        old.added("orders", 0)
        assert old.produce("orders", b"0", version=PRODUCE_V1) == 0
        assert new.produce("orders", b"1") == 0
        assert late.produce("orders", b"2") == 0
        set_level(0)
        epoch = new.epoch
        new.end(commits=True)
        assert new.epoch == epoch + 1
    broker.restart()
    with Wire(broker.bootstrap) as wire:
        for producer in (old, new, late):
            find_coordinator(wire, producer.id)
            producer.wire = wire
        old.end(commits=True, version=END_V1)
        set_level(2)
        late.end(commits=False)
        assert new.produce("orders", b"3") == 0
        new.end(commits=True)
        assert old.init().error_code == 0
        until(
            lambda: wire.offset_at("orders", -1, isolation_level=1).offset == 8 or None,
            "the end of all transactions",
        )


def test_an_idempotent_producer_needs_no_coordinator(wire: Wire) -> None:
    answer = wire.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
    assert (answer.error_code, answer.producer_epoch) == (0, 0)
