"""Topics without a group: the consumer reads all their partitions by itself.

Implements `Membership`, so that the consumer does not have to know the difference. New topics and
partitions are assigned at the next poll.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from headwater.client.cluster import Cluster
from headwater.client.config import ConsumerConfig
from headwater.client.consumer.membership import Callbacks, Subscription
from headwater.client.errors import CommitFailed, RetriableError
from headwater.client.metadata import Change
from headwater.client.requests.offset_commit import GroupMetadata
from headwater.model import TopicPartition


class AllPartitions:
    """A `Membership` with one member, which needs no coordinator."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscription: Subscription,
        callbacks: Callbacks,
    ) -> None:
        self.needs_poll = True
        self.rebalancing = False
        self._config = config
        self._cluster = cluster
        self._subscription = subscription
        self._callbacks = callbacks
        self._owned: frozenset[TopicPartition] = frozenset()
        self._followed: frozenset[str] = frozenset()
        self._stop_listening: Callable[[], None] | None = None

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._owned

    @property
    def identity(self) -> GroupMetadata:
        raise CommitFailed("the consumer has no group to commit in; create it with group=...")

    async def poll(self, deadline: float) -> None:
        if self._stop_listening is None:
            self._stop_listening = self._cluster.on_change(self._on_change)
        self.needs_poll = False
        if self._follow():
            with suppress(RetriableError):  # the next metadata update calls `_on_change`
                await self._cluster.updated(deadline)
        now = self._wanted()
        gone, new = sorted(self._owned - now), sorted(now - self._owned)
        self._owned = now
        if gone:
            await self._callbacks.revoked(gone)
        if new:
            await self._callbacks.assigned(new)

    def _follow(self) -> bool:
        """Follows the topics that are wanted; returns whether to wait for their metadata."""
        wanted = self._subscription
        self._cluster.follow_all(wanted.pattern is not None)
        for topic in self._followed - wanted.topics:
            self._cluster.unfollow(topic)
        for topic in sorted(wanted.topics - self._followed):
            self._cluster.follow(topic, create=self._config.allow_auto_create_topics)
        self._followed = wanted.topics
        topics = self._cluster.metadata.topics
        missing = wanted.pattern is not None and not self._owned
        missing = missing or any(name not in topics for name in wanted.topics)
        if missing:
            self._cluster.need_update()
        return missing

    def _wanted(self) -> frozenset[TopicPartition]:
        pattern = self._subscription.pattern
        return frozenset(
            TopicPartition(topic.name, each.index)
            for topic in self._cluster.metadata.topics.values()
            if topic.name in self._subscription.topics
            or (
                pattern is not None
                and pattern.fullmatch(topic.name)
                and not (topic.is_internal and self._config.exclude_internal_topics)
            )
            for each in topic.partitions
        )

    def _on_change(self, _change: Change) -> None:
        if self._wanted() - self._owned:
            self.needs_poll = True
            self._callbacks.wake()

    def polled(self, now: float) -> None:
        """Does nothing: there is no poll interval without a group."""

    def subscription_changed(self) -> None:
        self.needs_poll = True

    def commit_refused(self, code: int, identity: GroupMetadata) -> None:
        """Does nothing: nothing is committed without a group."""

    def rejoin(self, reason: str) -> None:
        self.needs_poll = True

    async def leave(self, deadline: float, *, reason: str, remain: bool | None = None) -> None:
        gone, self._owned = sorted(self._owned), frozenset()
        await self.abandon()
        if gone:
            await self._callbacks.revoked(gone)

    async def abandon(self) -> None:
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        for topic in self._followed:
            self._cluster.unfollow(topic)
        self._followed = frozenset()
        self._cluster.follow_all(False)
        self.needs_poll = True
