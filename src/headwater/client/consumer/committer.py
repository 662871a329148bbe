"""When offsets are committed: on demand, in the background, every interval, and before leaving."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from headwater.client.cluster import Cluster
from headwater.client.config import ConsumerConfig
from headwater.client.consumer import given
from headwater.client.consumer.commits import Commits
from headwater.client.consumer.given import GivenOffsets
from headwater.client.consumer.handing import Handing
from headwater.client.consumer.metrics import GroupMetrics
from headwater.client.consumer.partition import PartitionState
from headwater.client.consumer.tasks import Tasks
from headwater.client.errors import ClientError, RetriableError, UnknownTopic
from headwater.client.requests.offset_commit import OffsetAndMetadata, Offsets
from headwater.model import TopicPartition

_log = logging.getLogger("headwater.client")

Committed = Callable[[dict[TopicPartition, OffsetAndMetadata], ClientError | None], object]

_CALLBACKS_MAX = 10_000


class Committer:
    def __init__(
        self,
        config: ConsumerConfig,
        cluster: Cluster,
        commits: Commits,
        partitions: dict[TopicPartition, PartitionState],
        handing: Handing,
        tasks: Tasks,
        metrics: GroupMetrics,
    ) -> None:
        self._metrics = metrics
        self._config = config
        self._cluster = cluster
        self._commits = commits
        self._partitions = partitions
        self._handing = handing
        self._tasks = tasks
        self._pending: dict[TopicPartition, OffsetAndMetadata] = {}
        self._callbacks: list[Committed] = []
        self._sending = False

    # What there is to commit

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that the user has got."""
        handing = self._handing
        return {
            tp: OffsetAndMetadata(handing.position(state), handing.epoch(state))
            for tp, state in self._partitions.items()
            if state.has_position
        }

    def _done(self, states: Iterable[PartitionState]) -> dict[TopicPartition, OffsetAndMetadata]:
        """All that the user is done with and the group does not know of."""
        handing = self._handing
        return {
            state.tp: OffsetAndMetadata(done, handing.epoch(state))
            for state in states
            if state.has_position and (done := handing.done(state)) >= 0 and done != state.committed
        }

    # On demand

    async def commit(self, offsets: GivenOffsets | None, deadline: float) -> None:
        wanted = self.positions() if offsets is None else given.offsets(offsets)
        await self._send(lambda: wanted, deadline)

    def commit_soon(self, offsets: GivenOffsets | None, callback: Committed | None) -> None:
        """In the background; what is asked for while a commit is under way goes with the next."""
        wanted = self.positions() if offsets is None else given.offsets(offsets)
        if callback is not None:
            if len(self._callbacks) >= _CALLBACKS_MAX:
                raise ClientError(
                    f"{_CALLBACKS_MAX} commits wait for an answer; await commit() instead"
                )
            self._callbacks.append(callback)
        self._pending |= wanted
        if not self._sending:
            self._sending = True
            self._tasks.spawn(self._send_pending())

    async def _send_pending(self) -> None:
        try:
            while self._pending or self._callbacks:
                await self._send_some()
        finally:
            self._sending = False

    async def _send_some(self) -> None:
        callbacks: list[Committed] = []

        def take() -> Offsets:
            nonlocal callbacks
            callbacks, self._callbacks = self._callbacks, []
            offsets, self._pending = self._pending, {}
            return offsets

        error: ClientError | None = None
        sent: dict[TopicPartition, OffsetAndMetadata] = dict(self._pending)
        try:
            deadline = self._cluster.deadline(self._config.default_api_timeout_ms)
            sent = dict(await self._send(take, deadline))
        except ClientError as problem:
            error = problem
            _log.debug("a commit in the background failed: %s", problem)
        for callback in callbacks:
            try:
                callback(sent, error)
            except Exception:
                _log.exception("the callback %r of a commit failed", callback)

    async def _send(
        self, offsets: Callable[[], Offsets], deadline: float, *, topics_may_come: bool = True
    ) -> Offsets:
        began = self._cluster.now()
        try:
            stored = await self._commits.commit(
                offsets, deadline=deadline, topics_may_come=topics_may_come
            )
        except ClientError:
            self._metrics.commit_failures += 1
            raise
        if stored:
            self._metrics.committed(began, self._cluster.now())
        for tp, each in stored.items():
            state = self._partitions.get(tp)
            if state is not None:
                state.committed = each.offset
        for interceptor in self._config.interceptors:
            on_commit = getattr(interceptor, "on_commit", None)
            if on_commit is not None and stored:
                try:
                    on_commit(dict(stored))
                except Exception:
                    _log.exception("the interceptor %r failed in on_commit", interceptor)
        return stored

    # By itself

    def commit_done_soon(self, partitions: Iterable[TopicPartition]) -> None:
        """Commits what the user is done with of partitions that it gives up, in the background."""
        offsets = self._done([self._partitions[tp] for tp in partitions])
        if offsets:
            self.commit_soon(offsets, None)

    async def commit_done(
        self, partitions: Iterable[TopicPartition] | None, deadline: float
    ) -> None:
        """Commits what the user is done with, of these partitions or of all. That it fails is a
        line in the log: the records are read again, as always when a consumer ends badly."""
        chosen = None if partitions is None else list(partitions)

        def offsets() -> Offsets:
            tps = self._partitions if chosen is None else chosen
            return self._done([self._partitions[tp] for tp in tps if tp in self._partitions])

        try:
            # Partitions of a topic that was deleted are given back as well: nobody may wait for it.
            await self._send(offsets, deadline, topics_may_come=False)
        except ClientError as error:
            again = isinstance(error, RetriableError) and not isinstance(error, UnknownTopic)
            _log.warning("auto commit%s: %s", ", which is tried again" if again else "", error)

    async def run(self, is_rebalancing: Callable[[], bool]) -> None:
        """Commits every auto_commit_interval_ms."""
        interval = max(self._config.auto_commit_interval_ms, 1) / 1000
        while True:
            await asyncio.sleep(interval)
            if self._done(self._partitions.values()) and not is_rebalancing():
                await self.commit_done(
                    None, self._cluster.deadline(self._config.default_api_timeout_ms)
                )
