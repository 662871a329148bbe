"""The requests of a group member to its coordinator, for both protocols.

`ClassicRequests` sends JoinGroup, SyncGroup, Heartbeat and LeaveGroup; its join runs in a task of
its own, so that `poll` may return before the group has come together. The leader of a classic group
also divides the partitions here. `ConsumerRequests` sends ConsumerGroupHeartbeat (KIP-848).
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.connection import Connection
from headwater.client.connection_pool import JOINING
from headwater.client.consumer.membership import consumer_member
from headwater.client.consumer.membership.assignors.model import Assignor, GroupMember, Topics
from headwater.client.consumer.membership.classic_member import ClassicMember, Next
from headwater.client.consumer.membership.consumer_member import (
    UNSUPPORTED_PROTOCOL,
    ConsumerMember,
)
from headwater.client.consumer.membership.driver import Signal
from headwater.client.errors import (
    ClientClosed,
    ClientError,
    FatalError,
    RequestTimedOut,
    RetriableError,
    UnsupportedVersion,
)
from headwater.client.metadata import ClusterMetadata
from headwater.errors import ErrorCode
from headwater.io.tasks import background_task
from headwater.model import NO_EPOCH, TopicPartition, id_text
from headwater.protocol import DecodeError
from headwater.protocol.apis import ApiKey
from headwater.protocol.consumer_protocol import (
    PROTOCOL_TYPE,
    owned_partitions,
    read_subscription,
    write_assignment,
    write_subscription,
)
from headwater.protocol.messages.heartbeat import HeartbeatRequest
from headwater.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headwater.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

_log = logging.getLogger("headwater.client")

_REASON_LENGTH_MAX = 255
# The coordinator lets members join for the rebalance timeout; its response may take a bit longer.
_JOIN_GRACE_MS = 5_000
# Joins in a row without a pause; a group that does not come to rest is then given some.
_IMMEDIATE_JOINS_MAX = 5
_STATIC_SINCE = 5  # the first version of JoinGroup that has instance ids
_MANY_LEAVE_SINCE = 3  # the first version of LeaveGroup for several members
_OWN_ID_SINCE = 1  # the first version in which members choose their ids, and may send patterns
_IDS_SINCE = 12  # the first version of Metadata that asks for topics by id


class ClassicRequests:
    """The requests of a member of a classic group."""

    def __init__(self, member: ClassicMember, cluster: Cluster, signal: Signal) -> None:
        self._member = member
        self._settings = member.settings
        self._cluster = cluster
        self._signal = signal
        self._backoff = Backoff(
            cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms
        )
        self._join_task: asyncio.Task[None] | None = None
        self._group_topics: frozenset[str] = frozenset()  # as leader: those of all members
        self._followed: frozenset[str] = frozenset()

    def subscribe(
        self, topics: frozenset[str], *, pattern: re.Pattern[str] | None, regex: str | None
    ) -> None:
        if regex is not None:
            raise UnsupportedVersion(
                f"a pattern that the broker matches ({regex!r}) needs group_protocol='consumer'; "
                "give a compiled pattern, which this client matches"
            )
        self._member.subscribe(topics, pattern)

    # Joining

    def start_join(self) -> None:
        if self._join_task is not None:
            # A heartbeat has ended the membership while a sync was in flight.
            self._join_task.cancel()
        self._member.on_join_sent()
        self._join_task = background_task(
            self._join(), name=f"headwater-join-{self._settings.group_id}"
        )

    async def _join(self) -> None:
        failures = immediate_joins = 0
        try:
            while True:
                try:
                    following = await self._join_once()
                except RetriableError as error:
                    _log.debug("group %s: joining again: %s", self._settings.group_id, error)
                    following = Next.ELSEWHERE
                if following is Next.STOP:
                    return
                immediate_joins = immediate_joins + 1 if following is Next.AGAIN else 0
                if 0 < immediate_joins <= _IMMEDIATE_JOINS_MAX:
                    failures = 0
                    continue
                if following is Next.ELSEWHERE:
                    self._cluster.coordinator_lost(self._settings.group_id)
                failures += 1
                wait = self._backoff.seconds(failures, self._cluster.host.random)
                if self._cluster.now() + wait >= self._member.poll_deadline:
                    return  # the user does not poll any more
                await asyncio.sleep(wait)
        except ClientClosed:
            return
        except Exception as error:  # perhaps of the user's own assignor; poll raises it
            self._member.failure = error
        finally:
            if self._join_task is asyncio.current_task():
                self._join_task = None
                self._member.on_join_failed()
                self._signal.notify()

    async def _join_once(self) -> Next:
        coordinator = await self._cluster.coordinator(self._settings.group_id)
        # A broker serves the requests of a connection in order. JoinGroup waits for the whole
        # group, so it has a connection of its own: heartbeats and commits must not wait behind it.
        connection = await self._cluster.connection(coordinator.node_id, JOINING)
        version = self._version(connection)
        self._member.on_join_sent()
        response = await connection.exchange(self._join_request(), version, self._join_timeout_ms())
        following = self._member.on_joined(response, self._cluster.now())
        if following is not Next.SYNC:
            return following
        self._signal.notify()  # heartbeats start
        sync = SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=self._member.generation,
            member_id=self._member.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._member.protocol_name,
        )
        if self._member.leads:
            sync.assignments = await self._assignments(response)
        response = await connection.ask(sync, timeout_ms=self._settings.request_timeout_ms)
        return self._member.on_synced(response, sync.generation_id)

    def _version(self, connection: Connection) -> int:
        version = connection.version(ApiKey.JOIN_GROUP)
        if version is None:
            raise UnsupportedVersion(
                f"the broker at {connection.address} serves no version of JoinGroup that this "
                "client knows; does group.coordinator.rebalance.protocols lack classic?"
            )
        if version < _STATIC_SINCE and self._settings.instance_id is not None:
            raise UnsupportedVersion(
                f"group_instance_id={self._settings.instance_id!r} needs Kafka 2.3; the broker at "
                f"{connection.address} is older"
            )
        return version

    def _join_timeout_ms(self) -> int:
        rebalance_ms = self._settings.max_poll_interval_ms + _JOIN_GRACE_MS
        return max(self._settings.request_timeout_ms, rebalance_ms)

    def _join_request(self) -> JoinGroupRequest:
        member = self._member
        last = member.last
        return JoinGroupRequest(
            group_id=self._settings.group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=member.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=write_subscription(
                        topics=member.topics,
                        user_data=assignor.user_data(last),
                        owned=member.owned,
                        # The generation of the assignment: one that ended before partitions were
                        # divided says nothing about owners.
                        generation=NO_EPOCH if last is None else last.generation,
                        rack=self._settings.rack,
                    ),
                )
                for assignor in member.assignors
            ],
            reason=(member.rejoin_reason or "")[:_REASON_LENGTH_MAX] or None,
        )

    # Leading

    async def _assignments(self, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        member = self._member
        members = members_of(response)
        self._group_topics = frozenset[str]().union(*(each.topics for each in members.values()))
        await self._learn(self._group_topics)
        topics = topics_of(self._cluster.metadata, self._group_topics)
        member.watch(self._watchable(topics))
        if response.skip_assignment:
            # A static leader came back and all members keep their partitions (KIP-814); it only
            # watches the topics of the group again.
            return []
        for assignor in member.assignors:
            if assignor.name == member.protocol_name:
                parts = divide(assignor, topics, members, cooperative=member.cooperative)
                return [
                    SyncGroupRequestAssignment(member_id=member_id, assignment=part)
                    for member_id, part in parts.items()
                ]
        raise FatalError(
            f"group {self._settings.group_id!r}: the coordinator chose the assignor "
            f"{member.protocol_name!r}, which this consumer did not offer"
        )

    async def _learn(self, topics: frozenset[str]) -> None:
        """Gets the metadata of the topics of all members. Does not wait for a missing topic."""
        for topic in sorted(topics - self._followed - self._member.topics):
            self._cluster.follow(topic)
        for topic in self._followed - topics - self._member.topics:
            self._cluster.unfollow(topic)
        self._followed = topics - self._member.topics
        known = self._cluster.metadata
        if topics - known.topics.keys() - known.errors.keys():
            self._cluster.need_update()
            try:
                await self._cluster.updated(
                    self._cluster.deadline(self._settings.request_timeout_ms)
                )
            except RequestTimedOut:
                return

    def topics_changed(self) -> None:
        if self._member.leads:
            topics = topics_of(self._cluster.metadata, self._group_topics)
            self._member.on_topics(self._watchable(topics))

    def _watchable(self, topics: Topics) -> Topics:
        """Returns what is worth a rebalance when it changes: racks only if this member has one."""
        if self._settings.rack is not None:
            return topics
        return {name: (frozenset(),) * len(racks) for name, racks in topics.items()}

    # Staying and leaving

    async def send_heartbeat(self) -> None:
        member = self._member
        now = self._cluster.now()
        member.on_heartbeat_sent(now)
        if now >= member.session_deadline:
            # There was no response for the whole session: the coordinator may have moved.
            self._cluster.coordinator_lost(self._settings.group_id)
        connection = await self._cluster.coordinator(self._settings.group_id)
        sent = (member.member_id, member.generation)
        response = await connection.ask(
            HeartbeatRequest(
                group_id=self._settings.group_id,
                generation_id=member.generation,
                member_id=member.member_id,
                group_instance_id=self._settings.instance_id,
            ),
            timeout_ms=self._settings.request_timeout_ms,
        )
        if member.on_heartbeat(response.error_code, sent, self._cluster.now()) is Next.ELSEWHERE:
            self._cluster.coordinator_lost(self._settings.group_id)

    async def leave(self, deadline: float, *, reason: str, remain: bool | None) -> None:
        """Leaves, if that is possible before the deadline; otherwise the session expires."""
        member = self._member
        member_id = member.member_id
        member.on_left(reason=reason)
        stays = self._settings.instance_id is not None if remain is None else remain
        if stays or not member_id:
            return
        try:
            async with asyncio.timeout(max(0.0, deadline - self._cluster.now())):
                connection = await self._cluster.coordinator(
                    self._settings.group_id, deadline=deadline
                )
                await self._send_leave(connection, member_id, reason, deadline)
        except (ClientError, TimeoutError):
            return

    async def _send_leave(
        self, connection: Connection, member_id: str, reason: str, deadline: float
    ) -> None:
        version = connection.version(ApiKey.LEAVE_GROUP) or 0
        request = LeaveGroupRequest(group_id=self._settings.group_id)
        if version < _MANY_LEAVE_SINCE:
            request.member_id = member_id
        else:
            request.members = [
                MemberIdentity(
                    member_id=member_id,
                    group_instance_id=self._settings.instance_id,
                    reason=reason[:_REASON_LENGTH_MAX],
                )
            ]
        left_ms = round((deadline - self._cluster.now()) * 1000)
        await connection.exchange(request, version, max(1, left_ms))

    async def stop(self) -> None:
        for topic in self._followed:
            self._cluster.unfollow(topic)
        self._followed = self._group_topics = frozenset()
        task, self._join_task = self._join_task, None
        if task is not None and not task.done():
            task.cancel()
            await asyncio.wait((task,))
            self._member.on_join_failed()


def members_of(response: JoinGroupResponse) -> dict[str, GroupMember]:
    """Returns the members of a generation by member id."""
    members: dict[str, GroupMember] = {}
    for each in response.members:
        try:
            members[each.member_id] = member_of(
                bytes(each.metadata), instance_id=each.group_instance_id
            )
        except DecodeError as error:
            raise FatalError(
                f"the subscription of member {each.member_id} is invalid ({error}); is it a "
                "consumer?"
            ) from error
    return members


def member_of(subscription: bytes, *, instance_id: str | None = None) -> GroupMember:
    """Reads a member's subscription; DecodeError if the bytes are not one."""
    read = read_subscription(subscription)
    return GroupMember(
        topics=frozenset(read.topics),
        owned=tuple(owned_partitions(read)),
        generation=read.generation_id,
        instance_id=instance_id,
        rack=read.rack_id or None,
        user_data=None if read.user_data is None else bytes(read.user_data),
    )


