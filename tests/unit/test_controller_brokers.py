"""Brokers come, are heard of, fall silent and go; partitions follow."""

from __future__ import annotations

import pytest

from headwater.controller.features import FeatureUpdate
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import NO_LEADER
from headwater.metadata.model import DIRECTORY_UNASSIGNED, RECOVERING
from headwater.metadata.records import RecordType
from headwater.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from headwater.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
)
from headwater.protocol.messages.broker_registration import Feature
from headwater.protocol.messages.controller_registration import ControllerRegistrationRequest
from headwater.protocol.messages.controller_registration import Feature as ControllerLevels
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest
from headwater.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from headwater.protocol.records.metadata_topics import PartitionChangeRecord
from tests.support.controllers import Bench, directory_of


def refusal(bench: Bench, broker_id: int, **changes: object) -> ErrorCode:
    request = bench.registration(broker_id, life=9)
    for name, value in changes.items():
        setattr(request, name, value)
    with pytest.raises(ApiError) as refused:
        bench.machine.decide_register_broker(request, bench.now)
    return refused.value.code


# Registration


def test_a_broker_is_registered_fenced_and_taken_in_when_it_has_caught_up() -> None:
    bench = Bench()
    epoch = bench.do(bench.machine.decide_register_broker(bench.registration(1), bench.now))
    assert bench.machine.image.brokers[1].fenced
    assert bench.machine.image.brokers[1].epoch == epoch
    behind = bench.heartbeat(1, offset=bench.offset - 2)
    reply = bench.do(bench.machine.decide_heartbeat(behind, bench.now))
    assert (reply.is_caught_up, reply.is_fenced) == (False, True)
    reply = bench.do(bench.machine.decide_heartbeat(bench.heartbeat(1), bench.now))
    assert (reply.is_caught_up, reply.is_fenced) == (True, False)
    assert bench.machine.image.brokers[1].is_active


def test_a_brokers_epoch_is_where_the_log_stood() -> None:
    bench = Bench([1])
    log_end = bench.offset
    assert bench.join(2) == log_end


def test_the_same_broker_registering_again_keeps_its_epoch() -> None:
    bench = Bench([1])
    epoch = bench.machine.image.brokers[1].epoch
    again = bench.do(bench.machine.decide_register_broker(bench.registration(1), bench.now))
    assert again == epoch
    assert not bench.machine.image.brokers[1].fenced


def test_another_broker_of_the_same_id_waits_until_the_first_is_silent() -> None:
    bench = Bench([1])
    assert refusal(bench, 1) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    bench.now += 60
    assert bench.do(bench.machine.decide_fence_stale(bench.now)) == 1
    bench.join(1, life=2)
    assert not bench.machine.image.brokers[1].fenced


def test_the_controllers_own_broker_need_not_wait_for_its_last_life() -> None:
    bench = Bench([1], node_id=1)
    bench.join(1, life=2)
    assert bench.machine.image.brokers[1].is_active


def test_another_host_with_the_id_of_the_controllers_broker_is_refused() -> None:
    bench = Bench([1], node_id=1)
    assert refusal(bench, 1) is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_registration_that_cannot_tell_of_a_clean_stop_counts_as_unclean() -> None:
    bench = Bench([1, 2])
    bench.create("a", -1, -1, assignments=[(0, [1])])
    bench.fence(1)
    assert bench.partition("a").elr == (1,)
    request = bench.registration(1, life=2)
    bench.do(bench.machine.decide_register_broker(request, bench.now, tells_clean_stops=False))
    assert bench.partition("a").elr == ()


def test_a_broker_that_was_unregistered_comes_back_as_no_eligible_leader() -> None:
    """It may come back with an empty disk."""
    bench = Bench([1, 2])
    bench.create("a", -1, -1, assignments=[(0, [1])])
    bench.fence(1)
    bench.do(bench.machine.decide_unregister_broker(1))
    assert bench.partition("a").elr == (1,)
    bench.join(1, life=2)
    back = bench.partition("a")
    assert (back.leader, back.elr, back.recovery_state) == (1, (), RECOVERING)


