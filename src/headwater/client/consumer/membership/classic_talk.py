"""What a member of a classic group says to its coordinator: JoinGroup to LeaveGroup.

A join runs in a task of its own, so that `poll` may return before the group has come together.
"""

from __future__ import annotations

import asyncio
import logging
import re

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.connection import Connection
from headwater.client.connection_pool import JOINING
from headwater.client.consumer.membership.assignors.model import Topics
from headwater.client.consumer.membership.classic import ClassicMember, Next
from headwater.client.consumer.membership.leading import divide, members_of, topics_of
from headwater.client.consumer.membership.signals import Signal
from headwater.client.errors import (
    ClientClosed,
    ClientError,
    FatalError,
    RequestTimedOut,
    RetriableError,
    UnsupportedVersion,
)
from headwater.io.tasks import background_task
from headwater.model import NO_EPOCH
from headwater.protocol.apis import ApiKey
from headwater.protocol.consumer_protocol import PROTOCOL_TYPE, write_subscription
from headwater.protocol.messages.heartbeat import HeartbeatRequest
from headwater.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from headwater.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from headwater.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

_log = logging.getLogger("headwater.client")

_REASON_LENGTH_MAX = 255
# The coordinator lets members join for the rebalance timeout; its answer may take a little longer.
_JOIN_GRACE_MS = 5_000
# So often in a row we join again at once; then a group that finds no rest is left some.
_AGAIN_MAX = 5
_STATIC_SINCE = 5  # the version of JoinGroup from which on there are instance ids
_MANY_LEAVE_SINCE = 3


