"""What a member of a consumer group (KIP-848) says to its coordinator: heartbeats, nothing else."""

from __future__ import annotations

import asyncio
import re

from headwater.client.cluster import Cluster
from headwater.client.consumer.membership.consumer_protocol import (
    UNKNOWN_PROTOCOL,
    ConsumerMember,
    Phase,
)
from headwater.client.consumer.membership.signals import Signal
from headwater.client.errors import ClientError, UnsupportedVersion
from headwater.errors import ErrorCode
from headwater.model import id_text
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

_OWN_ID_SINCE = 1  # from this version on members make their ids, and may send expressions
_IDS_SINCE = 12  # the version of Metadata from which on topics are asked for by id


class ConsumerTalk:
    def __init__(self, machine: ConsumerMember, cluster: Cluster, signal: Signal) -> None:
        self._machine = machine
        self._settings = machine.settings
        self._cluster = cluster
        self._signal = signal
        self._learned: frozenset[str] = frozenset()

    def subscribe(
        self, topics: frozenset[str], *, pattern: re.Pattern[str] | None, regex: str | None
    ) -> None:
        self._machine.subscribe(topics, regex=regex, follows_pattern=pattern is not None)

    def start_join(self) -> None:
        self._machine.on_join_started()

    async def beat(self) -> None:
        machine = self._machine
        connection = await self._cluster.coordinator(self._settings.group_id)
        version = connection.version(ApiKey.CONSUMER_GROUP_HEARTBEAT)
        if version is None:
            machine.on_left()
            raise UnsupportedVersion(
                f"group {self._settings.group_id!r}: {UNKNOWN_PROTOCOL}",
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        if version >= _OWN_ID_SINCE and not machine.member_id:
            machine.member_id = id_text(self._cluster.host.random_id())
        elif version < _OWN_ID_SINCE and machine.regex is not None:
            machine.on_left()
            raise UnsupportedVersion(
                f"a regular expression for the broker ({machine.regex!r}) needs Kafka 4.0; the "
                f"broker at {connection.address} is older. Give a pattern, which this client "
                "matches itself"
            )
        epoch = machine.epoch
        request, telling = machine.heartbeat(self._cluster.now())
        answer = await connection.exchange(request, version, self._settings.request_timeout_ms)
        if machine.on_heartbeat(answer, telling, sent_epoch=epoch):
            self._cluster.coordinator_lost(self._settings.group_id)
        if unresolved := machine.unresolved():
            await self._learn(unresolved)

    async def _learn(self, topic_ids: frozenset[bytes]) -> None:
        """The names of topics that are known by id only. If it fails, the next heartbeat is soon
        enough to try again."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(topic_id=each, name=None) for each in sorted(topic_ids)],
            allow_auto_topic_creation=False,
        )
        try:
            connection = await self._cluster.any()
            if (connection.version(ApiKey.METADATA) or 0) < _IDS_SINCE:
                self._cluster.need_update()
                return
            answer = await connection.ask(request, timeout_ms=self._settings.request_timeout_ms)
        except ClientError:
            return
        self._cluster.metadata.update(answer)
        names = frozenset(each.name for each in answer.topics if each.name and not each.error_code)
        for name in names - self._learned - self._machine.topics:
            self._cluster.follow(name)
        self._learned |= names - self._machine.topics

    def topics_changed(self) -> None:
        return

    async def leave(self, deadline: float, *, reason: str, remain: bool | None) -> None:
        """As well as it can be done before the deadline; the session ends by itself if not.
        A static member says that it will be back (epoch -2), unless it is to go for good."""
        machine = self._machine
        was_in = machine.phase is not Phase.OUTSIDE and machine.member_id
        request = machine.leave_request(for_good=remain is False)
        machine.on_left()
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
