"""Groups on a node: log lines, FindCoordinator, switching the newer protocol off, large batches."""

from __future__ import annotations

from collections import Counter

import pytest

from harness.wire import Wire, until
from headwater.errors import ErrorCode
from headwater.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from headwater.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from headwater.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headwater.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headwater.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from headwater.protocol.messages.sync_group import SyncGroupRequest
from tests.conftest import MakeBroker

AT_ONCE = {"group.initial.rebalance.delay.ms": "0"}
BROKER_LOGGER = 8  # a resource type of IncrementalAlterConfigs
BY_NAME = 9  # the newest version of OffsetCommit that knows topics by name


def find_coordinator(wire: Wire, group: str) -> None:
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group])

    def found() -> bool | None:
        (answer,) = wire.ask(request).coordinators
        if answer.error_code:
            return None
        loaded = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
        return True if wire.ask(loaded).groups[0].error_code == 0 else None

    until(found, f"a coordinator of {group}")


def test_a_normal_join_and_leave_write_no_line_to_the_log(make_broker: MakeBroker) -> None:
    broker = make_broker(AT_ONCE)
    join_and_leave(broker.bootstrap)
    assert not [line for line in broker.log_lines if "billing" in line]


def test_at_level_debug_the_log_has_the_reasons_that_members_give(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker(AT_ONCE)
    with Wire(broker.bootstrap) as wire:
        level = AlterableConfig(name="root", config_operation=0, value="DEBUG")
        logger = AlterConfigsResource(
            resource_type=BROKER_LOGGER, resource_name="1", configs=[level]
        )
        request = IncrementalAlterConfigsRequest(resources=[logger], validate_only=False)
        assert wire.ask(request).responses[0].error_code == 0
    join_and_leave(broker.bootstrap)
    said = [line.rstrip() for line in broker.log_lines if "group billing" in line]
    assert len(said) == 2
    assert "rebalance to generation 1: app-" in said[0]
    assert said[0].endswith(r"joins ('deploy\nof Monday')")
    assert "rebalance to generation 2: app-" in said[1]
    assert said[1].endswith("leaves ('done')")


def join_and_leave(bootstrap: str) -> None:
    with Wire(bootstrap, client_id="app") as wire:
        find_coordinator(wire, "billing")
        request = JoinGroupRequest(
            group_id="billing",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
            reason="deploy\nof Monday",
        )
        request.member_id = wire.ask(request).member_id
        joined = wire.ask(request)
        assert joined.error_code == 0
        synced = SyncGroupRequest(
            group_id="billing",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[],
        )
        assert wire.ask(synced).error_code == 0
        leaving = MemberIdentity(member_id=joined.member_id, reason="done")
        wire.ask(LeaveGroupRequest(group_id="billing", members=[leaving]))


def test_the_newer_protocol_can_be_switched_off(make_broker: MakeBroker) -> None:
    broker = make_broker({"group.coordinator.rebalance.protocols": "classic"})
    with Wire(broker.bootstrap) as wire:
        find_coordinator(wire, "billing")
        answer = wire.ask(
            ConsumerGroupHeartbeatRequest(
                group_id="billing",
                member_id="m",
                member_epoch=0,
                rebalance_timeout_ms=1000,
                subscribed_topic_names=["orders"],
                topic_partitions=[],
            )
        )
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert "group.coordinator.rebalance.protocols" in answer.error_message


def test_a_deleted_topic_takes_more_offsets_with_it_than_a_batch_can_hold(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker({"message.max.bytes": "5000", "offsets.topic.num.partitions": "1"})
    groups = [f"billing-{number}" for number in range(200)]
    with Wire(broker.bootstrap) as wire:
        find_coordinator(wire, groups[0])
        for topic in ("goes", "stays"):
            wire.create_topic(topic)
            for group in groups:
                commit(wire, group, topic)
        assert committed(wire, groups) == {"goes": 200, "stays": 200}
        gone = DeleteTopicState(name="goes", topic_id=bytes(16))
        request = DeleteTopicsRequest(topics=[gone], timeout_ms=10_000)
        assert wire.ask(request).responses[0].error_code == 0
        until(lambda: committed(wire, groups) == {"stays": 200} or None, "the offsets to go")
    assert not [line for line in broker.log_lines if "loaded again" in line]


def commit(wire: Wire, group: str, topic: str) -> None:
    offset = OffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=""
    )
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        member_id="",
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[offset])],
    )
    (answer,) = wire.ask(request, BY_NAME).topics
    assert answer.partitions[0].error_code == 0


