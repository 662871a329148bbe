"""A consumer group (KIP-848): the coordinator assigns partitions, and members follow by heartbeats.

The group's epoch goes up when its members or their subscriptions have changed. A new target
assignment is computed for that epoch, and each member reconciles to it at its own pace (`member`).
`GroupState` is what the log says; `ConsumerGroup` decides, and keeps the timeouts of its members.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from math import inf
from random import Random
from typing import NamedTuple

from headwater.coordination import NOTHING, Decision, DecisionBuilder, Note, Record, Token, reply
from headwater.errors import ApiError, ErrorCode
from headwater.groups import migration
from headwater.groups.clients import ClientInfo, removed
from headwater.groups.consumer.assignors import ASSIGNORS, Partitions
from headwater.groups.consumer.member import (
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    Goal,
    Held,
    Member,
    MemberState,
    reconciled,
)
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
from headwater.groups.consumer.regexes import Describable, Regexes
from headwater.groups.consumer.state import GroupState, is_homogeneous
from headwater.groups.consumer.target_assignment import new_target, voted_assignor
from headwater.groups.consumer.topics import Topics
from headwater.groups.settings import GroupSettings
from headwater.groups.timers import Timer, Timers
from headwater.model import id_text
from headwater.protocol.messages.consumer_group_heartbeat import (
    Assignment,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
    ConsumerGroupHeartbeatResponseTopicPartitions,
)
from headwater.protocol.schema import Message

# The metadata is checked again after this even if no change was reported; Kafka's number.
_METADATA_AGE_MAX = 2_147_483.647


class Session(NamedTuple):
    """A member's session, which every heartbeat extends."""

    deadline: float
    timeout_ms: int
    is_awaited: bool  # it has not reconciled to the target yet


