"""A group's offsets: storing how far this consumer is, and reading it back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any

from headwater.client.backoff import Backoff
from headwater.client.cluster import Coordinator
from headwater.client.config import ConsumerConfig
from headwater.client.connection import Connection
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
    CommitIdentity,
    OffsetAndMetadata,
    Offsets,
    send_commit,
)
from headwater.client.requests.offset_fetch import send_fetch
from headwater.client.requests.routing import Router
from headwater.errors import ErrorCode
from headwater.model import TopicPartition

# The answer is about the membership, and asking again with the same identity is no use.
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
_MOVED = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
_WAIT = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class Commits:
    def __init__(
        self,
        config: ConsumerConfig,
        router: Router,
        *,
        identity: Callable[[], CommitIdentity],
        refused: Callable[[int, CommitIdentity], None],
    ) -> None:
        assert config.group_id is not None
        self._config = config
        self._router = router
        self._cluster = router.cluster
        self._group = Coordinator(config.group_id)
        self._identity = identity
        self._refused = refused
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms)
        # Commits leave in the order they were asked for, and the next waits for the one before:
        # an older offset must never arrive after a newer one.
        self._turn = asyncio.Lock()

    async def commit(
        self, offsets: Callable[[], Offsets], *, deadline: float, topics_may_come: bool = True
    ) -> Offsets:
        """Stores what `offsets` says when the turn has come; gives what was stored. A topic that is
        not there is waited for, unless it is one that was read and has been deleted since."""
        await self._take_turn(deadline)
        try:
            wanted = offsets()
            if wanted:
                await self._retrying(
                    lambda: self._commit_once(wanted, deadline), deadline, topics_may_come
                )
            return wanted
        finally:
            self._turn.release()

    async def _take_turn(self, deadline: float) -> None:
        try:
            async with asyncio.timeout(max(0.0, deadline - self._cluster.now())):
                await self._turn.acquire()
        except TimeoutError:
            raise RequestTimedOut(
                f"commit in group {self._group.key}: one before it has no answer yet; look whether "
                "brokers are down"
            ) from None

    async def fetch(
        self, partitions: Iterable[TopicPartition], *, deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What is stored for these; None for those of which nothing is."""
        wanted = list(partitions)
        answer: dict[TopicPartition, OffsetAndMetadata | None] = {}

        async def once() -> ClientError | None:
            found = await self._fetch_once(wanted, deadline)
            if isinstance(found, ClientError):
                return found
            answer.update(found)
            return None

        await self._retrying(once, deadline)
        return {tp: answer.get(tp) for tp in wanted}

    async def _retrying(
        self, once: Callable[[], Any], deadline: float, topics_may_come: bool = True
    ) -> None:
        """Tries until it works; `once` gives the error that may go away by itself."""
        failures = 0
        while True:
            try:
                problem = await once()
            except RetriableError as error:
                problem = error
                self._cluster.coordinator_lost(self._group.key, self._group.kind)
            if problem is None:
                return
            if isinstance(problem, UnknownTopic) and not topics_may_come:
                raise problem
            failures += 1
            wait = self._backoff.seconds(failures, self._cluster.host.random)
            if self._cluster.now() + wait >= deadline:
                raise problem
            await asyncio.sleep(wait)

    async def _connection(self, deadline: float) -> Connection:
        async with asyncio.timeout(max(0.001, deadline - self._cluster.now())):
            return await self._cluster.coordinator(
                self._group.key, self._group.kind, deadline=deadline
            )

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, bytes]:
        topics = self._cluster.metadata.topics
        names = {tp.topic for tp in partitions}
        return {name: topics[name].topic_id for name in names if name in topics}

    # Storing

    async def _commit_once(self, offsets: Offsets, deadline: float) -> ClientError | None:
        try:
            connection = await self._connection(deadline)
        except TimeoutError:
            return error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"commit of {self._group.key}")
        identity = self._identity()
        codes = await send_commit(
            self._router,
            connection,
            identity,
            offsets,
            topic_ids=self._topic_ids(offsets),
            deadline=deadline,
        )
        problem: ClientError | None = None
        for tp, code in codes.items():
            if code:
                problem = self._judge(code, identity, tp, offsets)
        return problem

    def _judge(
        self, code: int, identity: CommitIdentity, tp: TopicPartition, offsets: Offsets
    ) -> ClientError:
        """The error to try again after; raises the one that is final."""
        offset = offsets[tp].offset if tp in offsets else "?"
        what = f"commit of offset {offset} for {tp} in group {identity.group_id}"
        if code in _ABOUT_MEMBERSHIP:
            self._refused(code, identity)
            if code == ErrorCode.STALE_MEMBER_EPOCH and identity.generation_or_epoch >= 0:
                # The coordinator has a newer epoch for us, which a heartbeat brings or has brought;
                # if it brings the end of the membership, the next try finds no identity.
                return error_for(code, what)
            if code == ErrorCode.REBALANCE_IN_PROGRESS:
                raise RebalanceInProgress(
                    f"{what}: the group is being rebalanced; poll, then commit again",
                    code=ErrorCode.REBALANCE_IN_PROGRESS,
                )
            error = error_for(code, what)
            if isinstance(error, CommitFailed):
                raise CommitFailed(
                    f"{what}: the group has gone on without this consumer, and the partition may "
                    "belong to another one. Its records may be processed twice; process faster, "
                    "or raise max_poll_interval_ms or lower max_poll_records",
                    code=error.code,
                )
            raise error
        if code in _MOVED:
            self._cluster.coordinator_lost(self._group.key, self._group.kind)
        elif code not in _WAIT:
            raise error_for(code, what)
        return error_for(code, what)

    # Reading back

    async def _fetch_once(
        self, partitions: list[TopicPartition], deadline: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None] | ClientError:
        what = f"committed offsets of group {self._group.key}"
        try:
            connection = await self._connection(deadline)
        except TimeoutError:
            return error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, what)
        group_id = self._group.key
        results = await send_fetch(
            self._router,
            connection,
            {group_id: partitions},
            topic_ids=self._topic_ids(partitions),
            require_stable=True,
            deadline=deadline,
        )
        result = results[group_id]
        if isinstance(result, ClientError):
            return self._fetch_refused(result)
        return result

    def _fetch_refused(self, error: ClientError) -> ClientError:
        if error.code in _MOVED:
            self._cluster.coordinator_lost(self._group.key, self._group.kind)
        elif error.code not in _WAIT:
            raise error
        return error