def committed(wire: Wire, groups: list[str]) -> dict[str, int]:
    """Returns, by topic, how many groups have offsets of it."""
    request = OffsetFetchRequest(
        groups=[OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
    )
    answers = wire.ask(request, BY_NAME).groups
    assert {group.error_code for group in answers} == {0}
    return dict(Counter(topic.name for group in answers for topic in group.topics))


def test_there_is_no_coordinator_before_a_client_looks_for_one(make_broker: MakeBroker) -> None:
    """As in Kafka, the topic is created when a client first looks for a coordinator."""
    with Wire(make_broker().bootstrap) as wire:
        join = JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id="",
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )
        refused = wire.ask(join)
        assert (refused.error_code, refused.protocol_name) == (ErrorCode.NOT_COORDINATOR, None)
        describe = ConsumerGroupDescribeRequest(
            group_ids=["g", ""], include_authorized_operations=False
        )
        unknown, nameless = wire.ask(describe).groups
        assert (unknown.error_code, unknown.error_message) == (ErrorCode.NOT_COORDINATOR, None)
        assert nameless.error_code == ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("version", [1, 2, 3])
def test_find_coordinator_answers_in_kafkas_words(make_broker: MakeBroker, version: int) -> None:
    """Compared with Apache Kafka 4.3.1."""
    with Wire(make_broker().bootstrap) as wire:

        def find(key_type: int = 0) -> tuple[int, str | None]:
            answer = wire.ask(FindCoordinatorRequest(key="billing", key_type=key_type), version)
            return answer.error_code, answer.error_message

        not_yet = (ErrorCode.COORDINATOR_NOT_AVAILABLE, "The coordinator is not available.")
        assert find() == not_yet
        until(lambda: find() == (0, "NONE") or None, "a coordinator")
        for no_type in (-1, 2, 3):  # 2, a share group, is of version 6
            code, message = find(no_type)
            assert code == ErrorCode.INVALID_REQUEST
            assert message is not None
            assert message.startswith(
                "This most likely occurs because of a request being malformed"
            )


def test_newer_versions_of_find_coordinator_explain_only_a_wrong_request(
    make_broker: MakeBroker,
) -> None:
    with Wire(make_broker().bootstrap) as wire:

        def find(key_type: int, version: int) -> tuple[int, str | None]:
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["billing"])
            (answer,) = wire.ask(request, version).coordinators
            return answer.error_code, answer.error_message

        assert find(0, 4) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "")
        until(lambda: find(0, 4) == (0, "") or None, "a coordinator")
        assert find(2, 5) == (ErrorCode.INVALID_REQUEST, "")
        assert (find(3, 4)[1] or "").startswith("This most likely occurs")


def test_groups_begin_anew_when_the_topic_of_the_offsets_was_deleted(
    make_broker: MakeBroker,
) -> None:
    broker = make_broker({"offsets.topic.num.partitions": "1"})
    with Wire(broker.bootstrap) as wire:
        find_coordinator(wire, "billing")
        wire.create_topic("orders")
        commit(wire, "billing", "orders")
        gone = DeleteTopicState(name="__consumer_offsets", topic_id=bytes(16))
        request = DeleteTopicsRequest(topics=[gone], timeout_ms=10_000)
        assert wire.ask(request).responses[0].error_code == 0
        find_coordinator(wire, "billing")
        assert committed(wire, ["billing"]) == {}
        commit(wire, "billing", "orders")
        assert committed(wire, ["billing"]) == {"orders": 1}
        broker.restart()
    with Wire(broker.bootstrap) as wire:
        find_coordinator(wire, "billing")
        assert committed(wire, ["billing"]) == {"orders": 1}
