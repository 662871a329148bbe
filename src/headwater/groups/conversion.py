"""A group goes from one protocol to the other while its members go on working.

A classic group of consumers becomes a consumer group when the first member comes that speaks the
new protocol: what its leader last handed out is the first target, and all who were in it are
members that hold it. The way back is taken when the last such member has gone
(`consumer.downgrade`); here is what that leaves to be done for the classic group that follows.
`group.consumer.migration.policy` says which ways are open.
"""

from __future__ import annotations

from headwater.errors import ApiError, ErrorCode
from headwater.groups.classic.group import ClassicGroup
from headwater.groups.classic.roster import Member as ClassicMember
from headwater.groups.consumer.assignors import Partitions
from headwater.groups.consumer.group import ConsumerGroup
from headwater.groups.consumer.member import ClassicProtocols, Member
from headwater.groups.consumer.records import (
    group_epoch_record,
    member_record,
    progress_record,
    target_epoch_record,
    target_record,
)
from headwater.groups.consumer.topics import Topics
from headwater.groups.decision import DecisionBuilder
from headwater.groups.settings import GroupSettings
from headwater.groups.timers import Timer, Timers
from headwater.protocol import DecodeError
from headwater.protocol.consumer_protocol import (
    assigned_partitions,
    read_assignment,
    read_subscription,
)
from headwater.protocol.records.group_offsets import GroupMetadataKey


def upgrade(classic: ClassicGroup, group: ConsumerGroup, builder: DecisionBuilder) -> None:
    """Make the new, empty `group` what `classic` is; ApiError if that cannot be.

    Nothing happens to `classic`: whoever asked for this may still be refused. The records are
    written to `turn` and applied to `group` already, for the same turn goes on in it. That they are
    applied once more when they are in the log changes nothing.
    """
    _check(classic, group.settings)
    builder.write(GroupMetadataKey(group=classic.id), None)
    members: list[tuple[Member, Partitions]] = []
    for old in classic.roster:
        try:
            members.append(_member(old, classic, group.topics))
        except DecodeError:
            raise _refusal(
                classic.id, "because the embedded consumer protocol is malformed."
            ) from None
        group.deadlines.renew_session(old.id, builder.now + old.session_timeout_ms / 1000)
    hashed = group.topics.hash({name for member, _ in members for name in member.topic_names})
    generation = classic.generation
    records = [
        *(member_record(group.id, member) for member, _ in members),
        group_epoch_record(group.id, generation, hashed),
        *(target_record(group.id, member.id, target) for member, target in members),
        target_epoch_record(group.id, generation, 0),
        *(progress_record(group.id, member) for member, _ in members),
    ]
    for record in records:
        group.apply(record)
    builder.records.extend(records)


def _check(classic: ClassicGroup, settings: GroupSettings) -> None:
    if settings.consumer_migration_policy not in ("bidirectional", "upgrade"):
        raise _refusal(classic.id, "because online upgrade is disabled.")
    if not classic.uses_consumer_protocol:
        raise _refusal(classic.id, "because the group does not use the consumer embedded protocol.")
    if len(classic.roster) > settings.consumer_group_size_max:
        raise _refusal(
            classic.id, "because the group size exceeds the consumer group maximum size."
        )


def _refusal(group_id: str, reason: str) -> ApiError:
    return ApiError(
        ErrorCode.GROUP_ID_NOT_FOUND,
        f"Cannot upgrade classic group {group_id} to consumer group {reason}",
    )


def _member(old: ClassicMember, classic: ClassicGroup, topics: Topics) -> tuple[Member, Partitions]:
    """A classic member as one of a consumer group, with what its leader gave it as its target."""
    target: Partitions = {}
    if old.assignment:
        assignment = read_assignment(old.assignment)
        if assignment.user_data:
            # An assignor of the users' own speaks to its members through this.
            raise _refusal(
                classic.id,
                "because an unsupported custom assignor is in use. Please refer to the "
                "documentation or switch to a default assignor before re-attempting the upgrade.",
            )
        target = topics.by_id(assigned_partitions(assignment))
    # Before the first generation there is no protocol yet that they agreed on.
    metadata = old.protocols[0][1] if classic.protocol is None else old.metadata(classic.protocol)
    subscription = read_subscription(metadata)
    member = Member(
        old.id,
        epoch=classic.generation,
        previous_epoch=classic.generation,
        instance_id=old.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=old.rebalance_timeout_ms,
        client_id=old.client.client_id,
        client_host=old.client.host,
        topic_names=frozenset(subscription.topics),
        assigned={
            topic: dict.fromkeys(numbers, classic.generation) for topic, numbers in target.items()
        },
        classic=ClassicProtocols(
            old.session_timeout_ms,
            tuple((name, bytes(spoken)) for name, spoken in old.protocols),
        ),
    )
    return member, target


def replaced(classic: ClassicGroup, builder: DecisionBuilder) -> None:
    """The upgrade was taken: whoever waits in the classic group shall join the new one."""
    classic.refuse_waiting(ErrorCode.REBALANCE_IN_PROGRESS, builder)


def start(classic: ClassicGroup, timers: Timers, *, rebalances: bool) -> None:
    """Set a downgraded group going, in the next turn: its record is being applied in this one."""

    def begin(builder: DecisionBuilder) -> None:
        for member in classic.roster:
            classic.renew(member, builder.now)
        if rebalances:
            classic.prepare_rebalance(builder, "the last consumer member left")

    timers.set(Timer(begin), float("-inf"))
