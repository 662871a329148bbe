"""What a started consumer is made of, and how its parts tell each other of what happened."""

from __future__ import annotations

import asyncio
import logging
from collections import deque

from headwater.client.cluster import Cluster
from headwater.client.config import ConsumerConfig
from headwater.client.consumer.commits import Commits
from headwater.client.consumer.committer import Committer
from headwater.client.consumer.fetcher import Fetcher
from headwater.client.consumer.handing import Handing
from headwater.client.consumer.listener import RebalanceListener, tell
from headwater.client.consumer.membership import Membership, make_membership
from headwater.client.consumer.metrics import ConsumerMetrics
from headwater.client.consumer.partition import PartitionState
from headwater.client.consumer.positions import Positions
from headwater.client.consumer.slices import Slice
from headwater.client.consumer.subscription import Subscriptions
from headwater.client.consumer.tasks import Tasks
from headwater.client.consumer.ungrouped import AllPartitions
from headwater.client.errors import RetriableError, error_for
from headwater.client.metadata import Change
from headwater.client.requests.offset_commit import CommitIdentity
from headwater.client.requests.routing import Router
from headwater.io import Host
from headwater.model import NO_EPOCH, TopicPartition

_log = logging.getLogger("headwater.client")

_ERRORS_MAX = 16
# How long a member that owns partitions waits for a rebalance before it looks for records again.
_GLANCE_SECONDS = 0.05
# How often one that waits looks whether there is something that nobody tells it of.
_TICK_SECONDS = 0.5
# How long a loop runs over a slice before it must come back, with the next record that it asks for.
_LATE_SECONDS = 0.05
# So much of a close may go into the last commit; the listener and the group must hear of it, too.
_COMMIT_SHARE = 0.7