def test_a_broker_must_say_which_metadata_versions_it_supports() -> None:
    bench = Bench()
    request = bench.registration(1)
    request.features = [each for each in request.features if each.name != "metadata.version"]
    with pytest.raises(ApiError) as refused:
        bench.machine.decide_register_broker(request, bench.now)
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION
    request.features = [Feature(name="x", min_supported_version=1, max_supported_version=1)]
    with pytest.raises(ApiError) as refused:
        bench.machine.decide_register_broker(request, bench.now)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_broker_that_its_controllers_node_no_longer_has_falls_silent() -> None:
    settings = {
        "process.roles": "controller",
        "listeners": "CONTROLLER://:9093",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "localhost:9093",
    }
    bench = Bench([1], node_id=1, settings=settings)
    bench.now += 60
    assert bench.do(bench.machine.decide_fence_stale(bench.now)) == 1


def test_a_decision_that_was_not_written_is_made_again() -> None:
    bench = Bench([1])
    bench.now += 60
    assert bench.machine.decide_fence_stale(bench.now).reply == 1  # the disk was full
    assert bench.do(bench.machine.decide_fence_stale(bench.now)) == 1
    assert bench.machine.decide_heartbeat(bench.heartbeat(1), bench.now).records
    assert bench.machine.decide_heartbeat(bench.heartbeat(1), bench.now).records


def test_a_controller_that_lacks_a_finalized_level_is_refused() -> None:
    bench = Bench()
    request = ControllerRegistrationRequest(
        controller_id=7,
        incarnation_id=b"i" * 16,
        zk_migration_ready=False,
        features=[
            ControllerLevels(
                name="metadata.version", min_supported_version=7, max_supported_version=25
            )
        ],
    )
    with pytest.raises(ApiError) as refused:
        bench.machine.decide_register_controller(request)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    old = Bench(metadata_version=14)
    with pytest.raises(ApiError) as refused:
        old.machine.decide_register_controller(request)
    assert "metadata.version 15" in str(refused.value)


# Directories


def test_replicas_are_assigned_to_directories() -> None:
    bench = Bench([2])
    request = bench.registration(1)
    other = b"o" * 16
    request.log_dirs = [directory_of(1), other]
    epoch = bench.do(bench.machine.decide_register_broker(request, bench.now))
    bench.unfence(1)
    bench.create("a", -1, -1, assignments=[(0, [1, 2]), (1, [2, 1])])
    topic_id = bench.machine.image.topics["a"].id
    assert bench.partition("a").directory_of(1) == DIRECTORY_UNASSIGNED

    def assign(directory: bytes, *partitions: int, topic: bytes = topic_id) -> list[int]:
        request = AssignReplicasToDirsRequest(
            broker_id=1,
            broker_epoch=epoch,
            directories=[
                AssignReplicasToDirsRequestDirectoryData(
                    id=directory,
                    topics=[
                        AssignReplicasToDirsRequestTopicData(
                            topic_id=topic,
                            partitions=[
                                AssignReplicasToDirsRequestPartitionData(partition_index=index)
                                for index in partitions
                            ],
                        )
                    ],
                )
            ],
        )
        (answer,) = bench.do(bench.machine.decide_assign_replicas_to_dirs(request))
        return [each.error_code for each in answer.topics[0].partitions]

    assert assign(other, 0, 1) == [0, 0]
    before = bench.partition("a")
    assert before.directory_of(1) == other
    assert before.leader_epoch == 0
    assert assign(other, 0) == [0]
    assert bench.partition("a") == before  # nothing is written twice
    assert assign(other, 9) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert assign(other, 0, topic=b"t" * 16) == [ErrorCode.UNKNOWN_TOPIC_ID]
    # A directory that is offline takes its replicas with it.
    assert assign(b"g" * 16, 0) == [0]
    gone = bench.partition("a")
    assert (gone.leader, gone.isr) == (2, (2,))
    epoch += 1
    with pytest.raises(ApiError) as refused:
        assign(other, 0)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_registration_that_does_not_fit_is_refused() -> None:
    bench = Bench([1])
    assert refusal(bench, 2, cluster_id="other") is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert refusal(bench, 2, log_dirs=[]) is ErrorCode.INVALID_REGISTRATION
    assert refusal(bench, 2, log_dirs=[DIRECTORY_UNASSIGNED]) is ErrorCode.INVALID_REGISTRATION
    assert refusal(bench, 2, log_dirs=[b"x" * 16] * 2) is ErrorCode.INVALID_REGISTRATION
    assert refusal(bench, 2, log_dirs=[directory_of(1)]) is ErrorCode.INVALID_REGISTRATION
    assert refusal(bench, 2, features=[]) is ErrorCode.INVALID_REGISTRATION
    old = [Feature(name="metadata.version", min_supported_version=7, max_supported_version=25)]
    assert refusal(bench, 2, features=old) is ErrorCode.UNSUPPORTED_VERSION


