"""Commits the positions of a group: on demand, in the background, at intervals, before leaving.

One request is in flight at a time, in the order of the calls: an older offset must never arrive
after a newer one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias, TypeVar

from headwater.client.config import ConsumerConfig
from headwater.client.connection import Connection
from headwater.client.consumer import arguments
from headwater.client.consumer.arguments import OffsetsArgument
from headwater.client.consumer.metrics import GroupMetrics
from headwater.client.consumer.subscription import PartitionState, Spawn
from headwater.client.errors import (
    ClientError,
    CommitFailed,
    RebalanceInProgress,
    RequestTimedOut,
    RetriableError,
    UnknownTopic,
    error_for,
)
from headwater.client.requests.offset_commit import (
    GroupMetadata,
    OffsetAndMetadata,
    Offsets,
    send_commit,
)
from headwater.client.requests.offset_fetch import GroupOffsets, send_fetch
from headwater.client.requests.routing import Router, is_lost
from headwater.errors import ErrorCode
from headwater.model import TopicPartition

_log = logging.getLogger("headwater.client")

CommitCallback: TypeAlias = Callable[
    [dict[TopicPartition, OffsetAndMetadata], ClientError | None], object
]

_CALLBACKS_MAX = 10_000
# These are about the membership: the same request with the same identity cannot succeed.
_ABOUT_MEMBERSHIP = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
    }
)
_TRANSIENT = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)

R = TypeVar("R")


class _TransientError(Exception):
    """An error after which the request is sent again; raised if the deadline comes first."""

    def __init__(self, error: ClientError) -> None:
        super().__init__(error)
        self.error = error


class Commits:
    """The group's committed offsets, as one consumer writes and reads them."""

    def __init__(
        self,
        config: ConsumerConfig,
        router: Router,
        partitions: dict[TopicPartition, PartitionState],
        spawn: Spawn,
        metrics: GroupMetrics,
        *,
        identity: Callable[[], GroupMetadata],
        on_refused: Callable[[int, GroupMetadata], None],
    ) -> None:
        assert config.group_id is not None
        self._config = config
        self._router = router
        self._cluster = router.cluster
        self._group_id = config.group_id
        self._partitions = partitions
        self._spawn = spawn
        self._metrics = metrics
        self.identity = identity  # raises if this consumer is not a member now
        self._on_refused = on_refused
        self._turn = asyncio.Lock()
        self._pending: dict[TopicPartition, OffsetAndMetadata] = {}
        self._callbacks: list[CommitCallback] = []
        self._is_sending_pending = False

    # What there is to commit

    def positions(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns the positions after all records that the user got."""
        return {
            tp: OffsetAndMetadata(state.position, state.position_epoch)
            for tp, state in self._partitions.items()
            if state.has_position
        }

    def _consumed(
        self, states: Iterable[PartitionState]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Returns what the user has finished with and the group does not have yet."""
        return {
            state.tp: OffsetAndMetadata(consumed, state.position_epoch)
            for state in states
            if state.has_position
            and (consumed := state.consumed) >= 0
            and consumed != state.committed
        }

    # On demand

    async def commit(self, offsets: OffsetsArgument | None, deadline: float) -> None:
        """Commits these offsets, or all positions."""
        wanted = self.positions() if offsets is None else arguments.offsets(offsets)
        await self._commit(lambda: wanted, deadline)

    def commit_in_background(
        self, offsets: OffsetsArgument | None, callback: CommitCallback | None
    ) -> None:
        """Commits in the background. Calls that come while a commit is in flight share the next
        request."""
        wanted = self.positions() if offsets is None else arguments.offsets(offsets)
        if callback is not None:
            if len(self._callbacks) >= _CALLBACKS_MAX:
                raise ClientError(
                    f"{_CALLBACKS_MAX} commits are waiting for a response; await commit() instead"
                )
            self._callbacks.append(callback)
        self._pending |= wanted
        if not self._is_sending_pending:
            self._is_sending_pending = True
            self._spawn(self._send_pending())

    async def _send_pending(self) -> None:
        try:
            while self._pending or self._callbacks:
                await self._send_pending_once()
        finally:
            self._is_sending_pending = False

    async def _send_pending_once(self) -> None:
        callbacks: list[CommitCallback] = []

        def take_pending() -> Offsets:
            nonlocal callbacks
            callbacks, self._callbacks = self._callbacks, []
            offsets, self._pending = self._pending, {}
            return offsets

        error: ClientError | None = None
        sent: dict[TopicPartition, OffsetAndMetadata] = dict(self._pending)
        try:
            deadline = self._cluster.deadline(self._config.default_api_timeout_ms)
            sent = dict(await self._commit(take_pending, deadline))
        except ClientError as problem:
            error = problem
            _log.debug("a commit in the background failed: %s", problem)
        for callback in callbacks:
            try:
                callback(sent, error)
            except Exception:
                _log.exception("the callback %r of a commit failed", callback)

    # Auto commit

    async def commit_consumed(
        self, partitions: Iterable[TopicPartition] | None, deadline: float
    ) -> None:
        """Commits what the user has finished with, of these partitions or of all. A failure is
        logged and not raised: the records are read again, as after a crash."""
        chosen = None if partitions is None else list(partitions)

        def offsets() -> Offsets:
            tps = self._partitions if chosen is None else chosen
            return self._consumed([self._partitions[tp] for tp in tps if tp in self._partitions])

        try:
            # Partitions of a deleted topic are revoked as well, and must not be waited for.
            await self._commit(offsets, deadline, waits_for_topics=False)
        except ClientError as error:
            again = isinstance(error, RetriableError) and not isinstance(error, UnknownTopic)
            _log.warning("auto commit failed%s: %s", " and is retried" if again else "", error)

    def commit_consumed_in_background(self, partitions: Iterable[TopicPartition]) -> None:
        """Commits what the user has finished with of partitions that it gives up."""
        offsets = self._consumed([self._partitions[tp] for tp in partitions])
        if offsets:
            self.commit_in_background(offsets, None)

    async def run_auto_commit(self, is_rebalancing: Callable[[], bool]) -> None:
        """Commits every auto_commit_interval_ms, until cancelled."""
        interval = max(self._config.auto_commit_interval_ms, 1) / 1000
        while True:
            await asyncio.sleep(interval)
            if self._consumed(self._partitions.values()) and not is_rebalancing():
                await self.commit_consumed(
                    None, self._cluster.deadline(self._config.default_api_timeout_ms)
                )

    # Requests

    async def _commit(
        self, offsets: Callable[[], Offsets], deadline: float, *, waits_for_topics: bool = True
    ) -> Offsets:
        """Commits what `offsets` returns when all commits before it are done; returns it. A topic
        that does not exist is waited for, unless the consumer has read it before."""
        began = self._cluster.now()
        try:
            await self._take_turn(deadline)
            try:
                wanted = offsets()
                if wanted:
                    await self._retry(
                        lambda: self._commit_once(wanted, deadline),
                        deadline,
                        waits_for_topics=waits_for_topics,
                    )
            finally:
                self._turn.release()
        except ClientError:
            self._metrics.commit_failures += 1
            raise
        if wanted:
            self._metrics.committed(began, self._cluster.now())
            self._on_committed(wanted)
        return wanted

    def _on_committed(self, offsets: Offsets) -> None:
        for tp, each in offsets.items():
            state = self._partitions.get(tp)
            if state is not None:
                state.committed = each.offset
        for interceptor in self._config.interceptors:
            on_commit = getattr(interceptor, "on_commit", None)
            if on_commit is not None:
                try:
                    on_commit(dict(offsets))
                except Exception:
                    _log.exception("the interceptor %r failed in on_commit", interceptor)

    async def _take_turn(self, deadline: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, deadline - self._cluster.now())):
                await self._turn.acquire()
        except TimeoutError:
            raise RequestTimedOut(
                f"commit in group {self._group_id}: an earlier commit has no response yet; are "
                "brokers down?"
            ) from None

    async def fetch(
        self, partitions: Iterable[TopicPartition], *, deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Returns the committed offset of each partition; None where there is none."""
        wanted = list(partitions)
        found = await self._retry(lambda: self._fetch_once(wanted, deadline), deadline)
        return {tp: found.get(tp) for tp in wanted}

    async def _retry(
        self,
        attempt: Callable[[], Awaitable[R]],
        deadline: float,
        *,
        waits_for_topics: bool = True,
    ) -> R:
        retries = self._cluster.retries(deadline)
        while True:
            try:
                return await attempt()
            except _TransientError as transient:
                error = transient.error
            except RetriableError as problem:
                error = problem
            if isinstance(error, UnknownTopic) and not waits_for_topics:
                raise error
            if is_lost(error):
                self._cluster.coordinator_lost(self._group_id)
            if not await retries.pause():
                raise error

    async def _coordinator(self, deadline: float) -> Connection:
        try:
            async with asyncio.timeout(max(0.001, deadline - self._cluster.now())):
                return await self._cluster.coordinator(self._group_id, deadline=deadline)
        except TimeoutError:
            raise error_for(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"offsets of group {self._group_id}"
            ) from None

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        topics = self._cluster.metadata.topics
        names = {tp.topic for tp in partitions}
        return {name: topics[name].topic_id for name in names if name in topics}

    async def _commit_once(self, offsets: Offsets, deadline: float) -> None:
        coordinator = await self._coordinator(deadline)
        identity = self.identity()
        codes = await send_commit(
            self._router,
            coordinator,
            identity,
            offsets,
            topic_ids=self._topic_ids(offsets),
            deadline=deadline,
        )
        transient: _TransientError | None = None
        for tp, code in codes.items():
            if not code:
                continue
            what = f"commit of offset {offsets[tp].offset} for {tp} in group {identity.group_id}"
            if code in _ABOUT_MEMBERSHIP:
                self._on_refused(code, identity)
                raise _membership_error(code, what, identity)
            error = error_for(code, what)
            if code not in _TRANSIENT:
                raise error
            transient = _TransientError(error)
        if transient is not None:
            raise transient

    async def _fetch_once(self, partitions: list[TopicPartition], deadline: float) -> GroupOffsets:
        coordinator = await self._coordinator(deadline)
        results = await send_fetch(
            self._router,
            coordinator,
            {self._group_id: partitions},
            topic_ids=self._topic_ids(partitions),
            require_stable=True,
            deadline=deadline,
        )
        result = results[self._group_id]
        if isinstance(result, ClientError):
            raise _TransientError(result) if result.code in _TRANSIENT else result
        return result


def _membership_error(code: int, what: str, identity: GroupMetadata) -> Exception:
    """Returns the error for a commit that was refused because of the membership."""
    error = error_for(code, what)
    if code == ErrorCode.STALE_MEMBER_EPOCH and identity.generation_or_epoch >= 0:
        # The coordinator has a newer epoch for this member, which a heartbeat brings or has
        # brought; if it brings the end of the membership, the next attempt has no identity.
        return _TransientError(error)
    if code == ErrorCode.REBALANCE_IN_PROGRESS:
        return RebalanceInProgress(
            f"{what}: the group is rebalancing; poll, then commit again", code=error.code
        )
    if isinstance(error, CommitFailed):
        return CommitFailed(
            f"{what}: this consumer is not a member of the group any more, and the partition may "
            "belong to another one. Its records may be processed twice; process faster, raise "
            "max_poll_interval_ms, or lower max_poll_records",
            code=error.code,
        )
    return error
