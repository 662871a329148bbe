"""The subscription of a consumer, and its position in each partition. Machines: no I/O, no clock.

`PartitionState` is the only owner of a partition's position. A partition starts without one and
gets it from the group's committed offset, from the reset policy, or from the user. When the
partition's leader changes, the position is checked against the log of the new leader (KIP-320)
before reading continues.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from random import Random
from typing import TYPE_CHECKING, Any, TypeAlias

from headwater.client.backoff import Backoff
from headwater.client.errors import ClientError
from headwater.client.requests.list_offsets import OffsetSpec
from headwater.model import NO_EPOCH, NO_NODE, NO_OFFSET, TopicPartition

if TYPE_CHECKING:
    from headwater._core import ConsumedRecord
    from headwater.client.consumer.fetch_buffer import CompletedFetch


# Runs a coroutine in the background, until the consumer is closed.
Spawn: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]


class Phase(Enum):
    """The state of a partition; the value says what it is waiting for."""

    COMMITTED = "the group's committed offset"
    RESET = "the offset of a timestamp"
    VALIDATING = "the leader to confirm that the position is in its log"
    READING = "records"
    FAILED = "a seek by the user"


class Slice:
    """Decoded records of one partition that a loop takes one by one.

    The loop runs over a list's own iterator, so nothing is counted for each record: how many were
    taken follows from how many that iterator has left, and positions are computed on demand.
    """

    __slots__ = (
        "_consumed",
        "_length",
        "_records_consumed",
        "_start",
        "fetch",
        "is_late",
        "iterator",
        "records",
        "state",
    )

    def __init__(
        self,
        state: PartitionState,
        fetch: CompletedFetch,
        records: list[ConsumedRecord],
        *,
        start: int,
        consumed: int,
    ) -> None:
        self.state = state
        self.fetch = fetch
        self.records = records
        self.iterator: Iterator[ConsumedRecord] = iter(records)
        self.is_late = False  # the loop should ask for the rest again
        self._length = len(records)
        self._start = start
        self._records_consumed = 0
        self._consumed = consumed

    @property
    def left(self) -> int:
        """The number of records that the loop has not taken."""
        return self.iterator.__length_hint__()  # type: ignore[attr-defined, no-any-return]

    @property
    def position(self) -> int:
        """The offset after the last record taken."""
        taken = self._length - self.left
        if taken == self._length:
            return self.state.next_offset
        return self._start if not taken else self.records[taken - 1].offset + 1

    @property
    def consumed(self) -> int:
        """The offset after the last record that the user has finished with: all but the one taken
        last, unless the user has asked for more since."""
        taken = self._length - self.left
        return self._consumed if taken == self._records_consumed else self.records[taken - 1].offset

    @property
    def epoch(self) -> int:
        """The leader epoch of the last record taken; -1 if there is none."""
        taken = self._length - self.left
        return self.records[taken - 1].leader_epoch if taken else NO_EPOCH

    def mark_consumed(self) -> None:
        """Notes that the user has finished with all records taken so far."""
        self._records_consumed = self._length - self.left
        self._consumed = self.position

    def mark_late(self) -> None:
        self.is_late = True

    def cut(self) -> None:
        """Ends the slice, also for a loop that is iterating over it. Read its positions before."""
        self.records.clear()


@dataclass(slots=True, eq=False)
class PartitionState:
    """One assigned partition: its position, what was fetched of it, and what it waits for."""

    tp: TopicPartition
    phase: Phase = Phase.COMMITTED
    reset_to: int = OffsetSpec.LATEST  # the timestamp that RESET looks up
    next_offset: int = NO_OFFSET  # of the first record that was not decoded
    epoch: int = NO_EPOCH  # leader epoch of the record before next_offset, if known
    leader_epoch: int = NO_EPOCH  # of the leader that has validated the position
    delivery: Slice | None = None  # decoded records that a loop has not taken
    committed: int = NO_OFFSET  # the group's offset, as far as known
    fetch_offset: int = NO_OFFSET  # where the next fetch reads
    fetches: deque[CompletedFetch] = field(default_factory=deque)
    fetched_bytes: int = 0
    is_paused: bool = False
    is_ready: bool = False  # in the queue of partitions that have records
    is_corrupt: bool = False  # the bytes at fetch_offset are corrupt: do not fetch them again
    is_out_of_range: bool = False  # the log has nothing at fetch_offset
    is_busy: bool = False  # a request about its position is in flight
    retry_at: float = 0.0
    failures: int = 0
    position_version: int = 0  # incremented by jumps, which void responses to older requests
    high_watermark: int = NO_OFFSET
    last_stable_offset: int = NO_OFFSET
    log_start: int = NO_OFFSET
    preferred_replica: int = NO_NODE  # named by the leader (KIP-392)
    preferred_until: float = 0.0
    _consumed: int = field(default=NO_OFFSET, init=False)

    # Position

    @property
    def has_position(self) -> bool:
        return self.next_offset >= 0 and self.phase not in (Phase.COMMITTED, Phase.RESET)

    @property
    def position(self) -> int:
        """The offset after the last record that the user got."""
        return self.next_offset if self.delivery is None else self.delivery.position

    @property
    def position_epoch(self) -> int:
        """The leader epoch of the record before the position; -1 if unknown."""
        return self.epoch if self.delivery is None else self.delivery.epoch

    @property
    def consumed(self) -> int:
        """The offset after the last record that the user has finished with: what auto commit
        commits."""
        return self._consumed if self.delivery is None else self.delivery.consumed

    def mark_consumed(self) -> None:
        """Notes that the user has finished with all records it got."""
        delivery = self.delivery
        if delivery is None:
            self._consumed = self.next_offset
            return
        delivery.mark_consumed()
        if not delivery.left:
            self.finish_delivery()

    def start_delivery(
        self, fetch: CompletedFetch, records: list[ConsumedRecord], *, start: int
    ) -> Slice:
        """Delivers decoded records one by one; before the first, the position is `start`."""
        self.delivery = Slice(self, fetch, records, start=start, consumed=self._consumed)
        return self.delivery

    def finish_delivery(self) -> None:
        """Ends a delivery of which the user has, or gets now, all records."""
        assert self.delivery is not None
        self._consumed = self.delivery.consumed
        self.delivery = None

    def take_back_delivery(self) -> None:
        """Ends a delivery; records that were not taken are read again."""
        delivery = self.delivery
        assert delivery is not None
        position = delivery.position
        self.finish_delivery()
        delivery.cut()
        if position == self.next_offset or self.phase not in (Phase.READING, Phase.VALIDATING):
            return
        self.next_offset = position
        if self.fetches and self.fetches[0] is delivery.fetch:
            delivery.fetch.rewind(position)
        else:
            self.evict()

    def drop_delivery(self) -> None:
        """Ends a delivery for good: the partition is read from elsewhere, or not at all."""
        assert self.delivery is not None
        self.delivery.cut()
        self.delivery = None

    # Jumps

    def seek(self, offset: int, epoch: int = NO_EPOCH) -> None:
        """Reads from this offset next."""
        assert offset >= 0, f"offset {offset}"
        self.drop_fetches()
        self.next_offset = self._consumed = self.fetch_offset = offset
        self.epoch = epoch
        self.phase = Phase.READING
        self._on_jump()

    def reset(self, timestamp: int) -> None:
        """Reads from the offset of a timestamp, once it is found."""
        self.drop_fetches()
        self.phase = Phase.RESET
        self.reset_to = timestamp
        self.next_offset = self.fetch_offset = self._consumed = NO_OFFSET
        self.epoch = NO_EPOCH
        self._on_jump()

    def fail(self) -> None:
        """Reads nothing until the user seeks."""
        self.drop_fetches()
        self.phase = Phase.FAILED
        self._on_jump()

    def _on_jump(self) -> None:
        self.position_version += 1
        self.is_corrupt = self.is_out_of_range = False
        self.is_busy = False
        self.retry_at = 0.0
        self.failures = 0
        self.preferred_replica = NO_NODE

    # Leaders

    def on_leader_epoch(self, leader_epoch: int) -> bool:
        """Applies the epoch of the partition's leader; returns whether the position must be
        validated."""
        if leader_epoch == NO_EPOCH or leader_epoch <= self.leader_epoch:
            return False
        if self.phase not in (Phase.READING, Phase.VALIDATING):
            return False
        known = self.leader_epoch != NO_EPOCH
        self.leader_epoch = leader_epoch
        self.preferred_replica = NO_NODE
        if self.epoch == NO_EPOCH or (not known and self.epoch == leader_epoch):
            return False  # nothing to compare with, or it comes from this very leader
        self.drop_fetches()
        self.fetch_offset = self.next_offset
        self.phase = Phase.VALIDATING
        self._on_jump()
        return True

    def on_validated(self, end_epoch: int, end_offset: int) -> int | None:
        """Applies the end of the position's epoch in the leader's log. Returns None if the position
        is in that log, otherwise the first offset at which the logs differ; -1 if the leader does
        not know the epoch."""
        assert self.phase is Phase.VALIDATING
        if end_offset < 0 or end_epoch < 0:
            return NO_OFFSET
        if end_epoch < self.epoch or end_offset < self.next_offset:
            return min(end_offset, self.next_offset)
        self.skip_validation()
        return None

    def skip_validation(self) -> None:
        """Continues to read: the position is valid, or the broker is too old to tell."""
        self.phase = Phase.READING
        self.is_busy = False

    def on_topic_recreated(self) -> None:
        """Another log has the same name: what was known about epochs and data is void."""
        self.leader_epoch = self.epoch = NO_EPOCH
        self.evict()

    # Fetched data

    def is_fetchable(self, now: float, bytes_max: int) -> bool:
        return (
            self.phase is Phase.READING
            and not self.is_paused
            and not self.is_corrupt
            and not (self.is_out_of_range and self.fetches)
            and self.retry_at <= now
            and self.fetched_bytes < bytes_max
        )

    def on_fetched(self, *, high_watermark: int, last_stable_offset: int, log_start: int) -> None:
        """Applies what a successful fetch tells about the log."""
        self.failures = 0
        self.is_out_of_range = False
        self.high_watermark = high_watermark
        self.last_stable_offset = last_stable_offset
        if log_start >= 0:
            self.log_start = log_start

    def prefer_replica(self, node_id: int, until: float) -> None:
        self.preferred_replica = node_id
        self.preferred_until = until

    def back_off(self, now: float, backoff: Backoff, random: Random) -> float:
        """Sends no request about this partition for a while; returns the seconds."""
        self.failures += 1
        wait = backoff.seconds(self.failures, random)
        self.retry_at = now + wait
        return wait

    def add_fetch(self, fetch: CompletedFetch) -> None:
        self.fetches.append(fetch)
        self.fetched_bytes += len(fetch)
        if fetch.end_offset <= self.fetch_offset:
            self.is_corrupt = True
        self.fetch_offset = max(self.fetch_offset, fetch.end_offset)

    def on_decoded(self, next_offset: int, leader_epoch: int) -> None:
        """Moves past what was decoded."""
        self.next_offset = next_offset
        if leader_epoch >= 0:
            self.epoch = leader_epoch

    def drop_fetch(self) -> None:
        """Releases the first fetch, which is used up."""
        fetch = self.fetches.popleft()
        self.fetched_bytes -= len(fetch)
        fetch.release()

    def drop_fetches(self) -> None:
        while self.fetches:
            self.drop_fetch()

    def evict(self) -> None:
        """Releases fetched data, which is fetched again when needed. Requests about the partition
        that are in flight become void, and are sent again."""
        self.drop_fetches()
        self.fetch_offset = self.next_offset
        self.is_corrupt = self.is_out_of_range = False
        self.is_busy = False
        self.position_version += 1

    def remove(self) -> None:
        """Ends it: the partition is not assigned any more."""
        self.drop_fetches()
        self.phase = Phase.FAILED
        self.position_version += 1


@dataclass(slots=True)
class SubscriptionState:
    """The topics, the pattern or the partitions that the user wants to read, one of them at a time,
    and the partitions that are assigned now."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    regex: str | None = None  # a pattern that the broker matches (RE2, KIP-848)
    by_user: bool = False  # partitions were chosen with `assign`
    partitions: dict[TopicPartition, PartitionState] = field(default_factory=dict)

    @property
    def is_subscribed(self) -> bool:
        return bool(self.topics or self.pattern is not None or self.regex is not None)

    def subscribe(
        self,
        *,
        topics: Iterable[str] = (),
        pattern: re.Pattern[str] | None = None,
        regex: str | None = None,
    ) -> None:
        if self.by_user:
            raise ClientError("partitions were chosen with assign(); call unsubscribe() first")
        wanted = frozenset(topics)
        if sum((bool(wanted), pattern is not None, regex is not None)) != 1:
            asked = f"topics={sorted(wanted)}, pattern={regex if pattern is None else pattern!r}"
            raise ClientError(f"{asked}: give either names of topics or a pattern")
        self.topics, self.pattern, self.regex = wanted, pattern, regex

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Takes exactly these partitions; those that were assigned before keep their positions."""
        if self.is_subscribed:
            raise ClientError("the consumer is subscribed to topics; call unsubscribe() first")
        wanted = {TopicPartition(*each): None for each in partitions}
        self.by_user = bool(wanted)
        self.remove([tp for tp in self.partitions if tp not in wanted])
        self.add(wanted)

    def unsubscribe(self) -> None:
        self.topics, self.pattern, self.regex = frozenset(), None, None
        self.by_user = False
        self.remove(list(self.partitions))

    def add(self, partitions: Iterable[TopicPartition]) -> list[PartitionState]:
        """Adds partitions; returns those that are new."""
        new = []
        for tp in partitions:
            if tp not in self.partitions:
                state = self.partitions[tp] = PartitionState(tp)
                new.append(state)
        return new

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        for tp in partitions:
            state = self.partitions.pop(tp, None)
            if state is not None:
                state.remove()

    def state(self, tp: TopicPartition) -> PartitionState:
        """Returns an assigned partition; ClientError for any other."""
        try:
            return self.partitions[tp]
        except KeyError:
            assigned = ", ".join(map(str, sorted(self.partitions)[:10])) or "no partition"
            raise ClientError(
                f"{tp} is not assigned to this consumer, which has {assigned}"
            ) from None