class ConsumerGroup:
    """One consumer group."""

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
        self.metadata_refresh_deadline = -inf  # when to compare the topics' hash again
        # Set when the group has decided to continue as a classic one.
        self.downgraded: migration.Downgraded | None = None
        # Members were removed, and the records of it have not been applied yet.
        self._removing = False
        self.session_timeout = settings.consumer_session_timeout_ms / 1000
        self.heartbeat_interval_ms = settings.consumer_heartbeat_interval_ms
        self._assignment_interval_ms = settings.consumer_assignment_interval_ms

    @property
    def id(self) -> str:
        return self.state.id

    @property
    def is_empty(self) -> bool:
        return not self.state.members

    @property
    def is_gone(self) -> bool:
        """Whether the group's tombstone has been applied."""
        return self.state.is_gone

    def is_subscribed(self, topic: str) -> bool:
        return topic in self.state.topics

    # ConsumerGroupHeartbeat

    def decide_heartbeat(
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
        """Joins, keeps or removes a member. A member sends only what has changed and is told only
        what is new: nearly all heartbeats change nothing, and are answered first.

        `describable` reduces the topics that a pattern matches to those the client may know of.
        """
        state = self.state
        member = state.members.get(request.member_id)
        if (
            member is not None
            and member.epoch == request.member_epoch
            and now < self.metadata_refresh_deadline
            and member.is_reconciled_to(state.epoch)
            and state.epoch == state.target_epoch
            and _is_unchanged(member, request, client)
        ):
            if state.regexes:
                self.regexes.ask(state.regexes, self.settings, now_ms, describable)
            self.deadlines.renew_session(member.id, now + self.session_timeout)
            response = ConsumerGroupHeartbeatResponse(
                member_id=member.id,
                member_epoch=member.epoch,
                heartbeat_interval_ms=self.heartbeat_interval_ms,
            )
            return Decision((), ((token, response),))
        try:
            check_heartbeat(request, self.settings.consumer_assignors, version=version)
            if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
                return self._decide_leave(token, request, now_ms)
            return self._decide_join_or_stay(token, request, client, now, now_ms, describable)
        except ApiError as refusal:
            return reply(token, heartbeat_refused(refusal))

    def _decide_join_or_stay(
        self,
        token: Token,
        request: ConsumerGroupHeartbeatRequest,
        client: ClientInfo,
        now: float,
        now_ms: int,
        describable: Describable | None,
    ) -> Decision:
        records: list[Record] = []
        owned = _owned_partitions(request.topic_partitions)
        self.check_size(request.member_id)
        member = self._requesting_member(request, owned, records)
        updated = _updated(member, request, client)

        # 1. The member and, if subscriptions or topics have changed, the group's epoch.
        changed = self.note_member(member, updated, records)
        regex = self.regexes.changed(member, updated, records)
        self.regexes.ask(
            self.state.regexes_after(member, updated),
            self.settings,
            now_ms,
            describable,
            must=regex.must_resolve,
        )
        epoch, homogeneous = self.note_topics(
            member, updated, records, now, changed=changed or regex.is_resolved
        )

        # 2. The target assignment of that epoch.
        target_epoch, target = self.target_for(
            member, updated, records, now_ms, epoch=epoch, homogeneous=homogeneous
        )

        # 3. One step of the member towards its target.
        moved = self.reconcile(
            updated,
            records,
            now,
            target_epoch=target_epoch,
            target=target,
            owned=owned,
            subscription_changed=changed or regex.is_changed,
        )

        # 4. The member's session, and the response.
        self.deadlines.renew_session(moved.id, now + self.session_timeout)
        is_new = request.member_epoch == 0 or _is_full(request) or moved.assigned != member.assigned
        response = ConsumerGroupHeartbeatResponse(
            member_id=moved.id,
            member_epoch=moved.epoch,
            heartbeat_interval_ms=self.heartbeat_interval_ms,
            assignment=_assignment(moved.assigned) if is_new else None,
        )
        return Decision(records, ((token, response),))

    def _requesting_member(
        self,
        request: ConsumerGroupHeartbeatRequest,
        owned: Partitions | None,
        records: list[Record],
    ) -> Member:
        """Returns the member that sent the request, a new one if it joins."""
        member_id = request.member_id or self.new_member_id()
        joins = request.member_epoch == 0
        if request.instance_id is None:
            member = self.known_member(member_id, create=joins)
        else:
            member = self.static_member(
                member_id, request.instance_id, records, create=joins, speaks_classic=False
            )
        _check_epoch(member, request.member_epoch, owned)
        return member

    def _decide_leave(
        self, token: Token, request: ConsumerGroupHeartbeatRequest, now_ms: int
    ) -> Decision:
        response = ConsumerGroupHeartbeatResponse(
            member_id=request.member_id, member_epoch=request.member_epoch
        )
        if request.instance_id is None:
            member = self.known_member(request.member_id, create=False)
        else:
            member = self.holder(request.member_id, request.instance_id)
            if request.member_epoch == LEAVE_STATIC_EPOCH:
                # It will be back: its partitions wait until its session expires.
                return Decision((self._left_static(member),), ((token, response),))
        return self.remove([member], now_ms, ((token, response),))

    def _left_static(self, member: Member) -> Record:
        left = replace(
            member,
            epoch=LEAVE_STATIC_EPOCH,
            revoking={},
            # Earlier epochs mean nothing to the member that comes back.
            assigned={topic: dict.fromkeys(held, 0) for topic, held in member.assigned.items()},
        )
        return progress_record(self.id, left)

    # The steps, which JoinGroup of a classic member takes too (`migration`)

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
        """Returns the holder of an instance id. A member that joins replaces one that has left."""
        holder = self.state.static_member(instance_id)
        if not create:
            return self.holder(member_id, instance_id)
        if holder is None:
            return self.known_member(member_id, create=True)
        if not speaks_classic and holder.classic is None and holder.epoch != LEAVE_STATIC_EPOCH:
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
        """Writes the member's record if it has changed; returns whether its topics have."""
        if updated == member:
            return False
        records.append(member_record(self.id, updated))
        return updated.topic_names != member.topic_names

    def note_topics(
        self, member: Member, updated: Member, records: list[Record], now: float, *, changed: bool
    ) -> tuple[int, bool]:
        """Returns the group's epoch, raised if topics or subscriptions have changed, and whether
        all members subscribe to the same topics."""
        state = self.state
        if not changed and now < self.metadata_refresh_deadline:
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
        self.metadata_refresh_deadline = now + _METADATA_AGE_MAX
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
        """Returns the member's target and its epoch, computed anew if the group's epoch is higher.

        Not more often than the assignment interval (KIP-1263): members that join one after the
        other would each move the partitions of all that joined before. A target from the future
        was computed by a coordinator whose clock was ahead, and delays nothing.
        """
        state = self.state
        is_early = 0 <= now_ms - state.target_timestamp_ms < self._assignment_interval_ms
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
        """Removes members that have left or timed out, and raises the group's epoch."""
        gone = {member.id: member for member in members}.values()
        if not gone:
            return Decision((), replies)
        if migration.may_downgrade(self.state, self.settings, leaving=gone):
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

    # Offsets

    def check_commit(
        self,
        member_id: str,
        instance_id: str | None,
        epoch: int,
        *,
        version: int,
        transactional: bool,
        partitions: Iterable[tuple[bytes, int]],
    ) -> ErrorCode:
        """Checks that a member may commit offsets of these partitions (topic id and index).

        An older epoch is valid for a partition that the member has held since then (KIP-1251): a
        commit may be under way while a heartbeat brings the next epoch.
        """
        if epoch < 0 and self.is_empty:
            return ErrorCode.NONE  # an administrator, or a consumer with manual assignment
        if transactional and epoch == -1 and not member_id and instance_id is None:
            return ErrorCode.NONE  # a producer from before members were part of the request
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
        for topic, partition in partitions:
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

    def expires_from_ms(self, commit_ms: int) -> int:
        """Returns when the retention of an offset began that was committed at this time."""
        return commit_ms

    # Migration to the classic protocol

    def downgrades_by_replacing(self, instance_id: str | None) -> bool:
        """Returns whether all members would be classic if this static one were."""
        holder = self.state.static_member(instance_id)
        return holder is not None and migration.may_downgrade(
            self.state, self.settings, replaced=holder
        )

    def downgrade(
        self,
        leaving: Iterable[str],
        joining: Member | None,
        *,
        now_ms: int,
        rebalances: bool,
    ) -> list[Record]:
        """Ends the group, which continues as a classic one with the same members."""
        self.downgraded = migration.Downgraded(rebalances)
        self._removing = True
        return migration.downgrade_records(
            self.state, self.topics, frozenset(leaving), joining, now_ms=now_ms
        )

    # Life

    def apply(self, record: Record) -> None:
        self.state.apply(record)
        self._removing = False

    def durable_state(self) -> object:
        return self.state.durable()

    def tombstones(self) -> list[Record]:
        return group_tombstones(self.id, self.state.members, self.state.resolved)

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

    def on_loaded(self, now: float) -> None:
        """Starts all sessions anew: no heartbeat could be received while the group was loading."""
        self.deadlines = Deadlines()
        self.metadata_refresh_deadline = -inf
        for member in self.state.members.values():
            self.deadlines.renew_session(member.id, now + self.session_timeout)
            if member.state is MemberState.UNREVOKED:
                deadline = now + member.rebalance_timeout_ms / 1000
                self.deadlines.await_revocation(member.id, member.epoch, deadline)

    def next_deadline(self) -> float:
        # Two things that both raise the epoch cannot be part of one decision.
        is_ready = self.regexes.is_asked and not self._removing
        return -inf if is_ready else self.deadlines.next_deadline()

    def on_tick(self, now: float, now_ms: int) -> Decision:
        overdue: list[Member] = []
        reasons: dict[str, list[str]] = {}
        for member_id, epoch in self.deadlines.overdue(now):
            member = self.state.members.get(member_id)
            if member is None:
                self.deadlines.forget(member_id)
            elif epoch in (None, member.epoch) and member not in overdue:
                overdue.append(member)
                reasons.setdefault(_why_removed(member, epoch), []).append(member_id)
        if overdue:
            notes = [Note(removed(self.id, names, why)) for why, names in reasons.items()]
            return replace(self.remove(overdue, now_ms), notes=notes)
        if self.regexes.is_asked and not self._removing:
            return Decision(self.regexes.resolve(now_ms))
        return NOTHING

    def on_metadata(self) -> None:
        """Topics have changed: the next heartbeat of any member compares their hash."""
        self.metadata_refresh_deadline = -inf

    def on_config(self, overrides: Mapping[str, str]) -> None:
        """Applies the settings of this group, which the node's settings bound."""
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


def check_heartbeat(
    request: ConsumerGroupHeartbeatRequest, assignors: Collection[str], *, version: int
) -> None:
    """Raises ApiError for a request that no group accepts, in the order of Kafka's checks."""
    epoch = request.member_epoch
    # Before version 1 the coordinator gives a joining member its id.
    if version >= 1 or epoch > 0 or epoch == LEAVE_EPOCH:
        _not_blank(request.member_id, "MemberId can't be empty.")
    _not_blank(request.group_id, "GroupId can't be empty.")
    _not_blank(request.instance_id, "InstanceId can't be empty.")
    _not_blank(request.rack_id, "RackId can't be empty.")
    if epoch == 0:
        if request.rebalance_timeout_ms == -1:
            raise _invalid("RebalanceTimeoutMs must be provided in first request.")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("TopicPartitions must be empty when (re-)joining.")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid(
                "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when "
                "(re-)joining."
            )
    elif epoch == LEAVE_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid("InstanceId can't be null.")
    elif epoch < LEAVE_STATIC_EPOCH:
        raise _invalid("MemberEpoch is invalid.")
    assignor = request.server_assignor
    if assignor is not None and assignor not in assignors:
        raise ApiError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {assignor} is not supported. "
            f"Supported assignors: {', '.join(assignors)}.",
        )


