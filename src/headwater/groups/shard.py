"""The group coordinator's machine for one partition of `__consumer_offsets`.

It holds every group whose id hashes to the partition, and their offsets. A request becomes a
`Decision`; the driver writes its records, hands each back to `apply`, and replies when they are
committed. Only `apply` changes what must survive, so that a shard loaded from its log is the shard
that wrote it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from math import inf, nextafter
from random import Random
from typing import Any, TypeAlias, cast

from headwater.coordination import (
    NO_PRODUCER,
    NOTHING,
    Decision,
    DecisionBuilder,
    Record,
    Token,
    reply,
)
from headwater.errors import ApiError, ErrorCode
from headwater.groups import describe, migration, offsets
from headwater.groups.classic import requests
from headwater.groups.classic.group import ClassicGroup, join_refused, sync_refused
from headwater.groups.clients import ClientInfo
from headwater.groups.consumer.group import ConsumerGroup, check_heartbeat, heartbeat_refused
from headwater.groups.consumer.regexes import Describable
from headwater.groups.consumer.topics import Topics, TopicsView
from headwater.groups.describe import GroupSummary
from headwater.groups.offsets import Offsets
from headwater.groups.settings import GroupSettings
from headwater.groups.timers import Timer, Timers
from headwater.model import ZERO_ID
from headwater.protocol.liveness import MemberLiveness
from headwater.protocol.messages import consumer_group_describe
from headwater.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headwater.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from headwater.protocol.messages.describe_groups import DescribedGroup
from headwater.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.protocol.messages.join_group import JoinGroupRequest
from headwater.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from headwater.protocol.messages.list_groups import ListedGroup
from headwater.protocol.messages.offset_commit import OffsetCommitRequest
from headwater.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequestGroup,
    OffsetFetchResponseGroup,
)
from headwater.protocol.messages.sync_group import SyncGroupRequest
from headwater.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest
from headwater.protocol.records.group_consumer import ConsumerGroupMetadataKey
from headwater.protocol.records.group_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)

Group: TypeAlias = ClassicGroup | ConsumerGroup

# From this version on SyncGroup must name the protocol (KIP-559).
_SYNC_NAMES_PROTOCOL_SINCE = 5
# From this version on LeaveGroup names many members, and each has a result.
_LEAVE_MANY_SINCE = 3
# From this version on a commit for a group that does not exist is GROUP_ID_NOT_FOUND.
_GROUP_NOT_FOUND_SINCE = 9

# The types of a consumer group's records; the key of each has the group's id.
_CONSUMER_RECORDS = frozenset({3, 4, 5, 6, 7, 8, 16})

# The most tombstones that one decision writes when offsets and groups expire, so that they fit into
# a batch. A record of a group with a long id counts as several.
_EXPIRED_MAX = 1000
# A tick that has written so many records leaves the rest to the next one.
_TICK_MAX = 100
_ID_LENGTH = 128


class GroupShard:
    """The groups of one partition."""

    def __init__(self, settings: GroupSettings, random: Random) -> None:
        self._settings = settings
        self._random = random
        self._groups: dict[str, Group] = {}
        self._offsets = Offsets()
        self._timers = Timers()
        self._expiry = Timer(self._expire_offsets)
        self._group_timers: dict[str, Timer] = {}
        self._topics = Topics()
        self._overrides: dict[str, Mapping[str, str]] = {}
        # Consumer groups whose end has been applied, and whose classic successor has not.
        self._downgraded: dict[str, migration.Downgraded] = {}
        self._is_loaded = False

    # Classic groups

    def decide_join(
        self,
        token: Token,
        request: JoinGroupRequest,
        *,
        client: ClientInfo,
        version: int,
        now: float,
        now_ms: int,
    ) -> Decision:
        group_id, member_id = request.group_id, request.member_id
        refused = partial(join_refused, member_id=member_id, version=version)
        if not group_id:
            return reply(token, refused(ErrorCode.INVALID_GROUP_ID))
        settings = self._settings
        timeout_ms = request.session_timeout_ms
        if not settings.session_timeout_ms_min <= timeout_ms <= settings.session_timeout_ms_max:
            return reply(token, refused(ErrorCode.INVALID_SESSION_TIMEOUT))
        builder = DecisionBuilder(now, now_ms)
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            if not group.is_empty:
                decision = migration.decide_join(
                    group, token, request, client=client, version=version, now=now, now_ms=now_ms
                )
                return self._with_timer(group, decision)
            builder.records.extend(group.tombstones())
            group = None
        if group is None:
            if member_id:
                return reply(token, refused(ErrorCode.UNKNOWN_MEMBER_ID))
            group = self._add_classic(group_id)
            group.state_since_ms = now_ms
            # Even if the member is refused: in Kafka, too, asking for a group creates it.
            group.record(builder)
        join = requests.Join.of(token, request, version, client)
        requests.join(group, join, builder, self._random)
        return builder.decision()

    def decide_sync(
        self, token: Token, request: SyncGroupRequest, *, version: int, now: float, now_ms: int
    ) -> Decision:
        if version >= _SYNC_NAMES_PROTOCOL_SINCE and (
            request.protocol_type is None or request.protocol_name is None
        ):
            return reply(token, sync_refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL))
        if not request.group_id:
            return reply(token, sync_refused(ErrorCode.INVALID_GROUP_ID))
        group = self._groups.get(request.group_id)
        if group is None or group.is_empty:
            return reply(token, sync_refused(ErrorCode.UNKNOWN_MEMBER_ID))
        if isinstance(group, ConsumerGroup):
            return self._with_timer(group, migration.decide_sync(group, token, request, now=now))
        builder = DecisionBuilder(now, now_ms)
        requests.sync(group, token, request, builder)
        return builder.decision()

    def decide_heartbeat(self, token: Token, request: HeartbeatRequest, *, now: float) -> Decision:
        group = self._groups.get(request.group_id)
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        elif isinstance(group, ClassicGroup):
            code = requests.heartbeat(group, request, now)
        else:
            return self._with_timer(
                group, migration.decide_heartbeat(group, token, request, now=now)
            )
        return Decision((), ((token, HeartbeatResponse(error_code=code)),))

    def decide_leave(
        self, token: Token, request: LeaveGroupRequest, *, version: int, now: float, now_ms: int
    ) -> Decision:
        if not request.group_id:
            return reply(token, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        if version < _LEAVE_MANY_SINCE:
            request.members = [MemberIdentity(member_id=request.member_id)]
        group = self._groups.get(request.group_id)
        builder = DecisionBuilder(now, now_ms)
        if group is None:
            members = requests.unknown(request.members)
        elif isinstance(group, ClassicGroup):
            members = requests.leave(group, request.members, builder)
        else:
            members, decision = migration.decide_leave(group, request.members, now_ms=now_ms)
            builder.add(self._with_timer(group, decision))
        response = LeaveGroupResponse(members=members)
        if version < _LEAVE_MANY_SINCE:
            response = LeaveGroupResponse(error_code=members[0].error_code)
        builder.reply(token, response)
        return builder.decision()

    # Consumer groups

    def decide_consumer_heartbeat(
        self,
        token: Token,
        request: ConsumerGroupHeartbeatRequest,
        *,
        client: ClientInfo,
        version: int,
        now: float,
        now_ms: int,
        describable: Describable | None = None,
    ) -> Decision:
        """A group exists from the first heartbeat on that joins it."""
        group_id = request.group_id
        before = self._groups.get(group_id)
        if isinstance(before, ConsumerGroup):
            decision = before.decide_heartbeat(
                token,
                request,
                client=client,
                version=version,
                now=now,
                now_ms=now_ms,
                describable=describable,
            )
            return self._with_timer(before, decision)
        builder = DecisionBuilder(now, now_ms)
        try:
            group = self._consumer_in_place_of(before, request, builder, version=version)
        except ApiError as refusal:
            return reply(token, heartbeat_refused(refusal))
        decision = group.decide_heartbeat(
            token,
            request,
            client=client,
            version=version,
            now=now,
            now_ms=now_ms,
            describable=describable,
        )
        if not decision.records:
            return decision  # refused: the group is not created
        if before is not None:
            # Members that wait in the classic group have to join the new one.
            before.refuse_waiting(ErrorCode.REBALANCE_IN_PROGRESS, builder)
        self._put_consumer(group_id, group)
        builder.add(decision)
        return self._with_timer(group, builder.decision())

    def _consumer_in_place_of(
        self,
        before: ClassicGroup | None,
        request: ConsumerGroupHeartbeatRequest,
        builder: DecisionBuilder,
        *,
        version: int,
    ) -> ConsumerGroup:
        """Returns a new group for a member that joins; it is not among the others yet."""
        check_heartbeat(request, self._settings.consumer_assignors, version=version)
        group_id, epoch = request.group_id, request.member_epoch
        if before is None and epoch != 0:
            kind = "Consumer group" if epoch > 0 else "Group"
            raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"{kind} {group_id} not found.")
        if before is not None and epoch != 0:
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group."
            )
        group = self._new_consumer(group_id)
        if before is not None and before.is_empty:
            builder.write(GroupMetadataKey(group=group_id), None)
        elif before is not None:
            migration.upgrade(before, group, builder)
        return group

    def _new_consumer(self, group_id: str) -> ConsumerGroup:
        group = ConsumerGroup(group_id, self._settings, self._random, self._topics)
        group.on_config(self._overrides.get(group_id, {}))
        return group

    def _put_consumer(self, group_id: str, group: ConsumerGroup) -> None:
        before = self._groups.get(group_id)
        if isinstance(before, ClassicGroup):
            before.close(None)
        self._groups[group_id] = group

    # Offsets

    def decide_commit(
        self, token: Token, request: OffsetCommitRequest, *, version: int, now: float, now_ms: int
    ) -> Decision:
        """The caller has put names to topic ids, and answers for topics that do not exist."""
        code = self._check_commit(request, version=version, now=now)
        if code is not ErrorCode.NONE:
            return reply(token, offsets.commit_refused(request, code))
        builder = DecisionBuilder(now, now_ms)
        builder.may_be_refused = True
        length_max = self._settings.offset_metadata_bytes_max
        builder.reply(token, offsets.commit(request, builder, metadata_max=length_max))
        return builder.decision()

    def _check_commit(self, request: OffsetCommitRequest, *, version: int, now: float) -> ErrorCode:
        """Checks that the sender may commit. In a classic group this also extends its session."""
        group = self._groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        member_id, instance_id = request.member_id, request.group_instance_id
        if group is None:
            if generation < 0:
                return ErrorCode.NONE  # the commit creates a group that has only offsets
            is_old = version < _GROUP_NOT_FOUND_SINCE
            return ErrorCode.ILLEGAL_GENERATION if is_old else ErrorCode.GROUP_ID_NOT_FOUND
        if isinstance(group, ConsumerGroup):
            return group.check_commit(
                member_id,
                instance_id,
                generation,
                version=version,
                transactional=False,
                partitions=_partitions_of(request),
            )
        code = group.check_commit(member_id, instance_id, generation, transactional=False)
        if code is ErrorCode.NONE:
            group.on_commit(member_id, now)
        return code

    def decide_commit_in_transaction(
        self,
        token: Token,
        request: TxnOffsetCommitRequest,
        *,
        version: int,
        now: float,
        now_ms: int,
    ) -> Decision:
        """The records are part of the producer's transaction."""
        for topic in request.topics:
            if topic.topic_id == ZERO_ID:
                topic.topic_id = self._topics.id(topic.name) or ZERO_ID
        code = self._check_commit_in_transaction(request, version=version)
        if code is not ErrorCode.NONE:
            return reply(token, offsets.commit_in_transaction_refused(request, code))
        builder = DecisionBuilder(now, now_ms)
        builder.may_be_refused = True
        builder.producer_id, builder.producer_epoch = request.producer_id, request.producer_epoch
        length_max = self._settings.offset_metadata_bytes_max
        response = offsets.commit_in_transaction(request, builder, metadata_max=length_max)
        builder.reply(token, response)
        return builder.decision()

    def _check_commit_in_transaction(
        self, request: TxnOffsetCommitRequest, *, version: int
    ) -> ErrorCode:
        group = self._groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        member_id, instance_id = request.member_id, request.group_instance_id
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        if group is None:
            return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
        if isinstance(group, ClassicGroup):
            return group.check_commit(member_id, instance_id, generation, transactional=True)
        code = group.check_commit(
            member_id,
            instance_id,
            generation,
            version=version,
            transactional=True,
            partitions=_partitions_of(request),
        )
        is_stale = code is ErrorCode.STALE_MEMBER_EPOCH
        return ErrorCode.ILLEGAL_GENERATION if is_stale else code

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """Returns one group's part of a response; no topics means all."""
        group = self._groups.get(request.group_id)
        if isinstance(group, ConsumerGroup):
            code = group.check_fetch(request.member_id, request.member_epoch)
            if code is not ErrorCode.NONE:
                return OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
        return self._offsets.fetch(request, require_stable=require_stable)

    def decide_delete_offsets(
        self, token: Token, request: OffsetDeleteRequest, *, now: float
    ) -> Decision:
        group = self._groups.get(request.group_id)
        code = ErrorCode.NONE
        if not request.group_id:
            code = ErrorCode.INVALID_GROUP_ID
        elif group is None:
            code = ErrorCode.GROUP_ID_NOT_FOUND
        elif isinstance(group, ClassicGroup) and not (
            group.is_empty or group.uses_consumer_protocol
        ):
            code = ErrorCode.NON_EMPTY_GROUP
        if group is None or code is not ErrorCode.NONE:
            return reply(token, OffsetDeleteResponse(error_code=code))
        builder = DecisionBuilder(now, 0)
        builder.is_atomic = False
        response = offsets.delete_offsets(
            request, self._offsets, builder, is_subscribed=group.is_subscribed
        )
        builder.reply(token, response)
        return builder.decision()

    def _set_expiry(self, now: float) -> None:
        interval_ms = self._settings.offsets_retention_check_interval_ms
        self._timers.set(self._expiry, now + interval_ms / 1000)

    def _expire_offsets(self, builder: DecisionBuilder) -> None:
        """Deletes offsets that have outlived their retention, and groups that have nothing left:
        at most one batch of them, and the rest in the next tick."""
        expired = DecisionBuilder(builder.now, builder.now_ms)
        is_complete = self._expire(expired)
        builder.add(expired.decision())
        if is_complete:
            self._set_expiry(builder.now)
        else:
            self._timers.set(self._expiry, nextafter(builder.now, inf))

    def _expire(self, builder: DecisionBuilder) -> bool:
        room = _EXPIRED_MAX
        for group_id, group in self._groups.items():
            weight = _weight(group_id)
            if room < weight:
                return False
            records, nothing_left = self._offsets.expired(
                group_id,
                now_ms=builder.now_ms,
                retention_ms=self._settings.offsets_retention_ms,
                base_ms=group.expires_from_ms,
                is_subscribed=group.is_subscribed,
                count_max=room // weight,
            )
            builder.records.extend(records)
            room -= weight * len(records)
            if nothing_left and group.is_empty:
                if room < weight:
                    return False
                before = len(builder.records)
                _delete_group(group, builder)
                room -= weight * (len(builder.records) - before)
        return True

    # Administration

    def describe(self, group_ids: Iterable[str], *, version: int) -> list[DescribedGroup]:
        return describe.describe(self._groups, group_ids, version=version)

    def consumer_describe(
        self, group_ids: Iterable[str]
    ) -> list[consumer_group_describe.DescribedGroup]:
        return describe.consumer_describe(self._groups, group_ids)

    def liveness(self, group_id: str, now: float) -> dict[str, MemberLiveness]:
        """Returns, by member id, whether the group waits for it and how long it has been silent."""
        group = self._groups.get(group_id)
        return {} if group is None else describe.liveness(group, now)

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        return describe.list_groups(self._groups, states, types)

    def summaries(self) -> Iterator[GroupSummary]:
        """Yields what is told of each group to those who watch the broker."""
        return describe.summaries(self._groups)

    @property
    def committed(self) -> offsets.OffsetTable:
        return self._offsets.committed

    def decide_delete_groups(
        self, token: Token, group_ids: Iterable[str], *, now: float
    ) -> Decision:
        builder = DecisionBuilder(now, 0)
        builder.is_atomic = False
        results = []
        for group_id in dict.fromkeys(group_ids):
            group = self._groups.get(group_id)
            if group is None:
                code = ErrorCode.GROUP_ID_NOT_FOUND
            elif not group.is_empty:
                code = ErrorCode.NON_EMPTY_GROUP
            else:
                code = ErrorCode.NONE
                builder.records.extend(self._offsets.tombstones(group_id))
                _delete_group(group, builder)
            results.append(DeletableGroupResult(group_id=group_id, error_code=code))
        builder.reply(token, DeleteGroupsResponse(results=results))
        return builder.decision()

    # The log

    def apply(self, record: Record, *, offset: int, producer_id: int = NO_PRODUCER) -> None:
        key, value = record.key, record.value
        if isinstance(key, LegacyOffsetCommitKey):
            key, value = offsets.modernized(key, value)
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self._offsets.apply(key, value, offset=offset, producer_id=producer_id)
            if value is not None and key.group not in self._groups:
                self._add_classic(key.group)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._apply_classic(key.group, value)
        elif type(key).API in _CONSUMER_RECORDS:
            self._apply_consumer(cast(ConsumerGroupMetadataKey, key).group_id, record)

    def apply_marker(self, producer_id: int, *, commits: bool) -> None:
        """Ends a producer's transaction in this partition."""
        self._offsets.end_transaction(producer_id, commits=commits)

    def _apply_classic(self, group_id: str, value: GroupMetadataValue | None) -> None:
        group = self._groups.get(group_id)
        if value is None:
            if isinstance(group, ClassicGroup):
                group.close(None)
                del self._groups[group_id]
            return
        is_known = isinstance(group, ClassicGroup)
        if not isinstance(group, ClassicGroup):
            group = self._add_classic(group_id)
        group.apply(value)
        if self._is_loaded and not is_known:
            group.restore()
            downgraded = self._downgraded.pop(group_id, None)
            if downgraded is not None:
                migration.start_downgraded(group, self._timers, rebalances=downgraded.rebalances)

    def _apply_consumer(self, group_id: str, record: Record) -> None:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if record.value is None:
                return  # the group that the tombstone deletes has gone already
            group = self._new_consumer(group_id)
            self._put_consumer(group_id, group)
        group.apply(record)
        if group.is_gone:
            del self._groups[group_id]
            if group.downgraded is not None:
                self._downgraded[group_id] = group.downgraded
        elif self._is_loaded:
            self._with_timer(group, NOTHING)

    def _add_classic(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self._settings, self._timers)
        self._groups[group_id] = group
        return group

    def durable_state(self) -> object:
        """Returns what must be the same in a shard that replays the log."""
        groups = {
            group_id: group.durable if isinstance(group, ClassicGroup) else group.durable_state()
            for group_id, group in self._groups.items()
        }
        return groups, self._offsets.durable_state()

    # Life

    def on_loaded(self, now: float) -> Decision:
        """Starts sessions and timers anew: every member has a whole session to show itself."""
        self._is_loaded = True
        builder = DecisionBuilder(now, 0)
        for group in list(self._groups.values()):
            if isinstance(group, ClassicGroup):
                group.on_loaded(builder)
            else:
                group.on_loaded(now)
                self._with_timer(group, NOTHING)
        self._set_expiry(now)
        return builder.decision()

    def on_unloaded(self) -> Decision:
        builder = DecisionBuilder(0.0, 0)
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                group.refuse_waiting(ErrorCode.NOT_COORDINATOR, builder)
                group.close(None)
        return builder.decision()

    def next_deadline(self) -> float:
        return self._timers.next_deadline()

    def on_tick(self, now: float, now_ms: int) -> Decision:
        builder = DecisionBuilder(now, now_ms)
        records = builder.records
        weighed = weight = 0
        for timer in self._timers.due(now):
            timer.fire(builder)
            # Sessions that begin at a load end together: those of all groups may not fit into one
            # batch. What is left is due at once.
            weight += sum(_weight(_group_of(record)) for record in records[weighed:])
            weighed = len(records)
            if weight >= _TICK_MAX:
                break
        return builder.decision()

    def on_metadata(self, topics: TopicsView, deleted: Collection[str], now: float) -> Decision:
        """Topics were created, deleted or grown. Offsets of deleted ones are forgotten."""
        self._topics.update(topics)
        if not self._is_loaded:
            return NOTHING
        builder = DecisionBuilder(now, 0)
        builder.is_atomic = False
        if deleted:
            builder.records.extend(self._offsets.topic_tombstones(deleted, living=topics.id))
        for group in self._groups.values():
            if isinstance(group, ConsumerGroup):
                group.on_metadata()
        return builder.decision()

    def on_group_config(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """Takes the settings of one group, which need not exist yet."""
        self._overrides[group_id] = overrides
        group = self._groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            group.on_config(overrides)

    def _with_timer(self, group: ConsumerGroup, decision: Decision) -> Decision:
        """Passes a decision on. A consumer group keeps its own deadlines; the shard has one timer
        for the first of them."""
        timer = self._group_timers.get(group.id)
        if timer is None:
            timer = Timer(partial(self._tick_group, group.id))
            self._group_timers[group.id] = timer
        self._timers.set(timer, group.next_deadline())
        return decision

    def _tick_group(self, group_id: str, builder: DecisionBuilder) -> None:
        group = self._groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            self._group_timers.pop(group_id, None)
            return
        builder.add(group.on_tick(builder.now, builder.now_ms))
        # Once a tick: what follows from the records must wait until they are applied.
        next_deadline = max(group.next_deadline(), nextafter(builder.now, inf))
        self._timers.set(self._group_timers[group_id], next_deadline)


def _weight(group_id: str) -> int:
    """Returns for how many records one of a group counts, where they have to fit into a batch."""
    return 1 + len(group_id) // _ID_LENGTH


def _group_of(record: Record) -> str:
    key: Any = record.key
    return str(key.group_id if hasattr(key, "group_id") else key.group)


def _partitions_of(
    request: OffsetCommitRequest | TxnOffsetCommitRequest,
) -> Iterator[tuple[bytes, int]]:
    """Yields topic id and partition of each offset in the request."""
    for topic in request.topics:
        for partition in topic.partitions:
            yield topic.topic_id, partition.partition_index


def _delete_group(group: Group, builder: DecisionBuilder) -> None:
    if isinstance(group, ClassicGroup):
        builder.write(GroupMetadataKey(group=group.id), None)
    else:
        builder.records.extend(group.tombstones())
