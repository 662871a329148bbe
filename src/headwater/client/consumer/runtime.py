"""The parts of a started consumer, and how they tell each other what happened."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from headwater.client.cluster import Cluster
from headwater.client.config import ConsumerConfig
from headwater.client.consumer.commits import Commits
from headwater.client.consumer.fetch_buffer import FetchBuffer
from headwater.client.consumer.fetcher import Fetcher
from headwater.client.consumer.listener import RebalanceListener, tell
from headwater.client.consumer.membership import Membership, make_membership
from headwater.client.consumer.metrics import ConsumerMetrics
from headwater.client.consumer.no_group import AllPartitions
from headwater.client.consumer.positions import Positions
from headwater.client.consumer.subscription import PartitionState, Slice, SubscriptionState
from headwater.client.errors import RetriableError, error_for
from headwater.client.metadata import Change
from headwater.client.requests.offset_commit import GroupMetadata
from headwater.client.requests.routing import Router
from headwater.io.tasks import background_task
from headwater.model import TopicPartition

_log = logging.getLogger("headwater.client")

_ERRORS_MAX = 16
# How long a member that owns partitions waits for a rebalance before it looks for records again.
_REBALANCE_WAIT_SECONDS = 0.05
# The longest wait in a poll: some conditions, such as a missing topic, do not wake it.
_TICK_SECONDS = 0.5
# How long a loop may take over a slice before it must come back with the next record it asks for.
_SLICE_SECONDS = 0.05
# The part of a close that the last commit may take: the listener and the group need time, too.
_COMMIT_SHARE = 0.7


class ConsumerRuntime:
    """Owns the background work of a consumer. Also the `Callbacks` of its membership."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        subscription: SubscriptionState,
        listener: RebalanceListener | None,
    ) -> None:
        self.config = config
        self.cluster = cluster
        self.subscription = subscription
        self.listener = listener
        self.membership: Membership | None = None
        self.metrics = ConsumerMetrics()
        self.router = Router(
            cluster, default_timeout_ms=config.default_api_timeout_ms, trusts_metadata=True
        )
        self.buffer = FetchBuffer(config, on_fetch_consumed=self._on_fetch_consumed)
        self._tasks = BackgroundTasks(self._on_error)
        self.commits: Commits | None = None
        if config.group_id is not None:
            self.commits = Commits(
                config,
                self.router,
                subscription.partitions,
                self._tasks.spawn,
                self.metrics.group,
                identity=self._identity,
                on_refused=self._on_commit_refused,
            )
        self.positions = Positions(
            config,
            self.router,
            subscription.partitions,
            self._tasks.spawn,
            self.commits,
            on_changed=self.schedule_update,
            retry_after=self._retry_after,
        )
        self.fetcher = Fetcher(
            config,
            cluster,
            subscription.partitions,
            self._tasks.spawn,
            self.metrics.fetch,
            on_fetched=self._on_fetched,
            on_out_of_range=self.positions.on_out_of_range,
            on_error=self._on_error,
            retry_after=self._retry_after,
        )
        self._errors: deque[BaseException] = deque(maxlen=_ERRORS_MAX)
        self._reported_topics: set[str] = set()  # missing, and logged
        self._reported_partitions: set[TopicPartition] = set()
        self._waiters: list[asyncio.Future[None]] = []
        self._retry_timer: asyncio.TimerHandle | None = None
        self._slice_timer: asyncio.TimerHandle | None = None
        self._is_update_scheduled = False
        self._close_deadline: float | None = None
        self._stop_listening = cluster.on_change(self._on_metadata)
        if config.enable_auto_commit and self.commits is not None:
            self._tasks.spawn(self.commits.run_auto_commit(self._is_rebalancing))

    # Polling

    async def prepare_poll(self, deadline: float, *, is_waiting: bool) -> None:
        """Does what must happen before records are returned: takes part in rebalances, and raises
        errors of the background work. Waits only if `is_waiting`."""
        membership = self.membership
        if membership is not None:
            now = self.cluster.now()
            membership.polled(now)
            if membership.needs_poll:
                # Records and errors that arrive must not wait for a rebalance, which continues
                # in the background.
                has_partitions = bool(self.subscription.partitions)
                wait = _REBALANCE_WAIT_SECONDS if has_partitions else _TICK_SECONDS
                await membership.poll(min(deadline, now + wait) if is_waiting else now)
        if self._errors:
            raise self._errors.popleft()
        if self.positions.errors:
            self._raise_position_error()
        if is_waiting and self.cluster.metadata.errors:
            self._check_topics()
        if is_waiting and self.subscription.by_user:
            self._check_partitions()

    def _raise_position_error(self) -> None:
        for tp, error in self.positions.errors.items():
            state = self.subscription.partitions.get(tp)
            if state is not None and not state.is_paused:
                raise error.with_traceback(None)

    def _check_topics(self) -> None:
        """Raises the permanent error of a topic; logs an error that may go away, once."""
        errors = self.cluster.metadata.errors
        partitions = self.subscription.partitions
        for topic in sorted(self.subscription.topics | {tp.topic for tp in partitions}):
            code = errors.get(topic)
            if code is None:
                self._reported_topics.discard(topic)
                continue
            error = error_for(code, f"topic {topic}")
            if not isinstance(error, RetriableError):
                raise error
            if topic not in self._reported_topics:
                self._reported_topics.add(topic)
                _log.warning("%s; waiting for it", error)

    def _check_partitions(self) -> None:
        """Logs, once each, which assigned partitions do not exist; they may be added later."""
        for tp in self.subscription.partitions:
            topic = self.cluster.metadata.topics.get(tp.topic)
            if topic is None or tp.partition < len(topic.partitions):
                continue
            if tp not in self._reported_partitions:
                self._reported_partitions.add(tp)
                last = len(topic.partitions) - 1
                _log.warning("%s: the topic has partitions 0 to %d; waiting for it", tp, last)

    def next_slice(self, records_max: int) -> Slice | None:
        """Returns the records that a loop runs over next. A loop that takes long over them comes
        back for the rest all the same: the group must know that the user is alive, and may want
        partitions back."""
        if self._slice_timer is not None:
            self._slice_timer.cancel()
            self._slice_timer = None
        slice_ = self.buffer.next_slice(records_max)
        if slice_ is not None:
            slice_.is_late = False
            seconds = min(_SLICE_SECONDS, self.config.max_poll_interval_ms / 3000)
            loop = asyncio.get_running_loop()
            self._slice_timer = loop.call_later(seconds, slice_.mark_late)
        return slice_

    async def wait(self, deadline: float | None) -> None:
        """Waits until something happens, the deadline, or a moment has passed."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        # A user who waits for records is alive, however long there are none: `prepare_poll` must
        # tell the membership so within max_poll_interval_ms.
        wait = min(_TICK_SECONDS, self.config.max_poll_interval_ms / 3000)
        if deadline is not None:
            wait = max(0.0, min(wait, deadline - self.cluster.now()))
        timer = loop.call_later(wait, self.wake)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            timer.cancel()

    def wake(self) -> None:
        """Wakes a poll that waits."""
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    # Events

    def schedule_update(self) -> None:
        """Sends what positions and fetches need, once, in this turn of the event loop."""
        if not self._is_update_scheduled and not self.cluster.is_closed:
            self._is_update_scheduled = True
            asyncio.get_running_loop().call_soon(self._update)

    def _update(self) -> None:
        self._is_update_scheduled = False
        if self.cluster.is_closed:
            return
        self.positions.send_requests()
        self.fetcher.send_fetches()
        self.wake()
        # One timer serves all partitions that back off; it has fired for the first.
        now = self.cluster.now()
        waiting = [
            state.retry_at
            for state in self.subscription.partitions.values()
            if state.retry_at > now
        ]
        if waiting:
            self._retry_after(min(waiting) - now)

    def _retry_after(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._retry_timer is not None:
            if self._retry_timer.when() <= loop.time() + seconds:
                return
            self._retry_timer.cancel()
        self._retry_timer = loop.call_later(seconds, self._on_retry_timer)

    def _on_retry_timer(self) -> None:
        self._retry_timer = None
        self._update()

    def _on_fetch_consumed(self) -> None:
        self.fetcher.send_fetches()

    def _on_fetched(self, state: PartitionState) -> None:
        self.buffer.add(state)
        self.wake()

    def _on_error(self, error: BaseException) -> None:
        """Has the user's next poll raise this."""
        self._errors.append(error)
        self.wake()

    def _on_metadata(self, change: Change) -> None:
        for state in self.subscription.partitions.values():
            if state.tp.topic in change.topics:
                state.retry_at = 0.0
            if state.tp.topic in change.recreated:
                state.on_topic_recreated()
        self.schedule_update()

    # Partitions

    def follow(self, partitions: list[TopicPartition]) -> None:
        """Keeps the metadata of topics fresh that are not in the subscription."""
        if self.subscription.topics or self.subscription.pattern is not None:
            return
        topics = self.cluster.metadata.topics
        for topic in sorted({tp.topic for tp in partitions}):
            create = self.config.allow_auto_create_topics and self.subscription.by_user
            self.cluster.follow(topic, create=create)
            if topic not in topics:
                self.cluster.need_update(topic)

    def seek(self, state: PartitionState, offset: int) -> None:
        self.buffer.forget(state)
        self.positions.clear_error(state.tp)
        state.seek(offset)
        self.schedule_update()

    def release(self, partitions: list[TopicPartition]) -> None:
        """Removes partitions that the user does not want any more, and commits them."""
        self.buffer.mark_consumed()
        if self.commits is not None and self.config.enable_auto_commit:
            self.commits.commit_consumed_in_background(partitions)
        self.remove(partitions)

    def remove(self, partitions: list[TopicPartition]) -> None:
        """Removes partitions that are not assigned any more."""
        for tp in partitions:
            state = self.subscription.partitions.get(tp)
            if state is not None:
                self.buffer.forget(state)
            self.positions.clear_error(tp)
        self.subscription.remove(partitions)
        if not self.subscription.topics and self.subscription.pattern is None:
            left = {tp.topic for tp in self.subscription.partitions}
            for topic in {tp.topic for tp in partitions} - left:
                self.cluster.unfollow(topic)

    # The group

    def on_subscription_changed(self) -> None:
        if self.membership is not None:
            self.membership.subscription_changed()
        elif self.config.group_id is None:
            self.membership = AllPartitions(self.config, self.cluster, self.subscription, self)
        else:
            self.membership = make_membership(
                self.config, self.cluster, self.subscription, self, self.metrics.group
            )
        self.wake()

    def _identity(self) -> GroupMetadata:
        if self.membership is not None and not self.subscription.by_user:
            return self.membership.identity
        assert self.config.group_id is not None
        return GroupMetadata(self.config.group_id)

    def _on_commit_refused(self, code: int, identity: GroupMetadata) -> None:
        if self.membership is not None:
            self.membership.commit_refused(code, identity)

    def _is_rebalancing(self) -> bool:
        return self.membership is not None and self.membership.rebalancing

    async def assigned(self, partitions: list[TopicPartition]) -> None:
        self.subscription.add(partitions)
        self.follow(partitions)
        try:
            await tell(self.listener, "on_assigned", partitions)
        finally:
            self.schedule_update()

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            state = self.subscription.partitions.get(tp)
            if state is not None:
                self.buffer.stop(state)
        try:
            if self.commits is not None and self.config.enable_auto_commit:
                await self.commits.commit_consumed(partitions, self._commit_deadline())
            await tell(self.listener, "on_revoked", partitions)
        finally:
            self.remove(partitions)

    def _commit_deadline(self) -> float:
        if self._close_deadline is None:
            return self.cluster.deadline(self.config.default_api_timeout_ms)
        now = self.cluster.now()
        return now + _COMMIT_SHARE * max(0.0, self._close_deadline - now)

    async def lost(self, partitions: list[TopicPartition]) -> None:
        try:
            await tell(self.listener, "on_lost", partitions)
        finally:
            self.remove(partitions)

    # Closing

    async def close(self, deadline: float) -> None:
        """Commits, leaves the group and ends the background work."""
        self._close_deadline = deadline
        try:
            by_user = self.subscription.by_user
            if by_user and self.commits is not None and self.config.enable_auto_commit:
                await self.commits.commit_consumed(None, deadline)
            if self.membership is not None:
                await self.membership.leave(deadline, reason="the consumer is being closed")
            self.fetcher.close()
        finally:
            if self.membership is not None:
                await self.membership.abandon()
            self._stop_listening()
            for timer in (self._retry_timer, self._slice_timer):
                if timer is not None:
                    timer.cancel()
            await self._tasks.cancel()
            self.wake()


class BackgroundTasks:
    """The tasks of one consumer, which end with it."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error  # a bug: the user must not wait for work that has ended
        self._running: set[asyncio.Task[None]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = background_task(work)
        self._running.add(task)
        task.add_done_callback(self._on_done)

    def _on_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("a background task of the consumer failed", exc_info=error)
            self._on_error(error)

    async def cancel(self) -> None:
        """Cancels all tasks and waits for their ends."""
        running = list(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
