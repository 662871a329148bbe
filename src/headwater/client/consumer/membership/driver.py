"""Carries out what a member's machine decides: steps inside `poll`, heartbeats in the background.

The same for both protocols; their requests to the coordinator are in `group_requests`. One task
sends heartbeats for as long as the user polls often enough.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Protocol

from headwater.client.backoff import Backoff
from headwater.client.cluster import Cluster
from headwater.client.consumer.membership.member import (
    Assign,
    Done,
    Join,
    Lose,
    Member,
    MembershipSettings,
    Revoke,
    Wait,
)
from headwater.client.consumer.metrics import GroupMetrics
from headwater.client.errors import (
    ClientClosed,
    ClientError,
    RebalanceInProgress,
    RetriableError,
)
from headwater.client.metadata import Change
from headwater.client.requests.offset_commit import GroupMetadata
from headwater.io.tasks import background_task
from headwater.model import TopicPartition

_log = logging.getLogger("headwater.client")

POLL_EXPIRED = "consumer poll timeout has expired."


class GroupMembership:
    """The `Membership` in a group, for both protocols."""

    def __init__(
        self,
        settings: MembershipSettings,
        member: Member,
        requests: GroupRequests,
        cluster: Cluster,
        subscription: Subscription,
        callbacks: Callbacks,
        signal: Signal,
        metrics: GroupMetrics,
    ) -> None:
        self._settings = settings
        self._member = member
        self._requests = requests
        self._cluster = cluster
        self._subscription = subscription
        self._callbacks = callbacks
        self._signal = signal
        self._metrics = metrics
        self._backoff = Backoff(
            cluster.config.retry_backoff_ms, cluster.config.retry_backoff_max_ms
        )
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._stop_listening: Callable[[], None] | None = None
        self._followed: frozenset[str] = frozenset()
        self._follows_all = False
        self._is_subscribed = False  # the member has the current subscription
        self._waits_in_poll = False
        self._departures = 0  # a poll that is running when the member leaves must not rejoin

    @property
    def needs_poll(self) -> bool:
        return self._member.needs_poll or not self._is_subscribed or self._heartbeat_task is None

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._member.owned

    @property
    def identity(self) -> GroupMetadata:
        return self._member.identity

    @property
    def rebalancing(self) -> bool:
        return not isinstance(self._member.next_step(), Done)

    def polled(self, now: float) -> None:
        self._member.polled(now)

    def subscription_changed(self) -> None:
        self._is_subscribed = False

    def commit_refused(self, code: int, identity: GroupMetadata) -> None:
        self._member.on_commit_refused(code, identity)
        self._signal.notify()

    def rejoin(self, reason: str) -> None:
        self._member.request_rejoin(reason)
        self._signal.notify()

    # Poll

    async def poll(self, deadline: float) -> None:
        self._member.polled(self._cluster.now())
        self._start_heartbeats()
        if not self._is_subscribed and not await self._subscribe(deadline):
            return
        departures = self._departures
        while departures == self._departures:
            if (failure := self._member.take_failure()) is not None:
                raise failure.with_traceback(None)
            step = self._member.next_step()
            if not isinstance(step, Wait | Done):
                self._metrics.rebalancing(self._cluster.now())
            match step:
                case Lose(partitions):
                    self._metrics.partitions_lost += len(partitions)
                    self._log_step("lost", partitions)
                    await self._give_up(self._callbacks.lost, partitions)
                case Revoke(partitions):
                    self._log_step("gives up", partitions)
                    await self._give_up(self._callbacks.revoked, partitions)
                case Assign(partitions):
                    self._log_step("takes over", partitions)
                    self._member.take_over()
                    self._signal.notify()
                    await self._callbacks.assigned(partitions)
                case Join():
                    self._requests.start_join()
                    self._signal.notify()
                case Wait():
                    if not await self._wait(deadline):
                        return
                case Done():
                    self._metrics.rebalanced(self._cluster.now())
                    return

    def _log_step(self, what: str, partitions: list[TopicPartition]) -> None:
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
            self._member.on_given_up(partitions)
            self._signal.notify()

    async def _wait(self, deadline: float) -> bool:
        """Waits for a change; returns False if the deadline comes first."""
        seconds = deadline - self._cluster.now()
        if seconds <= 0:
            return False
        self._waits_in_poll = True
        try:
            return await self._signal.wait(seconds)
        finally:
            self._waits_in_poll = False
            self._member.polled(self._cluster.now())

    # Subscription

    async def _subscribe(self, deadline: float) -> bool:
        """Gives the subscription to the member; returns False if the deadline comes before the
        topics are known that a pattern chooses from."""
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
        self._requests.subscribe(topics, pattern=wanted.pattern, regex=wanted.regex)

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
        self._requests.topics_changed()
        self._signal.notify()

    # Heartbeats

    def _start_heartbeats(self) -> None:
        if self._heartbeat_task is None:
            self._signal.listener = self._wake_poll
            if self._stop_listening is None:
                self._stop_listening = self._cluster.on_change(self._on_change)
            self._heartbeat_task = background_task(
                self._run_heartbeats(), name=f"headwater-group-{self._settings.group_id}"
            )

    def _wake_poll(self) -> None:
        if self._member.needs_poll:
            self._callbacks.wake()

    async def _run_heartbeats(self) -> None:
        try:
            await self._send_heartbeats()
        except Exception as error:  # a bug, which the user's next poll raises
            _log.exception("group %s: heartbeats have stopped", self._settings.group_id)
            self._member.failure = error
            self._heartbeat_task = None
            self._signal.notify()

    async def _send_heartbeats(self) -> None:
        while True:
            member = self._member
            if not member.keeps_alive:
                await self._signal.wait(None)
                continue
            now = self._cluster.now()
            if self._waits_in_poll:
                member.polled(now)
            if now >= member.poll_deadline:
                await self._expire()
                continue
            failures = member.heartbeat_failures
            backoff = self._backoff.seconds(failures, self._cluster.host.random) if failures else 0
            due = member.heartbeat_at(backoff)
            if now < due:
                await self._signal.wait(min(due, member.poll_deadline) - now)
                continue
            try:
                await self._requests.send_heartbeat()
                self._metrics.heartbeat(now, self._cluster.now())
            except ClientClosed:
                return
            except RetriableError:
                member.on_heartbeat_failed(self._cluster.now())
                self._cluster.coordinator_lost(self._settings.group_id)
            except ClientError as error:
                member.on_heartbeat_failed(self._cluster.now())
                member.failure = error
            self._signal.notify()

    async def _expire(self) -> None:
        _log.warning(
            "group %s: poll was not called for max_poll_interval_ms=%d, so this consumer leaves "
            "the group; the next poll joins again. Process records faster, poll fewer at a time, "
            "or raise max_poll_interval_ms",
            self._settings.group_id,
            self._settings.max_poll_interval_ms,
        )
        deadline = self._cluster.deadline(self._settings.request_timeout_ms)
        await self._requests.leave(deadline, reason=POLL_EXPIRED, remain=None)
        self._signal.notify()

    # Leaving

    async def leave(self, deadline: float, *, reason: str, remain: bool | None = None) -> None:
        self._departures += 1
        try:
            if partitions := sorted(self._member.owned):
                await self._give_up(self._leave_callback(), partitions)
        finally:
            await self._stop_tasks()
            await self._requests.leave(deadline, reason=reason, remain=remain)
            self._is_subscribed = False
            self._signal.notify()

    def _leave_callback(self) -> Callable[[list[TopicPartition]], Awaitable[None]]:
        try:
            _ = self._member.identity
        except RebalanceInProgress:
            return self._callbacks.revoked  # no other member has them yet
        except ClientError:
            return self._callbacks.lost
        return self._callbacks.revoked

    async def abandon(self) -> None:
        self._departures += 1
        await self._stop_tasks()
        self._signal.notify()

    async def _stop_tasks(self) -> None:
        if self._stop_listening is not None:
            self._stop_listening()
            self._stop_listening = None
        self._follow(frozenset())
        if self._follows_all:
            self._cluster.follow_all(False)
            self._follows_all = False
        task, self._heartbeat_task = self._heartbeat_task, None
        if task is not None:
            task.cancel()
            await asyncio.wait((task,))
        await self._requests.stop()


class Subscription(Protocol):
    """The topics that the user wants to read, by one of three means; with none, the consumer is not
    in the group."""

    @property
    def topics(self) -> frozenset[str]:
        """Names of topics."""

    @property
    def pattern(self) -> re.Pattern[str] | None:
        """A pattern for whole names, matched by this client."""

    @property
    def regex(self) -> str | None:
        """A pattern that the broker matches (RE2); only for group.protocol=consumer."""


class Callbacks(Protocol):
    """Callbacks for partitions that come and go. They run only inside `poll` and `leave`.

    An exception comes out of `poll` or `leave`; the partitions have come or gone all the same.
    """

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        """Called before partitions are given up. Until this returns, positions can be committed
        with `identity`. Never empty."""

    async def assigned(self, partitions: list[TopicPartition]) -> None:
        """Called with new partitions at the end of every rebalance, so the list may be empty."""

    async def lost(self, partitions: list[TopicPartition]) -> None:
        """Called for partitions that may belong to another member already: nothing can be
        committed for them. Never empty."""

    def wake(self) -> None:
        """Called when `needs_poll` has become true, at any time: a waiting poll should look."""


class Membership(Protocol):
    """A place in a group, from `make_membership`; it does nothing before the first `poll`.

    The consumer reads `needs_poll` at every poll and before each slice of records. If it is true,
    the consumer awaits `poll`, the only place where partitions change and callbacks are called.
    What needs no callback (heartbeats, a join in flight) runs in the background.
    """

    @property
    def needs_poll(self) -> bool:
        """Returns whether `poll` has something to do or to raise now. Cheap."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions of this member; they change only inside `poll` and `leave`."""

    @property
    def identity(self) -> GroupMetadata:
        """The identity for OffsetCommit, to be read for each attempt. Raises CommitFailed if this
        is not a member now, and FencedInstance if it can never be one again."""

    @property
    def rebalancing(self) -> bool:
        """Returns whether the member is joining, or partitions are changing."""

    async def poll(self, deadline: float) -> None:
        """Joins, rejoins, and takes over or gives up partitions, until nothing is left to do or
        the deadline comes; a deadline in the past means to do what is due without waiting. A join
        continues in the background. Raises permanent errors of the group (GroupForbidden,
        FencedInstance, UnsupportedVersion ...)."""

    def polled(self, now: float) -> None:
        """Notes that the user is alive, which restarts max.poll.interval.ms. To be called again
        and again while the user waits for records; `poll` calls it itself."""

    def subscription_changed(self) -> None:
        """Has the next `poll` read the subscription again."""

    def commit_refused(self, code: int, identity: GroupMetadata) -> None:
        """Applies the error code of an OffsetCommit that was sent with this identity, if it is
        about the membership. Ignores other codes, and identities that are not current."""

    def rejoin(self, reason: str) -> None:
        """Has the next `poll` start a rebalance (Kafka's enforceRebalance)."""

    async def leave(self, deadline: float, *, reason: str, remain: bool | None = None) -> None:
        """Calls `revoked` (or `lost`) for all partitions, then leaves; a later `poll` joins again.

        A static member remains in the group until its session expires, as in Kafka, so that it may
        return without a rebalance. `remain=False` makes it leave; True makes any member remain.
        """

    async def abandon(self) -> None:
        """Ends the background work at once, without callbacks or requests."""


class GroupRequests(Protocol):
    """The requests of one protocol to the coordinator. A RetriableError may be retried."""

    def subscribe(
        self, topics: frozenset[str], *, pattern: re.Pattern[str] | None, regex: str | None
    ) -> None: ...
    def start_join(self) -> None: ...
    async def send_heartbeat(self) -> None: ...
    def topics_changed(self) -> None: ...
    async def leave(self, deadline: float, *, reason: str, remain: bool | None) -> None: ...
    async def stop(self) -> None: ...


class Signal:
    """Wakes all who wait when something about a membership has changed."""

    def __init__(self) -> None:
        self.listener: Callable[[], None] | None = None
        self._event = asyncio.Event()

    def notify(self) -> None:
        event, self._event = self._event, asyncio.Event()
        event.set()
        if self.listener is not None:
            self.listener()

    async def wait(self, seconds: float | None) -> bool:
        """Waits for the next `notify`; returns False if it did not come in time."""
        event = self._event
        try:
            async with asyncio.timeout(seconds):
                await event.wait()
        except TimeoutError:
            return False
        return True