class ClassicTalk:
    def __init__(self, machine: ClassicMember, cluster: Cluster, signal: Signal) -> None:
        self._machine = machine
        self._settings = machine.settings
        self._cluster = cluster
        self._signal = signal
        self._backoff = Backoff(
            cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms
        )
        self._joining: asyncio.Task[None] | None = None
        self._group_topics: frozenset[str] = frozenset()  # as leader: what anybody wants
        self._followed: frozenset[str] = frozenset()

    def subscribe(
        self, topics: frozenset[str], *, pattern: re.Pattern[str] | None, regex: str | None
    ) -> None:
        if regex is not None:
            raise UnsupportedVersion(
                f"a regular expression for the broker ({regex!r}) needs group_protocol='consumer'; "
                "give a pattern, which this client matches itself"
            )
        self._machine.subscribe(topics, pattern)

    # Joining.

    def start_join(self) -> None:
        if self._joining is not None:
            # A heartbeat was told that we are no member while a sync was under way.
            self._joining.cancel()
        self._machine.on_join_sent()
        self._joining = background_task(
            self._join(), name=f"headwater-join-{self._settings.group_id}"
        )

    async def _join(self) -> None:
        failures = again = 0
        try:
            while True:
                try:
                    following = await self._attempt()
                except RetriableError as error:
                    _log.debug("group %s: joining again: %s", self._settings.group_id, error)
                    following = Next.ELSEWHERE
                if following is Next.STOP:
                    return
                again = again + 1 if following is Next.AGAIN else 0
                if 0 < again <= _AGAIN_MAX:
                    failures = 0
                    continue
                if following is Next.ELSEWHERE:
                    self._cluster.coordinator_lost(self._settings.group_id)
                failures += 1
                wait = self._backoff.seconds(failures, self._cluster.host.random)
                if self._cluster.now() + wait >= self._machine.poll_deadline:
                    return  # nobody polls any more
                await asyncio.sleep(wait)
        except ClientClosed:
            return
        except Exception as error:  # an assignor may be the user's own; poll raises it there
            self._machine.failure = error
        finally:
            if self._joining is asyncio.current_task():
                self._joining = None
                self._machine.on_join_failed()
                self._signal.fire()

    async def _attempt(self) -> Next:
        coordinator = await self._cluster.coordinator(self._settings.group_id)
        # A broker serves a connection in order: JoinGroup, which waits for the whole group, goes
        # where no heartbeat or commit stands behind it.
        connection = await self._cluster.connection(coordinator.node_id, JOINING)
        version = self._version(connection)
        self._machine.on_join_sent()
        response = await connection.exchange(self._join_request(), version, self._join_timeout_ms())
        following = self._machine.on_joined(response, self._cluster.now())
        if following is not Next.SYNC:
            return following
        self._signal.fire()  # from here on there are heartbeats
        sync = SyncGroupRequest(
            group_id=self._settings.group_id,
            generation_id=self._machine.generation,
            member_id=self._machine.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._machine.protocol_name,
        )
        if self._machine.leads:
            sync.assignments = await self._assignments(response)
        answer = await connection.ask(sync, timeout_ms=self._settings.request_timeout_ms)
        return self._machine.on_synced(answer, sync.generation_id)

    def _version(self, connection: Connection) -> int:
        version = connection.version(ApiKey.JOIN_GROUP)
        if version is None:
            raise UnsupportedVersion(
                f"{connection.address} serves no JoinGroup that is known here; is "
                "group.coordinator.rebalance.protocols without classic?"
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
        machine = self._machine
        last = machine.last
        return JoinGroupRequest(
            group_id=self._settings.group_id,
            session_timeout_ms=self._settings.session_timeout_ms,
            rebalance_timeout_ms=self._settings.max_poll_interval_ms,
            member_id=machine.member_id,
            group_instance_id=self._settings.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=[
                JoinGroupRequestProtocol(
                    name=assignor.name,
                    metadata=write_subscription(
                        topics=machine.topics,
                        user_data=assignor.user_data(last),
                        owned=machine.owned,
                        # That of the assignment: a generation that ended before it was divided
                        # says nothing about who owns what.
                        generation=NO_EPOCH if last is None else last.generation,
                        rack=self._settings.rack,
                    ),
                )
                for assignor in machine.assignors
            ],
            reason=(machine.rejoin_reason or "")[:_REASON_LENGTH_MAX] or None,
        )

    # Leading.

    async def _assignments(self, response: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        machine = self._machine
        members = members_of(response)
        self._group_topics = frozenset[str]().union(*(each.topics for each in members.values()))
        await self._learn(self._group_topics)
        topics = topics_of(self._cluster.metadata, self._group_topics)
        machine.watch(self._watchable(topics))
        if response.skip_assignment:
            # A static leader came back; everybody keeps what they have (KIP-814). It goes on
            # watching the topics of the group.
            return []
        for assignor in machine.assignors:
            if assignor.name == machine.protocol_name:
                parts = divide(assignor, topics, members, cooperative=machine.cooperative)
                return [
                    SyncGroupRequestAssignment(member_id=member_id, assignment=part)
                    for member_id, part in parts.items()
                ]
        raise FatalError(
            f"group {self._settings.group_id!r}: the coordinator chose the assignor "
            f"{machine.protocol_name!r}, which this consumer did not offer"
        )

    async def _learn(self, topics: frozenset[str]) -> None:
        """Metadata of what others want, too. A topic that does not exist is not waited for."""
        for topic in sorted(topics - self._followed - self._machine.topics):
            self._cluster.follow(topic)
        for topic in self._followed - topics - self._machine.topics:
            self._cluster.unfollow(topic)
        self._followed = topics - self._machine.topics
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
        if self._machine.leads:
            topics = topics_of(self._cluster.metadata, self._group_topics)
            self._machine.on_topics(self._watchable(topics))

    def _watchable(self, topics: Topics) -> Topics:
        """What is worth a rebalance when it changes: racks only if we know our own."""
        if self._settings.rack is not None:
            return topics
        return {name: (frozenset(),) * len(racks) for name, racks in topics.items()}

    # Staying and leaving.

    async def beat(self) -> None:
        machine = self._machine
        now = self._cluster.now()
        machine.on_heartbeat_sent(now)
        if now >= machine.session_deadline:
            # Nothing was heard for the whole session: the coordinator may be another by now.
            self._cluster.coordinator_lost(self._settings.group_id)
        connection = await self._cluster.coordinator(self._settings.group_id)
        sent = (machine.member_id, machine.generation)
        answer = await connection.ask(
            HeartbeatRequest(
                group_id=self._settings.group_id,
                generation_id=machine.generation,
                member_id=machine.member_id,
                group_instance_id=self._settings.instance_id,
            ),
            timeout_ms=self._settings.request_timeout_ms,
        )
        if machine.on_heartbeat(answer.error_code, sent, self._cluster.now()) is Next.ELSEWHERE:
            self._cluster.coordinator_lost(self._settings.group_id)

    async def leave(self, deadline: float, *, reason: str, remain: bool | None) -> None:
        """As well as it can be done before the deadline; the session ends by itself if not."""
        machine = self._machine
        member_id = machine.member_id
        machine.on_left(reason=reason)
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
        joining, self._joining = self._joining, None
        if joining is not None and not joining.done():
            joining.cancel()
            await asyncio.wait((joining,))
            self._machine.on_join_failed()
