"""The group coordinator's machine for one partition of `__consumer_offsets`.

It holds every group whose id hashes there, and their offsets. A call answers with a `Decision`;
the driver writes its records, gives each back by `apply`, and answers when they are committed.
`apply` is the only mutator of what must survive, so that a shard loaded from its log is the shard
that wrote it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from math import inf, nextafter
from random import Random
from typing import TypeAlias, cast

from headwater.errors import ApiError, ErrorCode
from headwater.groups import administration, committing, conversion
from headwater.groups.classic import membership
from headwater.groups.classic.answers import join_refused, sync_refused
from headwater.groups.classic.group import ClassicGroup
from headwater.groups.classic.joining import Join, join
from headwater.groups.consumer.answers import check_heartbeat, heartbeat_refused
from headwater.groups.consumer.downgrade import Downgraded
from headwater.groups.consumer.group import ConsumerGroup
from headwater.groups.consumer.topics import Topics
from headwater.groups.decision import (
    NO_PRODUCER,
    NOTHING,
    ClientInfo,
    Decision,
    DecisionBuilder,
    Record,
    Token,
    TopicsView,
    reply,
)
from headwater.groups.modern import Describable, ModernGroup
from headwater.groups.offsets import Offsets, modernized
from headwater.groups.settings import GroupSettings
from headwater.groups.signs import signs
from headwater.groups.timers import Timer, Timers
from headwater.model import ZERO_ID
from headwater.protocol.messages.consumer_group_describe import (
    DescribedGroup as DescribedConsumerGroup,
)
from headwater.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
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
from headwater.protocol.signs import Signs

Group: TypeAlias = ClassicGroup | ModernGroup

# From this version on SyncGroup must name the protocol (KIP-559).
_SYNC_NAMES_PROTOCOL_SINCE = 5
# From this version on LeaveGroup names many members and is answered for each.
_LEAVE_MANY_SINCE = 3

# The numbers of a consumer group's keys; all of them say the group's id.
_CONSUMER_RECORDS = frozenset({3, 4, 5, 6, 7, 8, 16})


class GroupShard:
    """All groups of one partition."""

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
        # Consumer groups that have ended in this turn and go on as classic ones.
        self._downgraded: dict[str, Downgraded] = {}
        self._is_loaded = False

    # Classic groups

    def join(
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
        if group is not None and not isinstance(group, ClassicGroup):
            if not group.is_empty:
                decision = group.classic_join(
                    token, request, client=client, version=version, now=now, now_ms=now_ms
                )
                return self._after(group_id, group, decision)
            builder.records.extend(group.tombstones())
            group = None
        if group is None:
            if member_id:
                return reply(token, refused(ErrorCode.UNKNOWN_MEMBER_ID))
            group = self._add_classic(group_id)
            group.state_since_ms = now_ms
            # Also if the member is refused: Kafka's groups come to be by being asked for.
            group.record(builder)
        join(group, Join.of(token, request, version, client), builder, self._random)
        return builder.decision()

    def sync(
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
        if not isinstance(group, ClassicGroup):
            decision = group.classic_sync(token, request, now=now)
            return self._after(request.group_id, group, decision)
        builder = DecisionBuilder(now, now_ms)
        membership.sync(group, token, request, builder)
        return builder.decision()

    def heartbeat(self, token: Token, request: HeartbeatRequest, *, now: float) -> Decision:
        group = self._groups.get(request.group_id)
        if group is None:
            code = ErrorCode.UNKNOWN_MEMBER_ID if request.group_id else ErrorCode.INVALID_GROUP_ID
        elif isinstance(group, ClassicGroup):
            code = membership.heartbeat(group, request, now)
        else:
            decision = group.classic_heartbeat(token, request, now=now)
            return self._after(request.group_id, group, decision)
        return Decision((), ((token, HeartbeatResponse(error_code=code)),))

    def leave(
        self, token: Token, request: LeaveGroupRequest, *, version: int, now: float, now_ms: int
    ) -> Decision:
        if not request.group_id:
            return reply(token, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        if version < _LEAVE_MANY_SINCE:
            request.members = [MemberIdentity(member_id=request.member_id)]
        group = self._groups.get(request.group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            decision = group.classic_leave(token, request, version=version, now=now, now_ms=now_ms)
            return self._after(request.group_id, group, decision)
        builder = DecisionBuilder(now, now_ms)
        if group is None:
            members = membership.unknown(request.members)
        else:
            members = membership.leave(group, request.members, builder)
        response = LeaveGroupResponse(members=members)
        if version < _LEAVE_MANY_SINCE:
            response = LeaveGroupResponse(error_code=members[0].error_code)
        builder.reply(token, response)
        return builder.decision()

    # Consumer groups

    def consumer_heartbeat(
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
        """The group exists from the first heartbeat on that joins it."""
        group_id = request.group_id
        group = self._groups.get(group_id)
        builder = DecisionBuilder(now, now_ms)
        if group is None or isinstance(group, ClassicGroup):
            try:
                group = self._consumer_in_place_of(group, request, builder, version=version)
            except ApiError as refusal:
                return reply(token, heartbeat_refused(refusal))
        decision = group.heartbeat(
            token,
            request,
            client=client,
            version=version,
            now=now,
            now_ms=now_ms,
            describable=describable,
        )
        if group is not self._groups.get(group_id):
            if not decision.records:
                return decision  # it was refused, and no group came of it
            before = self._groups.get(group_id)
            if isinstance(before, ClassicGroup):
                conversion.replaced(before, builder)
            self._put_consumer(group_id, group)
        builder.add(decision)
        return self._after(group_id, group, builder.decision())

    def _consumer_in_place_of(
        self,
        before: ClassicGroup | None,
        request: ConsumerGroupHeartbeatRequest,
        builder: DecisionBuilder,
        *,
        version: int,
    ) -> ModernGroup:
        """A new group for somebody who joins, not yet among the others."""
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
            conversion.upgrade(before, group, builder)
        return group

    def _new_consumer(self, group_id: str) -> ConsumerGroup:
        group = ConsumerGroup(group_id, self._settings, self._random, self._topics)
        group.on_config(self._overrides.get(group_id, {}))
        return group

    def _put_consumer(self, group_id: str, group: ModernGroup) -> None:
        before = self._groups.get(group_id)
        if isinstance(before, ClassicGroup):
            before.close(None)
        self._groups[group_id] = group

    def consumer_describe(self, group_ids: Iterable[str]) -> list[DescribedConsumerGroup]:
        return administration.consumer_describe(self._groups, group_ids)

    # Offsets

    def commit(
        self, token: Token, request: OffsetCommitRequest, *, version: int, now: float, now_ms: int
    ) -> Decision:
        """Topics are known by name here: whoever hands in a request with ids puts names to them,
        and answers for topics that do not exist."""
        group = self._groups.get(request.group_id)
        code = committing.check(group, request, version=version, now=now)
        if code is not ErrorCode.NONE:
            return reply(token, committing.commit_refused(request, code))
        builder = DecisionBuilder(now, now_ms)
        length_max = self._settings.offset_metadata_bytes_max
        builder.reply(token, committing.commit(request, builder, metadata_max=length_max))
        return builder.decision()

    def commit_in_transaction(
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
        group = self._groups.get(request.group_id)
        code = committing.check_in_transaction(group, request, version=version)
        if code is not ErrorCode.NONE:
            return reply(token, committing.commit_in_transaction_refused(request, code))
        builder = DecisionBuilder(now, now_ms)
        length_max = self._settings.offset_metadata_bytes_max
        builder.producer_id, builder.producer_epoch = request.producer_id, request.producer_epoch
        builder.reply(
            token, committing.commit_in_transaction(request, builder, metadata_max=length_max)
        )
        return builder.decision()

    def fetch_offsets(
        self, request: OffsetFetchRequestGroup, *, require_stable: bool
    ) -> OffsetFetchResponseGroup:
        """The part of an answer for one group; no topics means all."""
        group = self._groups.get(request.group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            code = group.check_fetch(request.member_id, request.member_epoch)
            if code is not ErrorCode.NONE:
                return OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
        return self._offsets.fetch(request, require_stable=require_stable)

    def delete_offsets(self, token: Token, request: OffsetDeleteRequest, *, now: float) -> Decision:
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
        response = committing.delete_offsets(
            request, self._offsets, builder, is_subscribed=group.is_subscribed
        )
        builder.reply(token, response)
        return builder.decision()

    # Administration

    def describe(self, group_ids: Iterable[str], *, version: int) -> list[DescribedGroup]:
        return administration.describe(self._groups, group_ids, version=version)

    def signs(self, group_id: str, now: float) -> dict[str, Signs]:
        """Which members the group waits for, and how long each has been silent."""
        group = self._groups.get(group_id)
        return {} if group is None else signs(group, now)

    def list_groups(self, states: Collection[str], types: Collection[str]) -> list[ListedGroup]:
        return administration.list_groups(self._groups, states, types)

    def delete_groups(self, token: Token, group_ids: Iterable[str], *, now: float) -> Decision:
        builder = DecisionBuilder(now, 0)
        response = administration.delete_groups(self._groups, self._offsets, group_ids, builder)
        builder.reply(token, response)
        return builder.decision()

    # The log

    def apply(self, record: Record, *, offset: int, producer_id: int = NO_PRODUCER) -> None:
        key, value = record.key, record.value
        if isinstance(key, LegacyOffsetCommitKey):
            key, value = modernized(key, value)
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
        """A transaction's end in this partition."""
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
                conversion.start(group, self._timers, rebalances=downgraded.rebalances)

    def _apply_consumer(self, group_id: str, record: Record) -> None:
        group = self._groups.get(group_id)
        if group is None or isinstance(group, ClassicGroup):
            if record.value is None:
                return  # the group it buries has gone already
            group = self._new_consumer(group_id)
            self._put_consumer(group_id, group)
        group.apply(record)
        if group.is_gone:
            del self._groups[group_id]
            if isinstance(group, ConsumerGroup) and group.downgraded is not None:
                self._downgraded[group_id] = group.downgraded
        elif self._is_loaded:
            self._after(group_id, group, NOTHING)

    def _add_classic(self, group_id: str) -> ClassicGroup:
        group = ClassicGroup(group_id, self._settings, self._timers)
        self._groups[group_id] = group
        return group

    def durable_state(self) -> object:
        """What must be the same in a shard that replays the log."""
        groups = {
            group_id: group.durable if isinstance(group, ClassicGroup) else group.durable_state()
            for group_id, group in self._groups.items()
        }
        return groups, self._offsets.durable_state()

    # Life

    def on_loaded(self, now: float) -> Decision:
        """All that is soft starts afresh: every member has a whole session to show itself."""
        self._is_loaded = True
        builder = DecisionBuilder(now, 0)
        for group_id, group in list(self._groups.items()):
            if isinstance(group, ClassicGroup):
                group.on_loaded(builder)
            else:
                builder.add(self._after(group_id, group, group.on_loaded(now)))
        self._set_expiry(now)
        return builder.decision()

    def on_unloaded(self) -> Decision:
        builder = DecisionBuilder(0.0, 0)
        for group in self._groups.values():
            if isinstance(group, ClassicGroup):
                group.refuse_waiting(ErrorCode.NOT_COORDINATOR, builder)
                group.close(None)
            else:
                builder.add(group.on_unloaded())
        return builder.decision()

    def next_deadline(self) -> float:
        return self._timers.next_deadline()

    def on_tick(self, now: float, now_ms: int) -> Decision:
        builder = DecisionBuilder(now, now_ms)
        for timer in self._timers.due(now):
            timer.fire(builder)
        return builder.decision()

    def on_metadata(self, topics: TopicsView, deleted: Collection[str], now: float) -> Decision:
        """Topics came, grew or went. Offsets of those that went are forgotten."""
        self._topics.update(topics, now)
        if not self._is_loaded:
            return NOTHING
        builder = DecisionBuilder(now, 0)
        builder.is_atomic = False
        if deleted:
            builder.records.extend(self._offsets.topic_tombstones(deleted, living=topics.id))
        for group_id, group in list(self._groups.items()):
            if not isinstance(group, ClassicGroup):
                builder.add(self._after(group_id, group, group.on_metadata(topics, now)))
        return builder.decision()

    def on_group_config(self, group_id: str, overrides: Mapping[str, str]) -> None:
        """The settings of one group, which need not exist yet."""
        self._overrides[group_id] = overrides
        group = self._groups.get(group_id)
        if group is not None and not isinstance(group, ClassicGroup):
            group.on_config(overrides)

    def _after(self, group_id: str, group: ModernGroup, decision: Decision) -> Decision:
        """A consumer group keeps its own deadlines; the shard keeps when to look at it next."""
        timer = self._group_timers.get(group_id)
        if timer is None:
            timer = Timer(partial(self._tick_group, group_id))
            self._group_timers[group_id] = timer
        self._timers.set(timer, group.next_deadline())
        return decision

    def _tick_group(self, group_id: str, builder: DecisionBuilder) -> None:
        group = self._groups.get(group_id)
        if group is None or isinstance(group, ClassicGroup):
            self._group_timers.pop(group_id, None)
            return
        builder.add(group.on_tick(builder.now, builder.now_ms))
        # Once a tick: what follows from the records must wait until they are applied.
        next_deadline = max(group.next_deadline(), nextafter(builder.now, inf))
        self._timers.set(self._group_timers[group_id], next_deadline)

    def _set_expiry(self, now: float) -> None:
        self._timers.set(
            self._expiry, now + self._settings.offsets_retention_check_interval_ms / 1000
        )

    def _expire_offsets(self, builder: DecisionBuilder) -> None:
        mine = DecisionBuilder(builder.now, builder.now_ms)
        retention_ms = self._settings.offsets_retention_ms
        is_more = administration.expire(
            self._groups, self._offsets, mine, retention_ms=retention_ms
        )
        builder.add(mine.decision())
        if is_more:
            self._timers.set(self._expiry, nextafter(builder.now, inf))
        else:
            self._set_expiry(builder.now)