def topics_of(metadata: ClusterMetadata, names: frozenset[str]) -> Topics:
    """Returns the racks of the replicas of each partition, for the topics that exist."""
    racks = {node: broker.rack for node, broker in metadata.brokers.items() if broker.rack}
    return {
        name: tuple(
            frozenset(racks[node] for node in each.replicas if node in racks)
            for each in topic.partitions
        )
        for name in sorted(names)
        if (topic := metadata.topics.get(name)) is not None
    }


def divide(
    assignor: Assignor, topics: Topics, members: Mapping[str, GroupMember], *, cooperative: bool
) -> dict[str, bytes]:
    """Returns the encoded assignment of each member."""
    assignments = assignor.assign(topics, members)
    if cooperative:
        _check_cooperative(assignor, assignments, members)
    return {member_id: write_assignment(assignments.get(member_id, ())) for member_id in members}


def _check_cooperative(
    assignor: Assignor,
    assignments: Mapping[str, list[TopicPartition]],
    members: Mapping[str, GroupMember],
) -> None:
    """Refuses an assignment that would give a partition two owners, even for a moment."""
    owners: dict[TopicPartition, str] = {}
    for member_id, member in members.items():
        owners.update(dict.fromkeys(member.owned, member_id))
    for member_id, assigned in assignments.items():
        for partition in assigned:
            if partition in owners and partition not in members[member_id].owned:
                raise FatalError(
                    f"assignor {assignor.name!r} gave {partition} to {member_id} while "
                    f"{owners[partition]} still owns it; a cooperative assignor must leave it out"
                )