def _invalid(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REQUEST, message)


def _not_blank(text: str | None, message: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(message)


def heartbeat_refused(refusal: ApiError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=refusal.code, error_message=refusal.message)


def _is_unchanged(
    member: Member, request: ConsumerGroupHeartbeatRequest, client: ClientInfo
) -> bool:
    return (
        request.subscribed_topic_names is None
        and request.topic_partitions is None
        and request.subscribed_topic_regex is None
        and request.rebalance_timeout_ms in (-1, member.rebalance_timeout_ms)
        and (request.instance_id is None or request.instance_id == member.instance_id)
        and request.rack_id is None
        and request.server_assignor is None
        and client.client_id == member.client_id
        and client.host == member.client_host
        and member.classic is None
    )


def _is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """A full request, as after a lost response: the full assignment is returned."""
    subscribes = (
        request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None
    )
    return (
        request.rebalance_timeout_ms != -1 and subscribes and request.topic_partitions is not None
    )


def _check_epoch(member: Member, epoch: int, owned: Partitions | None) -> None:
    """Accepts the member's epoch, or the one before if the response that raised it may be lost."""
    if epoch in (0, member.epoch):
        return
    if (
        epoch == member.previous_epoch
        and epoch < member.epoch
        and owned is not None
        and all(
            partitions <= member.assigned.get(topic, {}).keys()
            for topic, partitions in owned.items()
        )
    ):
        return
    word = "greater" if epoch > member.epoch else "smaller"
    raise ApiError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({epoch}) than the one known by the "
        f"group coordinator ({member.epoch}). The member must abandon all its partitions and "
        "rejoin.",
    )


