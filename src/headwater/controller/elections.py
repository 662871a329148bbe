"""Leaders of partitions: elections after brokers change, on request, and by AlterPartition.

All changes go through `partition_change.change`, one record for each partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from headwater.controller.decision import Decision
from headwater.controller.partition_change import Election, change
from headwater.controller.state import ControllerState
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import NO_LEADER, PartitionState, Topic
from headwater.metadata.model import NO_LEADER_CHANGE, RECOVERED, RECOVERING
from headwater.protocol import Message
from headwater.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionResponsePartitionData,
    AlterPartitionResponseTopicData,
    BrokerState,
)
from headwater.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    PartitionResult,
    ReplicaElectionResult,
)
from headwater.protocol.records.metadata_topics import PartitionChangeRecord


class ElectionType(IntEnum):
    PREFERRED = 0
    UNCLEAN = 1


def updates_for(
    state: ControllerState,
    partitions: Iterable[tuple[bytes, int]],
    *,
    leaves: int | None = None,
    joins: int | None = None,
    lost: int | None = None,
) -> list[Message]:
    """Returns the records for partitions affected by a broker that leaves, joins, or was restarted
    without a clean shutdown."""
    records: list[Message] = []
    gone = {leaves, lost}
    for topic_id, index in partitions:
        topic = state.image.topics_by_id[topic_id]
        partition = topic.partitions[index]
        record = change(
            topic_id,
            index,
            partition,
            state.rules(topic, partition, joins=joins, leaves=leaves if lost is None else lost),
            election=_election(state, topic),
            isr=[replica for replica in partition.isr if replica not in gone],
            lost=() if lost is None else (lost,),
        )
        if record is not None:
            records.append(record)
    return records


def _election(state: ControllerState, topic: Topic) -> Election:
    unclean = state.topic_config(topic).unclean_leader_election_enable
    return Election.UNCLEAN if unclean else Election.ONLINE


def partitions_without_leader(state: ControllerState) -> list[tuple[bytes, int]]:
    return [
        (topic.id, index)
        for topic, index, partition in state.image.partitions()
        if partition.leader == NO_LEADER
    ]


def elect_leaders(
    state: ControllerState, request: ElectLeadersRequest
) -> Decision[list[ReplicaElectionResult]]:
    """Elects leaders on request. Without named partitions all are meant, and only those that
    changed or failed are in the reply."""
    try:
        kind = ElectionType(request.election_type)
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"election type {request.election_type}, expected 0 (preferred) or 1 (unclean)",
        ) from None
    asked: list[tuple[str, list[int]]]
    if request.topic_partitions is None:
        asked = [(name, sorted(topic.partitions)) for name, topic in state.image.topics.items()]
    else:
        asked = [(entry.topic, entry.partitions) for entry in request.topic_partitions]
    records: list[Message] = []
    results: list[ReplicaElectionResult] = []
    for name, indexes in asked:
        answers: list[PartitionResult] = []
        results.append(ReplicaElectionResult(topic=name, partition_result=answers))
        for index in indexes:
            try:
                records.append(_elect_leader(state, name, index, kind))
                answers.append(PartitionResult(partition_id=index, error_message=None))
            except ApiError as refusal:
                needless = refusal.code is ErrorCode.ELECTION_NOT_NEEDED
                if not (needless and request.topic_partitions is None):
                    answers.append(
                        PartitionResult(
                            partition_id=index,
                            error_code=refusal.code,
                            error_message=refusal.message,
                        )
                    )
    return Decision(records, results, in_parts=True)


def _elect_leader(
    state: ControllerState, name: str, index: int, kind: ElectionType
) -> PartitionChangeRecord:
    topic = state.image.topics.get(name)
    partition = topic.partitions.get(index) if topic else None
    if topic is None or partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no partition {name}-{index}")
    if kind is ElectionType.PREFERRED:
        needless = partition.leader == partition.preferred_leader
    else:
        needless = partition.leader != NO_LEADER
    if needless:
        raise ApiError(
            ErrorCode.ELECTION_NOT_NEEDED, f"{name}-{index} is led by {partition.leader}"
        )
    is_preferred = kind is ElectionType.PREFERRED
    record = change(
        topic.id,
        index,
        partition,
        state.rules(topic, partition),
        election=Election.PREFERRED if is_preferred else Election.UNCLEAN,
    )
    if record is None and is_preferred:
        raise ApiError(
            ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
            f"broker {partition.preferred_leader}, preferred for {name}-{index}, cannot lead now",
        )
    if record is None:
        raise ApiError(
            ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, f"no replica of {name}-{index} can lead now"
        )
    return record


def balance_leaders(state: ControllerState) -> Decision[None]:
    """Moves leadership back to preferred replicas, where they can lead."""
    records: list[Message] = []
    for topic, index, partition in state.image.partitions():
        if partition.leader == partition.preferred_leader:
            continue
        record = change(
            topic.id,
            index,
            partition,
            state.rules(topic, partition),
            election=Election.PREFERRED,
        )
        if record is not None:
            records.append(record)
    return Decision(records, None, in_parts=True)


def elect_unclean(state: ControllerState) -> Decision[None]:
    """Elects any live replica for partitions without a leader, where their topic allows it."""
    records: list[Message] = []
    for topic_id, index in partitions_without_leader(state):
        topic = state.image.topics_by_id[topic_id]
        if not state.topic_config(topic).unclean_leader_election_enable:
            continue
        partition = topic.partitions[index]
        record = change(
            topic_id, index, partition, state.rules(topic, partition), election=Election.UNCLEAN
        )
        if record is not None:
            records.append(record)
    return Decision(records, None, in_parts=True)


def alter_partition(
    state: ControllerState, request: AlterPartitionRequest
) -> Decision[list[AlterPartitionResponseTopicData]]:
    """Handles a leader's change of in-sync replicas. It may be outdated, so everything is
    checked."""
    state.check_broker_epoch(request.broker_id, request.broker_epoch)
    records: list[Message] = []
    answers: list[AlterPartitionResponseTopicData] = []
    for asked in request.topics:
        answer = AlterPartitionResponseTopicData(topic_id=asked.topic_id)
        answers.append(answer)
        topic = state.image.topics_by_id.get(asked.topic_id)
        for claim in asked.partitions:
            result = AlterPartitionResponsePartitionData(partition_index=claim.partition_index)
            answer.partitions.append(result)
            try:
                if topic is None:
                    raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
                record = _altered(state, request.broker_id, topic, claim, result)
            except ApiError as refusal:
                result.error_code = refusal.code
            else:
                records += [record] if record is not None else []
    return Decision(records, answers, in_parts=True)


def _altered(
    state: ControllerState,
    broker_id: int,
    topic: Topic,
    claim: AlterPartitionRequestPartitionData,
    result: AlterPartitionResponsePartitionData,
) -> PartitionChangeRecord | None:
    partition = topic.partitions.get(claim.partition_index)
    if partition is None:
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    members = claim.new_isr_with_epochs or [BrokerState(broker_id=m) for m in claim.new_isr]
    _check_claim(state, broker_id, partition, claim, members)
    record = change(
        topic.id,
        claim.partition_index,
        partition,
        state.rules(topic, partition),
        election=_election(state, topic),
        isr=[member.broker_id for member in members],
        recovery_state=claim.leader_recovery_state,
    )
    after = partition if record is None else partition.changed(record)
    if record is not None and record.leader not in (NO_LEADER_CHANGE, broker_id):
        # The new in-sync set completed a reassignment away from this leader. The change stands,
        # and the sender has to find the new leader.
        result.error_code = ErrorCode.NEW_LEADER_ELECTED
        return record
    result.leader_id = after.leader
    result.leader_epoch = after.leader_epoch
    result.isr = list(after.isr)
    result.leader_recovery_state = after.recovery_state
    result.partition_epoch = after.partition_epoch
    return record


def _check_claim(
    state: ControllerState,
    broker_id: int,
    partition: PartitionState,
    claim: AlterPartitionRequestPartitionData,
    members: list[BrokerState],
) -> None:
    if (
        claim.leader_epoch > partition.leader_epoch
        or claim.partition_epoch > partition.partition_epoch
    ):
        # The sender knows a later state: this node is no longer the controller.
        raise ApiError(ErrorCode.NOT_CONTROLLER)
    if claim.leader_epoch < partition.leader_epoch:
        raise ApiError(ErrorCode.FENCED_LEADER_EPOCH)
    if broker_id != partition.leader:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"the leader is {partition.leader}")
    if claim.partition_epoch < partition.partition_epoch:
        raise ApiError(ErrorCode.INVALID_UPDATE_VERSION)
    isr = [member.broker_id for member in members]
    if not set(isr) <= set(partition.replicas) or len(set(isr)) != len(isr):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"expected replicas of the partition, each once, not {isr}"
        )
    if broker_id not in isr:
        raise ApiError(ErrorCode.INVALID_REQUEST, "the leader must be in the in-sync set")
    if claim.leader_recovery_state == RECOVERING and (
        len(isr) > 1 or partition.recovery_state == RECOVERED
    ):
        raise ApiError(
            ErrorCode.INVALID_REQUEST, "a recovering leader must be the only in-sync replica"
        )
    for member in members:
        registration = state.image.brokers.get(member.broker_id)
        if (
            registration is None
            or not registration.is_active
            or member.broker_epoch not in (-1, registration.epoch)
        ):
            raise ApiError(ErrorCode.INELIGIBLE_REPLICA, f"broker {member.broker_id} is not ready")