class Reading:
    """Also the callbacks of the membership: `revoked`, `assigned`, `lost`, `wake`."""

    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        host: Host,
        subscriptions: Subscriptions,
        listener: RebalanceListener | None,
    ) -> None:
        self.config = config
        self.cluster = cluster
        self.subscriptions = subscriptions
        self.listener = listener
        self.membership: Membership | None = None
        self.metrics = ConsumerMetrics()
        self.tasks = Tasks(self._failed)
        self.handing = Handing(config, drained=self._drained)
        self.router = Router(
            cluster, default_timeout_ms=config.default_api_timeout_ms, trusts_metadata=True
        )
        self.commits: Commits | None = None
        self.committer: Committer | None = None
        partitions = subscriptions.partitions
        if config.group_id is not None:
            self.commits = Commits(
                config, self.router, identity=self._identity, refused=self._commit_refused
            )
            self.committer = Committer(
                config,
                cluster,
                self.commits,
                partitions,
                self.handing,
                self.tasks,
                self.metrics.group,
            )
        self.positions = Positions(
            config,
            cluster,
            partitions,
            self.tasks,
            self.router,
            self.commits,
            changed=self.changed,
            look_again=self._look_again,
        )
        self.fetcher = Fetcher(
            config,
            cluster,
            partitions,
            self.tasks,
            self.metrics.fetch,
            arrived=self._arrived,
            out_of_range=self.positions.out_of_range,
            failed=self._failed,
            look_again=self._look_again,
        )
        self._host = host
        self._errors: deque[BaseException] = deque(maxlen=_ERRORS_MAX)
        self._told: set[str] = set()  # topics that were said to be missing
        self._missing: set[TopicPartition] = set()  # partitions that were
        self._waiters: list[asyncio.Future[None]] = []
        self._look: asyncio.TimerHandle | None = None
        self._lateness: asyncio.TimerHandle | None = None
        self._is_driving = False
        self._ends_at: float | None = None
        self._stop_listening = cluster.on_change(self._on_change)
        if config.enable_auto_commit and self.committer is not None:
            self.tasks.spawn(self.committer.run(self._is_rebalancing))

    # What the user gets

    async def turn(self, deadline: float, *, is_waiting: bool) -> None:
        """What must happen before records are handed out. Raises what the user must hear."""
        membership = self.membership
        if membership is not None:
            now = self.cluster.now()
            membership.polled(now)
            if membership.needs_poll:
                # Records that come meanwhile, and errors, must not wait for a rebalance; it goes on
                # in the background.
                glance = _GLANCE_SECONDS if self.subscriptions.partitions else _TICK_SECONDS
                await membership.poll(min(deadline, now + glance) if is_waiting else now)
        if self._errors:
            raise self._errors.popleft()
        if self.positions.problems:
            self._raise_problem()
        if is_waiting and self.cluster.metadata.errors:
            self._look_at_topics()
        if is_waiting and self.subscriptions.by_user:
            self._look_at_partitions()

    def _look_at_partitions(self) -> None:
        """Says once which partitions were assigned that do not exist; they may come yet."""
        for tp in self.subscriptions.partitions:
            topic = self.cluster.metadata.topics.get(tp.topic)
            if topic is None or tp.partition < len(topic.partitions):
                continue
            if tp not in self._missing:
                self._missing.add(tp)
                last = len(topic.partitions) - 1
                _log.warning("%s: the topic has partitions 0 to %d; waiting for it", tp, last)

    def _look_at_topics(self) -> None:
        """Raises what is wrong with a topic for good; says once what may come right."""
        errors = self.cluster.metadata.errors
        partitions = self.subscriptions.partitions
        for topic in sorted(self.subscriptions.topics | {tp.topic for tp in partitions}):
            code = errors.get(topic)
            if code is None:
                self._told.discard(topic)
                continue
            error = error_for(code, f"topic {topic}")
            if not isinstance(error, RetriableError):
                raise error
            if topic not in self._told:
                self._told.add(topic)
                _log.warning("%s; waiting for it", error)

    def _raise_problem(self) -> None:
        for tp, problem in self.positions.problems.items():
            state = self.subscriptions.partitions.get(tp)
            if state is not None and not state.is_paused:
                raise problem.with_traceback(None)

    def next_slice(self, records_max: int) -> Slice | None:
        """What a loop runs over next. One that takes long over its records comes back for the rest
        all the same: the group must hear that the user is alive, and may want partitions back."""
        if self._lateness is not None:
            self._lateness.cancel()
            self._lateness = None
        slice_ = self.handing.slice(records_max)
        if slice_ is not None:
            slice_.is_late = False
            seconds = min(_LATE_SECONDS, self.config.max_poll_interval_ms / 3000)
            loop = asyncio.get_running_loop()
            self._lateness = loop.call_later(seconds, slice_.mark_late)
        return slice_

    async def wait(self, deadline: float | None) -> None:
        """Until something happened, or the deadline, or a moment has passed."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        self._waiters.append(waiter)
        # Who waits for records is alive, however long there are none: a membership that does not
        # hear of it in max_poll_interval_ms gives the user up.
        wait = min(_TICK_SECONDS, self.config.max_poll_interval_ms / 3000)
        if deadline is not None:
            wait = max(0.0, min(wait, deadline - self.cluster.now()))
        timer = loop.call_later(wait, self.wake)
        try:
            await waiter
        finally:
            self._waiters.remove(waiter)
            timer.cancel()

    # What happened

    def wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)

    def changed(self) -> None:
        """Something about positions is new: look at everything, once, soon."""
        if not self._is_driving and not self.cluster.is_closed:
            self._is_driving = True
            asyncio.get_running_loop().call_soon(self._drive)

    def _drive(self) -> None:
        self._is_driving = False
        if self.cluster.is_closed:
            return
        self.positions.drive()
        self.fetcher.drive()
        self.wake()
        # One timer stands for all partitions that wait after a failure: it was for the first.
        now = self.cluster.now()
        waiting = [
            state.retry_at
            for state in self.subscriptions.partitions.values()
            if state.retry_at > now
        ]
        if waiting:
            self._look_again(min(waiting) - now)

    def _drained(self) -> None:
        self.fetcher.drive()

    def _arrived(self, state: PartitionState) -> None:
        self.handing.arrived(state)
        self.wake()

    def _failed(self, error: BaseException) -> None:
        self._errors.append(error)
        self.wake()

    def _look_again(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._look is not None:
            if self._look.when() <= loop.time() + seconds:
                return
            self._look.cancel()
        self._look = loop.call_later(seconds, self._looked)

    def _looked(self) -> None:
        self._look = None
        self._drive()

    def _on_change(self, change: Change) -> None:
        for state in self.subscriptions.partitions.values():
            if state.tp.topic in change.topics:
                state.retry_at = 0.0
            if state.tp.topic in change.recreated:
                # Another log under the same name: nothing that was known of epochs holds.
                state.leader_epoch = state.epoch = NO_EPOCH
                state.evict()
        self.changed()

    # The group

    def subscribed(self) -> None:
        """The subscription has changed."""
        if self.membership is None:
            if self.config.group_id is None:
                self.membership = AllPartitions(self.config, self.cluster, self.subscriptions, self)
            else:
                self.membership = make_membership(
                    self.config,
                    self.cluster,
                    self._host,
                    self.subscriptions,
                    self,
                    self.metrics.group,
                )
        else:
            self.membership.subscription_changed()
        self.wake()

    def _identity(self) -> CommitIdentity:
        if self.membership is not None and not self.subscriptions.by_user:
            return self.membership.identity
        assert self.config.group_id is not None
        return CommitIdentity(self.config.group_id, "", -1)

    def _commit_refused(self, code: int, identity: CommitIdentity) -> None:
        if self.membership is not None:
            self.membership.commit_refused(code, identity)

    def _is_rebalancing(self) -> bool:
        return self.membership is not None and self.membership.rebalancing

    def follow(self, partitions: list[TopicPartition]) -> None:
        """Keeps the topics of partitions fresh that no subscription names."""
        if self.subscriptions.topics or self.subscriptions.pattern is not None:
            return
        topics = self.cluster.metadata.topics
        for topic in sorted({tp.topic for tp in partitions}):
            create = self.config.allow_auto_create_topics and self.subscriptions.by_user
            self.cluster.follow(topic, create=create)
            if topic not in topics:
                self.cluster.need_update(topic)

    def drop(self, partitions: list[TopicPartition]) -> None:
        """They are not ours any more."""
        for tp in partitions:
            state = self.subscriptions.partitions.get(tp)
            if state is not None:
                self.handing.forget(state)
            self.positions.removed(tp)
        self.subscriptions.remove(partitions)
        if not self.subscriptions.topics and self.subscriptions.pattern is None:
            left = {tp.topic for tp in self.subscriptions.partitions}
            for topic in {tp.topic for tp in partitions} - left:
                self.cluster.unfollow(topic)

    def let_go(self, partitions: list[TopicPartition]) -> None:
        """The user has no use for them any more."""
        self.handing.settle()
        if self.committer is not None and self.config.enable_auto_commit:
            self.committer.commit_done_soon(partitions)
        self.drop(partitions)

    async def assigned(self, partitions: list[TopicPartition]) -> None:
        self.subscriptions.add(partitions)
        self.follow(partitions)
        try:
            await tell(self.listener, "on_assigned", partitions)
        finally:
            self.changed()

    async def revoked(self, partitions: list[TopicPartition]) -> None:
        for tp in partitions:
            state = self.subscriptions.partitions.get(tp)
            if state is not None:
                self.handing.stop(state)
        try:
            if self.committer is not None and self.config.enable_auto_commit:
                await self.committer.commit_done(partitions, self._commit_deadline())
            await tell(self.listener, "on_revoked", partitions)
        finally:
            self.drop(partitions)

    def _commit_deadline(self) -> float:
        if self._ends_at is None:
            return self.cluster.deadline(self.config.default_api_timeout_ms)
        now = self.cluster.now()
        return now + _COMMIT_SHARE * max(0.0, self._ends_at - now)

    async def lost(self, partitions: list[TopicPartition]) -> None:
        try:
            await tell(self.listener, "on_lost", partitions)
        finally:
            self.drop(partitions)

    # Ending

    async def end(self, deadline: float) -> None:
        """Leaves the group and ends what runs in the background."""
        self._ends_at = deadline
        try:
            by_user = self.subscriptions.by_user
            if by_user and self.committer is not None and self.config.enable_auto_commit:
                await self.committer.commit_done(None, deadline)
            if self.membership is not None:
                await self.membership.leave(deadline, reason="the consumer is being closed")
            await self.fetcher.close(deadline)
        finally:
            if self.membership is not None:
                await self.membership.abandon()
            self._stop_listening()
            for timer in (self._look, self._lateness):
                if timer is not None:
                    timer.cancel()
            await self.tasks.cancel()
            self.wake()