def test_a_heartbeat_of_an_old_life_is_refused() -> None:
    bench = Bench([1])
    request = bench.heartbeat(1)
    request.broker_epoch -= 1
    with pytest.raises(ApiError) as refused:
        bench.machine.decide_heartbeat(request, bench.now)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_an_idle_heartbeat_writes_nothing() -> None:
    bench = Bench([1])
    assert not bench.machine.decide_heartbeat(bench.heartbeat(1), bench.now).records


# Silence


def test_a_silent_broker_is_fenced_and_its_partitions_move_in_the_same_batch() -> None:
    bench = Bench([1, 2, 3])
    bench.create("a", -1, -1, assignments=[(0, [1, 2, 3])])
    bench.now += 8.9
    assert bench.machine.decide_fence_stale(bench.now).reply is None
    for broker_id in (2, 3):
        bench.unfence(broker_id)
    bench.now += 0.2
    assert bench.machine.next_fencing() < bench.now
    decision = bench.machine.decide_fence_stale(bench.now)
    assert [record.API for record in decision.records] == [
        RecordType.PARTITION_CHANGE,
        RecordType.BROKER_REGISTRATION_CHANGE,
    ]
    assert bench.do(decision) == 1
    partition = bench.partition("a")
    assert (partition.leader, partition.isr, partition.leader_epoch) == (2, (2, 3), 1)
    assert bench.machine.decide_fence_stale(bench.now).reply is None


def test_sessions_are_whole_again_after_a_failover() -> None:
    bench = Bench([1])
    bench.now += 100
    bench.machine.on_loaded(bench.now)
    assert bench.machine.decide_fence_stale(bench.now).reply is None
    assert bench.machine.next_fencing() > bench.now


# Leaving and coming back


def test_the_last_replica_stays_eligible_and_leads_again() -> None:
    """As Kafka 4.3 writes it when a single node stops cleanly and starts again."""
    bench = Bench([1])
    bench.create("a")
    epoch = bench.machine.image.brokers[1].epoch
    leave = bench.heartbeat(1, want_shut_down=True)
    assert not bench.do(bench.machine.decide_heartbeat(leave, bench.now)).should_shut_down
    gone = bench.partition("a")
    assert (gone.leader, gone.isr, gone.elr, gone.last_known_elr) == (NO_LEADER, (), (1,), (1,))
    assert bench.machine.image.brokers[1].in_controlled_shutdown
    leave = bench.heartbeat(1, want_shut_down=True)
    assert bench.do(bench.machine.decide_heartbeat(leave, bench.now)).should_shut_down
    assert bench.machine.image.brokers[1].fenced
    bench.join(1, life=2, previous_epoch=epoch)
    back = bench.partition("a")
    assert (back.leader, back.isr, back.elr, back.last_known_elr) == (1, (1,), (), ())
    assert (back.leader_epoch, back.recovery_state) == (2, 0)


