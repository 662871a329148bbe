"""A consumer group (KIP-848): the coordinator assigns, and members follow by their heartbeats.

The group's epoch goes up when who is in it or what they want has changed. From that follows a new
target, whose epoch is the group's; and towards it each member goes at its own pace (`reconcile`).
`GroupState` is what the log says; this is what is decided, and what time does to members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from random import Random

from headwater.errors import ApiError, ErrorCode
from headwater.groups.consumer import answers, classic_members, heartbeats
from headwater.groups.consumer.assignors import (
    Assignor,
    Partitions,
    assign_ranges,
    assign_uniformly,
)
from headwater.groups.consumer.deadlines import Deadlines
from headwater.groups.consumer.downgrade import Downgraded, downgrade_records, may_downgrade
from headwater.groups.consumer.member import LEFT_FOR_A_WHILE, Goal, Member, MemberState, reconciled
from headwater.groups.consumer.records import (
    group_epoch_record,
    group_tombstones,
    member_record,
    member_tombstones,
    partition_metadata_tombstone,
    progress_record,
    target_epoch_record,
    target_record,
)
from headwater.groups.consumer.regexes import Regexes
from headwater.groups.consumer.state import GroupState, is_homogeneous
from headwater.groups.consumer.target_assignment import new_target, voted_assignor
from headwater.groups.consumer.topics import Topics
from headwater.groups.decision import (
    NOTHING,
    ClientInfo,
    Decision,
    Note,
    Record,
    Token,
    TopicsView,
    removed,
)
from headwater.groups.modern import Describable, Session
from headwater.groups.settings import GroupSettings
from headwater.model import id_text
from headwater.protocol.messages.consumer_group_describe import DescribedGroup
from headwater.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headwater.protocol.messages.heartbeat import HeartbeatRequest
from headwater.protocol.messages.join_group import JoinGroupRequest
from headwater.protocol.messages.leave_group import LeaveGroupRequest
from headwater.protocol.messages.sync_group import SyncGroupRequest
from headwater.protocol.schema import Message

ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniformly, "range": assign_ranges}

# The topics are looked at again after this even if nobody said that they changed; Kafka's number.
_METADATA_AGE_MAX = 2_147_483.647


class ConsumerGroup:
    """One group; the shape that a shard asks for is `headwater.groups.modern.ModernGroup`."""

    def __init__(
        self,
        group_id: str,
        settings: GroupSettings,
        random: Random,
        topics: Topics,
    ) -> None:
        self.state = GroupState(group_id)
        self.settings = settings
        self.topics = topics
        self._random = random
        self.deadlines = Deadlines()
        self.regexes = Regexes(self.state, topics)
        self.look_again = -inf  # when the topics must be looked at again
        # Set when the group has decided to go on as a classic one.
        self.downgraded: Downgraded | None = None
        # Members were removed, and the records of it have not come back yet.
        self._removing = False
        self.session_timeout = settings.consumer_session_timeout_ms / 1000
        self.heartbeat_interval_ms = settings.consumer_heartbeat_interval_ms
        self._assignment_interval_ms = settings.consumer_assignment_interval_ms

    # What others ask about it

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def is_gone(self) -> bool:
        return self.state.is_gone

    @property
    def state_name(self) -> str:
        return self.state.name

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.state.topics

    def durable_state(self) -> object:
        return self.state.durable()

    def describe(self) -> DescribedGroup:
        assignor = voted_assignor(self.state.assignors, self.settings.consumer_assignors)
        return answers.describe(self.state, self.topics, assignor)

    def sessions(self) -> dict[str, Session]:
        return {
            member.id: Session(
                self.deadlines.session(member.id),
                round(self.session_timeout * 1000)
                if member.classic is None
                else member.classic.session_timeout_ms,
                member.epoch < self.state.target_epoch or member.state is MemberState.UNREVOKED,
            )
            for member in self.state.members.values()
        }

    def tombstones(self) -> list[Record]:
        return group_tombstones(self.id, self.state.members, self.state.resolved)

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        *,
        version: int,
        transactional: bool,
        partitions: Iterable[tuple[bytes, str, int]],
    ) -> ErrorCode:
        """Whether this member may commit offsets of these partitions (topic id, name, index).

        An older epoch is good for a partition that the member has held since then (KIP-1251): a
        commit may well be under way while a heartbeat brings the next epoch.
        """
        if epoch < 0 and self.is_empty:
            return ErrorCode.NONE  # an administrator, or a consumer that assigns itself
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE  # a producer that does not know of members
        member = self.state.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if not transactional and member.classic is None and version < 9:
            return ErrorCode.UNSUPPORTED_VERSION
        if epoch == member.epoch:
            return ErrorCode.NONE
        stale = _stale(member)
        if epoch > member.epoch:
            return stale
        for topic, _, partition in partitions:
            since = member.assigned.get(topic, {}).get(partition)
            if since is None:
                since = member.revoking.get(topic, {}).get(partition)
            if since is None or epoch < since:
                return stale
        return ErrorCode.NONE

    def check_fetch(self, member_id: str | None, epoch: int) -> ErrorCode:
        if member_id is None and epoch < 0:
            return ErrorCode.NONE
        member = self.state.members.get(member_id) if member_id is not None else None
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE if epoch == member.epoch else _stale(member)

    # Requests

    def heartbeat(
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
        return heartbeats.heartbeat(self, token, request, client, version, now, now_ms, describable)

    def classic_join(
        self,
        token: Token,
        request: JoinGroupRequest,
        *,
        client: ClientInfo,
        version: int,
        now: float,
        now_ms: int,
    ) -> Decision:
        return classic_members.join(
            self, token, request, client=client, version=version, now=now, now_ms=now_ms
        )

    def classic_sync(self, token: Token, request: SyncGroupRequest, *, now: float) -> Decision:
        return classic_members.sync(self, token, request, now=now)

    def classic_heartbeat(self, token: Token, request: HeartbeatRequest, *, now: float) -> Decision:
        return classic_members.heartbeat(self, token, request, now=now)

    def classic_leave(
        self, token: Token, request: LeaveGroupRequest, *, version: int, now: float, now_ms: int
    ) -> Decision:
        return classic_members.leave(self, token, request, version=version, now_ms=now_ms)

    # The steps of which requests are made

    def new_member_id(self) -> str:
        while True:
            raw = bytearray(self._random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            text = id_text(bytes(raw))
            if not text.startswith("-"):  # it would look like an option on a command line
                return text

    def check_size(self, member_id: str) -> None:
        size_max = self.settings.consumer_group_size_max
        if len(self.state.members) >= size_max and member_id not in self.state.members:
            raise ApiError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"The consumer group has reached its maximum capacity of {size_max} members.",
            )

    def known_member(self, member_id: str, *, create: bool) -> Member:
        member = self.state.members.get(member_id)
        if member is None:
            if not create:
                raise ApiError(
                    ErrorCode.UNKNOWN_MEMBER_ID,
                    f"Member {member_id} is not a member of group {self.id}.",
                )
            member = Member(member_id)
        return member

    def static_member(
        self,
        member_id: str,
        instance_id: str,
        records: list[Record],
        *,
        create: bool,
        speaks_classic: bool,
    ) -> Member:
        """The holder of an instance id. One that joins takes the place of one that went."""
        holder = self.state.static_member(instance_id)
        if not create:
            return self.holder(member_id, instance_id)
        if holder is None:
            return self.known_member(member_id, create=True)
        if not speaks_classic and holder.classic is None and holder.epoch != LEFT_FOR_A_WHILE:
            raise ApiError(
                ErrorCode.UNRELEASED_INSTANCE_ID,
                f"Static member {member_id} with instance id {instance_id} cannot join the group "
                f"because the instance id is owned by {holder.id} member.",
            )
        successor = replace(holder, id=member_id, epoch=0, previous_epoch=0)
        records += member_tombstones(self.id, holder.id)
        records.append(member_record(self.id, successor))
        records.append(target_record(self.id, member_id, self.state.target.get(holder.id, {})))
        records.append(progress_record(self.id, successor))
        self.deadlines.forget(holder.id)
        return successor

    def holder(self, member_id: str, instance_id: str) -> Member:
        holder = self.state.static_member(instance_id)
        if holder is None:
            raise ApiError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {instance_id} is unknown.")
        check_fenced(holder, member_id, instance_id)
        return holder

    def note_member(self, member: Member, updated: Member, records: list[Record]) -> bool:
        """Write what a member says of itself if it is new; whether it wants other topics."""
        if updated == member:
            return False
        records.append(member_record(self.id, updated))
        return updated.topic_names != member.topic_names

    def note_topics(
        self, member: Member, updated: Member, records: list[Record], now: float, *, changed: bool
    ) -> tuple[int, bool]:
        """The group's epoch, one higher if its topics or its subscriptions have changed; and
        whether all members want the same."""
        state = self.state
        if not changed and now < self.look_again:
            return state.epoch, is_homogeneous(state.topics, state.regexes, len(state.members))
        topics = state.topics_after(member, updated)
        is_new = updated.id not in state.members and updated.instance_id not in state.instances
        homogeneous = is_homogeneous(
            topics, state.regexes_after(member, updated), len(state.members) + is_new
        )
        epoch, hashed = state.epoch, self.topics.hash(topics)
        if changed or hashed != state.metadata_hash:
            epoch += 1
            records.append(group_epoch_record(self.id, epoch, hashed))
        self.look_again = now + _METADATA_AGE_MAX
        if state.has_partition_metadata:
            records.append(partition_metadata_tombstone(self.id))
        return epoch, homogeneous

    def target_for(
        self,
        member: Member,
        updated: Member,
        records: list[Record],
        now_ms: int,
        *,
        epoch: int,
        homogeneous: bool,
    ) -> tuple[int, Partitions]:
        """The target and its epoch, worked out anew if the group has moved on.

        Not more often than the assignment interval (KIP-1263): members that come one after the
        other would each move the partitions of all who came before.
        """
        state = self.state
        is_early = (
            state.target_timestamp_ms != 0
            and self._assignment_interval_ms != 0
            and now_ms < state.target_timestamp_ms + self._assignment_interval_ms
        )
        if state.target_epoch >= epoch or is_early:
            return state.target_epoch, self.last_target(updated)
        votes = state.assignors_after(member, updated)
        assignor = ASSIGNORS[voted_assignor(votes, self.settings.consumer_assignors)]
        target = new_target(state, self.topics, updated, assignor, homogeneous=homogeneous)
        for member_id, partitions in target.items():
            if partitions != state.target.get(member_id):
                records.append(target_record(self.id, member_id, partitions))
        records.append(target_epoch_record(self.id, epoch, now_ms))
        return epoch, target[updated.id]

    def last_target(self, member: Member) -> Partitions:
        if member.instance_id is None:
            return self.state.target.get(member.id, {})
        holder = self.state.instances.get(member.instance_id)
        return {} if holder is None else self.state.target.get(holder, {})

    def reconcile(
        self,
        member: Member,
        records: list[Record],
        now: float,
        *,
        target_epoch: int,
        target: Partitions,
        owned: Partitions | None,
        subscription_changed: bool,
    ) -> Member:
        if not subscription_changed and member.is_reconciled_to(target_epoch):
            return member
        goal = Goal(
            epoch=target_epoch,
            partitions=target,
            topics=self.topics.ids(self.state.subscribed(member)),
            owned=owned,
            subscription_changed=subscription_changed,
            is_held=self.state.is_held,
        )
        moved = reconciled(member, goal)
        if moved != member:
            records.append(progress_record(self.id, moved))
            if moved.classic is None:
                if moved.state is MemberState.UNREVOKED:
                    deadline = now + moved.rebalance_timeout_ms / 1000
                    self.deadlines.await_revocation(moved.id, moved.epoch, deadline)
                else:
                    self.deadlines.end_revocation(moved.id)
        return moved

    def remove(
        self,
        members: Iterable[Member],
        now_ms: int,
        replies: tuple[tuple[Token, Message], ...] = (),
    ) -> Decision:
        """Members are out, by their own will or not; the group goes on without them."""
        gone = {member.id: member for member in members}.values()
        if not gone:
            return Decision((), replies)
        if may_downgrade(self.state, self.settings, leaving=gone):
            gone_ids = [member.id for member in gone]
            downgraded = self.downgrade(gone_ids, None, now_ms=now_ms, rebalances=True)
            return Decision(downgraded, replies)
        records: list[Record] = []
        for member in gone:
            records += member_tombstones(self.id, member.id)
            self.deadlines.forget(member.id)
        patterns = self.regexes.forgotten(gone, records)
        hashed = self.topics.hash(self.state.topics_without(gone, patterns))
        records.append(group_epoch_record(self.id, self.state.epoch + 1, hashed))
        self._removing = True
        return Decision(records, replies)

    # The way back to the classic protocol

    def downgrades_by_replacing(self, instance_id: str | None) -> bool:
        """Would all members be classic if this static one was?"""
        holder = self.state.static_member(instance_id)
        return holder is not None and may_downgrade(self.state, self.settings, replaced=holder)

    def downgrade(
        self,
        leaving: Iterable[str],
        joining: Member | None,
        *,
        now_ms: int,
        rebalances: bool,
    ) -> list[Record]:
        """The group ends, and goes on as a classic one with the same members."""
        self.downgraded = Downgraded(rebalances)
        self._removing = True
        return downgrade_records(
            self.state, self.topics, frozenset(leaving), joining, now_ms=now_ms
        )

    # Life

    def apply(self, record: Record) -> None:
        self.state.apply(record)
        self._removing = False

    def on_loaded(self, now: float) -> Decision:
        """Sessions start anew: nobody could send a heartbeat while the group was loading."""
        self.deadlines = Deadlines()
        self.look_again = -inf
        for member in self.state.members.values():
            self.deadlines.renew_session(member.id, now + self.session_timeout)
            if member.state is MemberState.UNREVOKED:
                deadline = now + member.rebalance_timeout_ms / 1000
                self.deadlines.await_revocation(member.id, member.epoch, deadline)
        return NOTHING

    def on_unloaded(self) -> Decision:
        self.deadlines = Deadlines()
        return NOTHING

    def next_deadline(self) -> float:
        # Two things that both raise the epoch cannot be decided in one turn.
        is_ready = self.regexes.is_asked and not self._removing
        return -inf if is_ready else self.deadlines.next_deadline()

    def on_tick(self, now: float, now_ms: int) -> Decision:
        overdue = []
        for member_id, epoch in self.deadlines.overdue(now):
            member = self.state.members.get(member_id)
            if member is None:
                self.deadlines.forget(member_id)
            elif epoch in (None, member.epoch):
                overdue.append(member)
        if overdue:
            why = "sent no heartbeat, or did not revoke partitions, in time"
            note = Note(removed(self.id, [member.id for member in overdue], why))
            return replace(self.remove(overdue, now_ms), notes=(note,))
        if self.regexes.is_asked and not self._removing:
            return Decision(self.regexes.resolve(now_ms))
        return NOTHING

    def on_metadata(self, topics: TopicsView, now: float) -> Decision:
        """The next heartbeat of any member finds out whether the group must move."""
        self.topics.update(topics, now)
        self.look_again = -inf
        return NOTHING

    def on_config(self, overrides: Mapping[str, str]) -> None:
        """The settings of this group, over those of the node and within its bounds."""
        settings = self.settings

        def bounded(name: str, default: int, least: int, most: int) -> int:
            given = overrides.get(name)
            return default if given is None else min(max(int(given), least), most)

        session_timeout_ms = bounded(
            "consumer.session.timeout.ms",
            settings.consumer_session_timeout_ms,
            settings.consumer_session_timeout_ms_min,
            settings.consumer_session_timeout_ms_max,
        )
        self.session_timeout = session_timeout_ms / 1000
        self.heartbeat_interval_ms = bounded(
            "consumer.heartbeat.interval.ms",
            settings.consumer_heartbeat_interval_ms,
            settings.consumer_heartbeat_interval_ms_min,
            settings.consumer_heartbeat_interval_ms_max,
        )
        self._assignment_interval_ms = bounded(
            "consumer.assignment.interval.ms",
            settings.consumer_assignment_interval_ms,
            settings.consumer_assignment_interval_ms_min,
            settings.consumer_assignment_interval_ms_max,
        )


def _stale(member: Member) -> ErrorCode:
    if member.classic is not None:
        return ErrorCode.ILLEGAL_GENERATION
    return ErrorCode.STALE_MEMBER_EPOCH


def check_fenced(holder: Member, member_id: str, instance_id: str) -> None:
    if holder.id != member_id:
        raise ApiError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {member_id} with instance id {instance_id} was fenced by member "
            f"{holder.id}.",
        )
