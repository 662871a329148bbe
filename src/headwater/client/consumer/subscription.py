"""What the user wants to read, and the partitions that this consumer has now. A machine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from headwater.client.consumer.partition import PartitionState, Phase
from headwater.client.errors import ClientError
from headwater.model import TopicPartition


@dataclass(slots=True)
class Subscriptions:
    """By topics, by a pattern, or by partitions that the user names; one of them at a time."""

    topics: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    regex: str | None = None  # a pattern that the broker matches (RE2, KIP-848)
    by_user: bool = False  # partitions were named with `assign`
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
            raise ClientError("partitions are assigned by hand; call unsubscribe() first")
        wanted = frozenset(topics)
        if sum((bool(wanted), pattern is not None, regex is not None)) != 1:
            asked = f"topics={sorted(wanted)}, pattern={regex if pattern is None else pattern!r}"
            raise ClientError(f"{asked}: give names of topics, or a pattern, and not both")
        self.topics, self.pattern, self.regex = wanted, pattern, regex

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Exactly these. Those that were there keep their positions."""
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
        """They are ours now; gives those that are new."""
        new = []
        for tp in partitions:
            if tp not in self.partitions:
                state = self.partitions[tp] = PartitionState(tp)
                new.append(state)
        return new

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        """They are not ours any more."""
        for tp in partitions:
            state = self.partitions.pop(tp, None)
            if state is not None:
                state.drop_pieces()
                state.phase = Phase.FAILED
                state.changes += 1

    def state(self, tp: TopicPartition) -> PartitionState:
        try:
            return self.partitions[tp]
        except KeyError:
            raise ClientError(
                f"{tp} is not assigned to this consumer; it has "
                + (", ".join(map(str, sorted(self.partitions)[:10])) or "no partition")
            ) from None