def test_the_last_replica_after_a_crash_leads_again_as_recovering() -> None:
    """As Kafka 4.3 writes it after kill -9: the end of the log may be lost."""
    bench = Bench([1], node_id=1)
    bench.create("a")
    request = bench.registration(1, life=2)
    bench.do(bench.machine.decide_register_broker(request, bench.now, is_own=True))
    gone = bench.partition("a")
    assert (gone.leader, gone.isr, gone.elr, gone.last_known_elr) == (NO_LEADER, (), (), (1,))
    bench.unfence(1)
    back = bench.partition("a")
    assert (back.leader, back.isr, back.recovery_state) == (1, (1,), RECOVERING)


def test_the_last_replica_of_a_partition_that_was_without_a_leader_before_leads_again() -> None:
    """Its leader was lost before eligible leaders were enabled, its log is in doubt since."""
    bench = Bench([1, 2], metadata_version=25)
    bench.create("a", -1, -1, assignments=[(0, [1])])
    bench.fence(1)
    assert (bench.partition("a").leader, bench.partition("a").isr) == (NO_LEADER, (1,))
    raised = FeatureUpdate("eligible.leader.replicas.version", 1)
    bench.do(bench.machine.decide_update_features([raised], validate_only=False))
    bench.do(bench.machine.decide_register_broker(bench.registration(1, life=2), bench.now))
    gone = bench.partition("a")
    assert (gone.isr, gone.elr, gone.last_known_elr) == ((), (), (1,))
    bench.unfence(1)
    back = bench.partition("a")
    assert (back.leader, back.recovery_state, back.last_known_elr) == (1, RECOVERING, ())


def test_a_broker_that_leads_nothing_may_go_at_once() -> None:
    bench = Bench([1, 2])
    leave = bench.heartbeat(1, want_shut_down=True)
    assert bench.do(bench.machine.decide_heartbeat(leave, bench.now)).should_shut_down


def test_a_leaving_broker_waits_until_the_others_know() -> None:
    bench = Bench([1, 2])
    bench.create("a", -1, -1, assignments=[(0, [1, 2])])
    known = bench.offset - 1
    leave = bench.heartbeat(1, want_shut_down=True)
    assert not bench.do(bench.machine.decide_heartbeat(leave, bench.now)).should_shut_down
    assert bench.partition("a").leader == 2
    bench.do(bench.machine.decide_heartbeat(bench.heartbeat(2, offset=known), bench.now))
    leave = bench.heartbeat(1, want_shut_down=True)
    assert not bench.do(bench.machine.decide_heartbeat(leave, bench.now)).should_shut_down
    bench.unfence(2)
    leave = bench.heartbeat(1, want_shut_down=True)
    assert bench.do(bench.machine.decide_heartbeat(leave, bench.now)).should_shut_down


def test_a_failed_directory_takes_its_leaders_along() -> None:
    bench = Bench([1, 2])
    bench.create("a", -1, -1, assignments=[(0, [1, 2])])
    other = b"o" * 16
    request = bench.registration(1)
    request.log_dirs = [directory_of(1), other]
    bench.do(bench.machine.decide_register_broker(request, bench.now))
    failed = bench.heartbeat(1, offline=[directory_of(1)])
    bench.do(bench.machine.decide_heartbeat(failed, bench.now))
    assert bench.partition("a").leader == 2
    assert bench.machine.image.brokers[1].log_dirs == (other,)


def test_an_unregistered_broker_is_in_nobodys_in_sync_set() -> None:
    bench = Bench([1, 2])
    bench.create("a", -1, -1, assignments=[(0, [1, 2])])
    bench.do(bench.machine.decide_unregister_broker(1))
    assert 1 not in bench.machine.image.brokers
    assert bench.partition("a").isr == (2,)
    with pytest.raises(ApiError) as refused:
        bench.machine.decide_unregister_broker(1)
    assert refused.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