def _updated(member: Member, request: ConsumerGroupHeartbeatRequest, client: ClientInfo) -> Member:
    """Returns the member with what the request changes; null means unchanged."""
    names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
    timeout_ms = request.rebalance_timeout_ms
    return replace(
        member,
        instance_id=member.instance_id if request.instance_id is None else request.instance_id,
        rack_id=member.rack_id if request.rack_id is None else request.rack_id,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=request.server_assignor or member.server_assignor,
        topic_names=member.topic_names if names is None else frozenset(names),
        topic_regex=member.topic_regex if regex is None else regex,
        client_id=client.client_id,
        client_host=client.host,
        classic=None,
    )


def _owned_partitions(
    topics: Iterable[ConsumerGroupHeartbeatRequestTopicPartitions] | None,
) -> Partitions | None:
    """Returns the partitions that a member owns; None if the request does not say."""
    if topics is None:
        return None
    owned: dict[bytes, frozenset[int]] = {}
    for topic in topics:
        topic_id = bytes(topic.topic_id)
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _assignment(held: Held) -> Assignment:
    return Assignment(
        topic_partitions=[
            ConsumerGroupHeartbeatResponseTopicPartitions(
                topic_id=topic, partitions=sorted(partitions)
            )
            for topic, partitions in held.items()
        ]
    )


