"""Carries out what a member's machine decides: steps inside `poll`, heartbeats beside it.

The same for both protocols; what they say to the coordinator is in `classic_talk` and
`consumer_talk`. One task, the keeper, heartbeats for as long as the user polls often enough.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.consumer.membership.contract import (
    Callbacks,
    Subscription,
)
from headwater.client.consumer.membership.settings import MembershipSettings
from headwater.client.consumer.membership.signals import Signal
from headwater.client.consumer.membership.steps import Assign, Done, Join, Lose, Revoke, Step, Wait
from headwater.client.consumer.metrics import GroupMetrics
from headwater.client.errors import (
    ClientClosed,
    ClientError,
    RebalanceInProgress,
    RetriableError,
)
from headwater.client.metadata import Change
from headwater.client.requests.offset_commit import CommitIdentity
from headwater.io.tasks import background_task
from headwater.model import TopicPartition

_log = logging.getLogger("headwater.client")

POLL_EXPIRED = "consumer poll timeout has expired."


class Machine(Protocol):
    """What both machines have in common."""

    failure: Exception | None

    @property
    def owned(self) -> frozenset[TopicPartition]: ...
    @property
    def needs_poll(self) -> bool: ...
    @property
    def subscribed(self) -> bool: ...
    @property
    def keeps_alive(self) -> bool: ...
    @property
    def poll_deadline(self) -> float: ...
    @property
    def heartbeat_failures(self) -> int: ...
    @property
    def identity(self) -> CommitIdentity: ...
    def next_step(self) -> Step: ...
    def given_up(self, partitions: Iterable[TopicPartition]) -> None: ...
    def take_over(self) -> None: ...
    def take_failure(self) -> Exception | None: ...
    def polled(self, now: float) -> None: ...
    def heartbeat_at(self, backoff: float) -> float: ...
    def on_heartbeat_failed(self, now: float) -> None: ...
    def on_commit_refused(self, code: int, identity: CommitIdentity) -> None: ...
    def request_rejoin(self, reason: str) -> None: ...


class Talk(Protocol):
    """What is said to the coordinator. A RetriableError means: it may be asked again."""

    def subscribe(
        self, topics: frozenset[str], *, pattern: re.Pattern[str] | None, regex: str | None
    ) -> None: ...
    def start_join(self) -> None: ...
    async def beat(self) -> None: ...
    def topics_changed(self) -> None: ...
    async def leave(self, deadline: float, *, reason: str, remain: bool | None) -> None: ...
    async def stop(self) -> None: ...


class GroupMembership:
    """The contract's `Membership`."""

    def __init__(
        self,
        settings: MembershipSettings,
        machine: Machine,
        talk: Talk,
        cluster: Cluster,
        subscription: Subscription,
        callbacks: Callbacks,
        signal: Signal,
        metrics: GroupMetrics,
    ) -> None:
        self._settings = settings
        self._machine = machine
        self._talk = talk
        self._cluster = cluster
        self._subscription = subscription
        self._callbacks = callbacks
        self._signal = signal
        self._metrics = metrics
        self._backoff = Backoff(
            cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms
        )
        self._keeper: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] | None = None
        self._followed: frozenset[str] = frozenset()
        self._follows_all = False
        self._is_subscribed = False  # the machine knows the subscription
        self._waits_in_poll = False
        self._departures = 0  # a poll that is under way when we leave must not join again

    @property
    def needs_poll(self) -> bool:
        return self._machine.needs_poll or not self._is_subscribed or self._keeper is None

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._machine.owned

    @property
    def identity(self) -> CommitIdentity:
        return self._machine.identity

    @property
    def rebalancing(self) -> bool:
        return not isinstance(self._machine.next_step(), Done)

    def polled(self, now: float) -> None:
        self._machine.polled(now)

    def subscription_changed(self) -> None:
        self._is_subscribed = False

    def commit_refused(self, code: int, identity: CommitIdentity) -> None:
        self._machine.on_commit_refused(code, identity)
        self._signal.fire()

    def rejoin(self, reason: str) -> None:
        self._machine.request_rejoin(reason)
        self._signal.fire()

    # Polling.

    async def poll(self, deadline: float) -> None:
        self._machine.polled(self._cluster.now())
        self._start_keeper()
        if not self._is_subscribed and not await self._subscribe(deadline):
            return
        departures = self._departures
        while departures == self._departures:
            if (failure := self._machine.take_failure()) is not None:
                raise failure.with_traceback(None)
            step = self._machine.next_step()
            if not isinstance(step, Wait | Done):
                self._metrics.rebalancing(self._cluster.now())
            match step:
                case Lose(partitions):
                    self._metrics.partitions_lost += len(partitions)
                    self._note("lost", partitions)
                    await self._give_up(self._callbacks.lost, partitions)
                case Revoke(partitions):
                    self._note("gives back", partitions)
                    await self._give_up(self._callbacks.revoked, partitions)
                case Assign(partitions):
                    self._note("takes over", partitions)
                    self._machine.take_over()
                    self._signal.fire()
                    await self._callbacks.assigned(partitions)
                case Join():
                    self._talk.start_join()
                    self._signal.fire()
                case Wait():
                    if not await self._wait(deadline):
                        return
                case Done():
                    self._metrics.rebalanced(self._cluster.now())
                    return

    def _note(self, what: str, partitions: list[TopicPartition]) -> None:
        if _log.isEnabledFor(logging.DEBUG):
            names = ", ".join(map(str, partitions)) or "nothing"
            _log.debug("group %s: %s %s", self._settings.group_id, what, names)

    async def _give_up(
        self,
        callback: Callable[[list[TopicPartition]], Awaitable[None]],
        partitions: list[TopicPartition],
    ) -> None:
        try:
            await callback(partitions)
        finally:
            self._machine.given_up(partitions)
            self._signal.fire()

    async def _wait(self, deadline: float) -> bool:
        """Whether something happened before the deadline."""
        seconds = deadline - self._cluster.now()
        if seconds <= 0:
            return False
        self._waits_in_poll = True
        try:
            return await self._signal.wait(seconds)
        finally:
            self._waits_in_poll = False
            self._machine.polled(self._cluster.now())

    # The subscription.

    async def _subscribe(self, deadline: float) -> bool:
        """Tells the machine what the user wants; False if the deadline came before all topics
        were known, of which a pattern picks."""
        pattern = self._subscription.pattern
        if pattern is not None and not self._follows_all:
            self._cluster.follow_all()
            self._cluster.need_update()
            try:
                await self._cluster.updated(deadline)
            except RetriableError:
                return False
            self._follows_all = True
        if pattern is None and self._follows_all:
            self._cluster.follow_all(False)
            self._follows_all = False
        self._read_subscription()
        self._is_subscribed = True
        return True

    def _read_subscription(self) -> None:
        wanted = self._subscription
        topics = wanted.topics
        if wanted.pattern is not None:
            topics = frozenset(
                topic.name
                for topic in self._cluster.metadata.topics.values()
                if wanted.pattern.fullmatch(topic.name)
                and not (topic.is_internal and self._settings.exclude_internal_topics)
            )
        self._follow(wanted.topics)
        self._talk.subscribe(topics, pattern=wanted.pattern, regex=wanted.regex)

    def _follow(self, topics: frozenset[str]) -> None:
        for topic in self._followed - topics:
            self._cluster.unfollow(topic)
        for topic in sorted(topics - self._followed):
            self._cluster.follow(topic, create=self._settings.allow_auto_create_topics)
            if topic not in self._cluster.metadata.topics:
                self._cluster.need_update()
        self._followed = topics

    def _on_change(self, change: Change) -> None:
        if self._is_subscribed and self._subscription.pattern is not None:
            self._read_subscription()
        self._talk.topics_changed()
        self._signal.fire()

    # Staying in the group.

    def _start_keeper(self) -> None:
        if self._keeper is None:
            self._signal.listener = self._look
            if self._stop_listening is None:
                self._stop_listening = self._cluster.on_change(self._on_change)
            self._keeper = background_task(
                self._keep(), name=f"headwater-group-{self._settings.group_id}"
            )

    def _look(self) -> None:
        if self._machine.needs_poll:
            self._callbacks.wake()

    async def _keep(self) -> None:
        try:
            await self._keep_alive()
        except Exception as error:  # we are wrong; the user's next poll says so
            _log.exception("group %s: heartbeats have ended", self._settings.group_id)
            self._machine.failure = error
            self._keeper = None
            self._signal.fire()

    async def _keep_alive(self) -> None:
        while True:
            machine = self._machine
            if not machine.keeps_alive:
                await self._signal.wait(None)
                continue
            now = self._cluster.now()
            if self._waits_in_poll:
                machine.polled(now)
            if now >= machine.poll_deadline:
                await self._expire()
                continue
            failures = machine.heartbeat_failures
            backoff = self._backoff.seconds(failures, self._cluster.host.random) if failures else 0
            due = machine.heartbeat_at(backoff)
            if now < due:
                await self._signal.wait(min(due, machine.poll_deadline) - now)
                continue
            try:
                await self._talk.beat()
                self._metrics.heartbeat(now, self._cluster.now())
            except ClientClosed:
                return
            except RetriableError:
                machine.on_heartbeat_failed(self._cluster.now())
                self._cluster.coordinator_lost(self._settings.group_id)
            except ClientError as error:
                machine.on_heartbeat_failed(self._cluster.now())
                machine.failure = error
            self._signal.fire()

    async def _expire(self) -> None:
        _log.warning(
            "group %s: poll was not called for max_poll_interval_ms=%d, so this consumer leaves "
            "the group; the next poll joins again. Process records quicker, poll fewer at a time, "
            "or raise max_poll_interval_ms",
            self._settings.group_id,
            self._settings.max_poll_interval_ms,
        )
        deadline = self._cluster.deadline(self._settings.request_timeout_ms)
        await self._talk.leave(deadline, reason=POLL_EXPIRED, remain=None)
        self._signal.fire()

    # Leaving.

    async def leave(self, deadline: float, *, reason: str, remain: bool | None = None) -> None:
        self._departures += 1
        try:
            if partitions := sorted(self._machine.owned):
                await self._give_up(self._farewell(), partitions)
        finally:
            await self._stop_tasks()
            await self._talk.leave(deadline, reason=reason, remain=remain)
            self._is_subscribed = False
            self._signal.fire()

    def _farewell(self) -> Callable[[list[TopicPartition]], Awaitable[None]]:
        try:
            _ = self._machine.identity
        except RebalanceInProgress:
            return self._callbacks.revoked  # nobody else has been given them yet
        except ClientError:
            return self._callbacks.lost
        return self._callbacks.revoked

    async def abandon(self) -> None:
        self._departures += 1
        await self._stop_tasks()
        self._signal.fire()

    async def _stop_tasks(self) -> None:
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        self._follow(frozenset())
        if self._follows_all:
            self._cluster.follow_all(False)
            self._follows_all = False
        keeper, self._keeper = self._keeper, None
        if keeper is not None:
            keeper.cancel()
            await asyncio.wait((keeper,))
        await self._talk.stop()