# Elections


def elect(bench: Bench, kind: int, *topics: tuple[str, list[int]]) -> dict[tuple[str, int], int]:
    request = ElectLeadersRequest(
        election_type=kind,
        topic_partitions=[TopicPartitions(topic=t, partitions=p) for t, p in topics] or None,
    )
    results = bench.do(bench.machine.decide_elect_leaders(request))
    return {
        (result.topic, answer.partition_id): answer.error_code
        for result in results
        for answer in result.partition_result
    }


def test_a_preferred_leader_is_elected_when_asked() -> None:
    bench = Bench([1, 2])
    bench.create("a", -1, -1, assignments=[(0, [1, 2]), (1, [2, 1])])
    bench.fence(1)
    assert bench.partition("a", 0).leader == 2
    away = elect(bench, 0, ("a", [0]))
    assert away == {("a", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    bench.unfence(1)
    # Unfenced is not yet in sync.
    assert elect(bench, 0, ("a", [0])) == {("a", 0): ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    alter(bench, 2, isr=[2, 1])
    assert elect(bench, 0, ("a", [0, 1])) == {
        ("a", 0): 0,
        ("a", 1): ErrorCode.ELECTION_NOT_NEEDED,
    }
    assert bench.partition("a", 0).leader == 1
    assert elect(bench, 0) == {}


def test_what_does_not_exist_cannot_be_led() -> None:
    bench = Bench([1])
    bench.create("a")
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    asked = elect(bench, 0, ("a", [7]), ("never", [0]))
    assert asked == {("a", 7): unknown, ("never", 0): unknown}
    with pytest.raises(ApiError) as refused:
        elect(bench, 5, ("a", [0]))
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_an_unclean_election_takes_any_live_replica() -> None:
    bench = Bench([1, 2])
    bench.create("a", -1, -1, assignments=[(0, [1, 2])])
    bench.fence(2)
    bench.fence(1)
    bench.unfence(2)
    assert bench.partition("a").leader == NO_LEADER
    assert elect(bench, 1, ("a", [0])) == {("a", 0): 0}
    partition = bench.partition("a")
    assert (partition.leader, partition.isr, partition.recovery_state) == (2, (2,), RECOVERING)
    assert elect(bench, 1, ("a", [0])) == {("a", 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_without_a_live_replica_nobody_is_elected() -> None:
    bench = Bench([1, 2, 3])
    bench.create("a", -1, -1, assignments=[(0, [1, 2])])
    bench.fence(1)
    bench.fence(2)
    nobody = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert elect(bench, 1, ("a", [0])) == {("a", 0): nobody}


def test_a_leader_whose_change_ends_its_own_replica_hears_of_the_new_one() -> None:
    bench = Bench([1, 2])
    bench.create("a", -1, -1, assignments=[(0, [1, 2])])
    bench.fence(2)
    bench.unfence(2)
    topic = bench.machine.image.topics["a"]
    moved = PartitionChangeRecord(partition_id=0, topic_id=topic.id, removing_replicas=[1])
    bench.machine.apply([moved], bench.offset)  # a reassignment that ends once 2 is in sync
    bench.offset += 1
    assert alter(bench, 1, isr=[1, 2]).error_code == ErrorCode.NEW_LEADER_ELECTED
    after = bench.partition("a")
    assert (after.leader, after.isr, after.replicas) == (2, (2,), (2,))


def test_where_a_topic_allows_it_an_unclean_leader_is_taken_unasked() -> None:
    bench = Bench([1, 2])
    configs: dict[str, str | None] = {"unclean.leader.election.enable": "true"}
    bench.create("a", -1, -1, assignments=[(0, [1, 2])], configs=configs)
    bench.create("b", -1, -1, assignments=[(0, [1, 2])])
    bench.fence(2)
    bench.fence(1)
    bench.unfence(2)
    assert bench.partition("a").leader == 2
    assert bench.partition("b").leader == NO_LEADER
    assert not bench.machine.decide_elect_unclean().records


def test_leadership_goes_back_to_preferred_replicas() -> None:
    bench = Bench([1, 2])
    bench.create("a", -1, -1, assignments=[(0, [1, 2])])
    bench.fence(1)
    bench.unfence(1)
    alter(bench, 2, isr=[2, 1])
    bench.do(bench.machine.decide_balance_leaders())
    assert bench.partition("a").leader == 1


def test_all_leaderships_of_a_node_go_back_at_once() -> None:
    """Not some thousand in each leader.imbalance.check.interval.seconds."""
    bench = Bench([1, 2])
    count = 1200
    bench.create("a", -1, -1, assignments=[(index, [1, 2]) for index in range(count)])
    bench.fence(1)
    bench.unfence(1)
    topic = bench.machine.image.topics["a"]
    back = [
        PartitionChangeRecord(partition_id=index, topic_id=topic.id, isr=[2, 1])
        for index in range(count)
    ]
    bench.machine.apply(back, bench.offset)
    bench.offset += count
    bench.do(bench.machine.decide_balance_leaders())
    assert {bench.partition("a", index).leader for index in range(count)} == {1}


# The in-sync set


def alter(
    bench: Bench,
    leader: int,
    *,
    isr: list[int],
    leader_epoch: int | None = None,
    partition_epoch: int | None = None,
    broker_epochs: dict[int, int] | None = None,
    recovery_state: int = 0,
) -> AlterPartitionResponsePartitionData:
    state = bench.partition("a")
    request = AlterPartitionRequest(
        broker_id=leader,
        broker_epoch=bench.machine.image.brokers[leader].epoch,
        topics=[
            AlterPartitionRequestTopicData(
                topic_id=bench.machine.image.topics["a"].id,
                partitions=[
                    AlterPartitionRequestPartitionData(
                        partition_index=0,
                        leader_epoch=state.leader_epoch if leader_epoch is None else leader_epoch,
                        partition_epoch=state.partition_epoch
                        if partition_epoch is None
                        else partition_epoch,
                        new_isr_with_epochs=[
                            BrokerState(
                                broker_id=member,
                                broker_epoch=(broker_epochs or {}).get(member, -1),
                            )
                            for member in isr
                        ],
                        leader_recovery_state=recovery_state,
                    )
                ],
            )
        ],
    )
    (topic,) = bench.do(bench.machine.decide_alter_partition(request))
    (answer,) = topic.partitions
    return answer


@pytest.fixture
def pair() -> Bench:
    bench = Bench([1, 2, 3])
    bench.create("a", -1, -1, assignments=[(0, [1, 2])])
    return bench


def test_a_leader_may_shrink_and_grow_its_in_sync_set(pair: Bench) -> None:
    answer = alter(pair, 1, isr=[1])
    assert (answer.error_code, answer.isr, answer.partition_epoch) == (0, [1], 1)
    assert answer.leader_epoch == 0, "the leader stays, and so does its epoch"
    assert alter(pair, 1, isr=[1, 2]).isr == [1, 2]


def test_a_claim_that_changes_nothing_writes_nothing(pair: Bench) -> None:
    before = pair.offset
    assert alter(pair, 1, isr=[1, 2]).error_code == 0
    assert pair.offset == before


def test_claims_out_of_date_or_impossible_are_refused(pair: Bench) -> None:
    alter(pair, 1, isr=[1])
    assert alter(pair, 1, isr=[1], leader_epoch=9).error_code == ErrorCode.NOT_CONTROLLER
    assert alter(pair, 1, isr=[1], partition_epoch=9).error_code == ErrorCode.NOT_CONTROLLER
    assert alter(pair, 1, isr=[1], leader_epoch=-1).error_code == ErrorCode.FENCED_LEADER_EPOCH
    stale = alter(pair, 1, isr=[1, 2], partition_epoch=0)
    assert stale.error_code == ErrorCode.INVALID_UPDATE_VERSION
    invalid = ErrorCode.INVALID_REQUEST
    assert alter(pair, 2, isr=[2]).error_code == invalid, "not the leader"
    assert alter(pair, 1, isr=[2]).error_code == invalid, "without itself"
    assert alter(pair, 1, isr=[1, 3]).error_code == invalid, "not a replica"
    assert alter(pair, 1, isr=[1, 1]).error_code == invalid, "twice"
    assert alter(pair, 1, isr=[1], recovery_state=1).error_code == invalid, "recovered already"


def test_a_broker_that_is_not_ready_does_not_join_the_in_sync_set(pair: Bench) -> None:
    pair.fence(2)
    assert pair.partition("a").isr == (1,)
    assert alter(pair, 1, isr=[1, 2]).error_code == ErrorCode.INELIGIBLE_REPLICA
    pair.unfence(2)
    epoch = pair.machine.image.brokers[2].epoch
    old = alter(pair, 1, isr=[1, 2], broker_epochs={2: epoch - 1})
    assert old.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert alter(pair, 1, isr=[1, 2], broker_epochs={2: epoch}).error_code == 0


def test_below_min_insync_those_that_leave_stay_eligible() -> None:
    bench = Bench([1, 2, 3])
    bench.create("a", -1, -1, assignments=[(0, [1, 2, 3])], configs={"min.insync.replicas": "2"})
    bench.fence(3)
    assert bench.partition("a").elr == (), "two are enough"
    bench.fence(2)
    assert bench.partition("a").elr == (2,)
    bench.fence(1)
    partition = bench.partition("a")
    assert (partition.isr, partition.elr, partition.leader) == ((), (1, 2), NO_LEADER)
    bench.unfence(3)
    assert bench.partition("a").leader == NO_LEADER, "3 may lack what 1 and 2 committed"
    bench.unfence(2)
    partition = bench.partition("a")
    assert (partition.leader, partition.isr, partition.elr) == (2, (2,), (1,))
    assert partition.recovery_state == 0
    bench.unfence(3)
    answer = alter(bench, 2, isr=[2, 3])
    assert answer.error_code == 0
    assert bench.partition("a").elr == ()


# Producer ids


def test_producer_ids_come_in_blocks_that_never_overlap() -> None:
    bench = Bench([1])
    epoch = bench.machine.image.brokers[1].epoch
    blocks = [
        bench.do(bench.machine.decide_allocate_producer_ids(broker_id=1, broker_epoch=epoch))
        for _ in range(2)
    ]
    assert blocks == [(0, 1000), (1000, 1000)]
    with pytest.raises(ApiError) as refused:
        bench.machine.decide_allocate_producer_ids(broker_id=1, broker_epoch=epoch - 1)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


def test_a_broker_with_very_many_partitions_is_fenced_in_parts() -> None:
    bench = Bench([1])
    for number in range(3):
        bench.create(f"t{number}", 5_000)
    bench.now += 60
    decision = bench.machine.decide_fence_stale(bench.now)
    assert [len(batch) for batch in decision.batches()] == [10_000, 5_001]


def test_an_election_knows_the_settings_of_the_topic_that_is_there_now() -> None:
    bench = Bench([1, 2])
    unclean: dict[str, str | None] = {"unclean.leader.election.enable": "true"}
    bench.create("a", -1, -1, assignments=[(0, [1, 2])], configs=unclean)
    bench.fence(2)
    bench.do(
        bench.machine.decide_delete_topics(DeleteTopicsRequest(topic_names=["a"], timeout_ms=0))
    )
    bench.unfence(2)
    bench.create("a", -1, -1, assignments=[(0, [1, 2])])
    bench.fence(2)
    bench.fence(1)
    bench.unfence(2)
    assert bench.partition("a").leader == NO_LEADER