def _why_removed(member: Member, revoking_epoch: int | None) -> str:
    if revoking_epoch is not None:
        return "did not revoke partitions within the rebalance timeout"
    if member.classic is not None:
        return "sent no heartbeat, or did not rejoin, in time"
    return "sent no heartbeat within the session timeout"


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


def _unused(builder: DecisionBuilder) -> None:
    raise AssertionError("the owner of a timer is looked up, not called")


class Deadlines:
    """The timeouts of a group's members. They are not in the log, and start anew after a load."""

    def __init__(self) -> None:
        self._timers = Timers()
        self._sessions: dict[str, Timer] = {}
        # Members that have to revoke partitions, each with its epoch at that time.
        self._revocations: dict[str, tuple[Timer, int]] = {}
        # Classic members that have to send JoinGroup, or after that SyncGroup.
        self._joins: dict[str, Timer] = {}
        self._syncs: dict[str, Timer] = {}
        self._owners: dict[Timer, tuple[str, int | None]] = {}

    def _set(
        self, timers: dict[str, Timer], member_id: str, deadline: float, epoch: int | None = None
    ) -> Timer:
        timer = timers.get(member_id)
        if timer is None:
            timer = timers[member_id] = Timer(_unused)
            self._owners[timer] = (member_id, epoch)
        self._timers.set(timer, deadline)
        return timer

    def _end(self, timer: Timer | None) -> None:
        if timer is not None:
            timer.cancel()
            del self._owners[timer]

    def renew_session(self, member_id: str, deadline: float) -> None:
        timer = self._sessions.get(member_id)
        if timer is None:
            self._set(self._sessions, member_id, deadline)
        else:
            self._timers.set(timer, deadline)

    def session(self, member_id: str) -> float:
        timer = self._sessions.get(member_id)
        return inf if timer is None else timer.deadline

    def await_revocation(self, member_id: str, epoch: int, deadline: float) -> None:
        """Sets a timeout that is valid only while the member stays in this epoch."""
        self.end_revocation(member_id)
        timer = self._set({}, member_id, deadline, epoch)
        self._revocations[member_id] = (timer, epoch)

    def end_revocation(self, member_id: str) -> None:
        timer, _ = self._revocations.pop(member_id, (None, 0))
        self._end(timer)

    def await_join(self, member_id: str, deadline: float) -> None:
        if member_id not in self._joins:
            self._set(self._joins, member_id, deadline)

    def end_join(self, member_id: str) -> None:
        self._end(self._joins.pop(member_id, None))

    def await_sync(self, member_id: str, deadline: float) -> None:
        self._set(self._syncs, member_id, deadline)

    def end_sync(self, member_id: str) -> None:
        self._end(self._syncs.pop(member_id, None))

    def forget(self, member_id: str) -> None:
        self._end(self._sessions.pop(member_id, None))
        self.end_revocation(member_id)
        self.end_join(member_id)
        self.end_sync(member_id)

    def next_deadline(self) -> float:
        return self._timers.next_deadline()

    def overdue(self, now: float) -> list[tuple[str, int | None]]:
        """Returns the members that have timed out; those that had to revoke, with their epoch."""
        overdue = [self._owners[timer] for timer in self._timers.due(now)]
        for member_id, epoch in overdue:
            if epoch is not None:
                self.end_revocation(member_id)
        return overdue