class ConsumerRequests:
    """The requests of a member of a consumer group (KIP-848): heartbeats, and nothing else."""

    def __init__(self, member: ConsumerMember, cluster: Cluster, signal: Signal) -> None:
        self._member = member
        self._settings = member.settings
        self._cluster = cluster
        self._signal = signal
        self._learned: frozenset[str] = frozenset()

    def subscribe(
        self, topics: frozenset[str], *, pattern: re.Pattern[str] | None, regex: str | None
    ) -> None:
        self._member.subscribe(topics, regex=regex, follows_pattern=pattern is not None)

    def start_join(self) -> None:
        self._member.on_join_started()

    async def send_heartbeat(self) -> None:
        member = self._member
        connection = await self._cluster.coordinator(self._settings.group_id)
        version = connection.version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        if version is None:
            member.on_left()
            raise UnsupportedVersion(
                f"group {self._settings.group_id!r}: {UNSUPPORTED_PROTOCOL}",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        if version >= _OWN_ID_SINCE and not member.member_id:
            member.member_id = id_text(self._cluster.host.random_id())
        elif version < _OWN_ID_SINCE and member.regex is not None:
            member.on_left()
            raise UnsupportedVersion(
                f"a pattern that the broker matches ({member.regex!r}) needs Kafka 4.0; the broker "
                f"at {connection.address} is older. Give a compiled pattern, which this client "
                "matches"
            )
        epoch = member.epoch
        request, fields = member.heartbeat(self._cluster.now())
        response = await connection.exchange(request, version, self._settings.request_timeout_ms)
        if member.on_heartbeat(response, fields, sent_epoch=epoch):
            self._cluster.coordinator_lost(self._settings.group_id)
        if unresolved := member.unresolved():
            await self._learn(unresolved)

    async def _learn(self, topic_ids: frozenset[bytes]) -> None:
        """Gets the names of topics that are known only by id. If this fails, it is tried again
        after the next heartbeat."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=each, name=None) for each in sorted(topic_ids)],
            allow_auto_topic_creation=False,
        )
        try:
            connection = await self._cluster.any()
            if (connection.version(ApiKey.METADATA) or 0) < _IDS_SINCE:
                self._cluster.need_update()
                return
            response = await connection.ask(request, timeout_ms=self._settings.request_timeout_ms)
        except ClientError:
            return
        self._cluster.metadata.update(response)
        names = frozenset(
            each.name for each in response.topics if each.name and not each.error_code
        )
        for name in names - self._learned - self._member.topics:
            self._cluster.follow(name)
        self._learned |= names - self._member.topics

    def topics_changed(self) -> None:
        """Does nothing: the coordinator watches the topics of the group."""

    async def leave(self, deadline: float, *, reason: str, remain: bool | None) -> None:
        """Leaves, if that is possible before the deadline; otherwise the session expires. A static
        member announces that it may return (epoch -2), unless it leaves for good."""
        member = self._member
        was_in = member.phase is not consumer_member.Phase.OUTSIDE and member.member_id
        request = member.leave_request(for_good=remain is False)
        member.on_left()
        if not was_in or remain:
            return
        try:
            async with asyncio.timeout(max(0.0, deadline - self._cluster.now())):
                connection = await self._cluster.coordinator(
                    self._settings.group_id, deadline=deadline
                )
                left_ms = round((deadline - self._cluster.now()) * 1000)
                await connection.ask(request, timeout_ms=max(1, left_ms))
        except (ClientError, TimeoutError):
            return

    async def stop(self) -> None:
        for topic in self._learned:
            self._cluster.unfollow(topic)
        self._learned = frozenset()
