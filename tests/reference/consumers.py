"""Consumer groups without a shard: topics to read, members that behave, and a log to replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

from headwater.coordination import Decision, Record
from headwater.groups.clients import ClientInfo
from headwater.groups.consumer.group import ConsumerGroup
from headwater.groups.consumer.topics import Topics
from headwater.groups.settings import GroupSettings
from headwater.protocol import decode, encode
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse,
)
from headwater.protocol.schema import Message

CLIENT = ClientInfo("client", "/127.0.0.1")


def topic_id(name: str) -> bytes:
    return name.encode().ljust(16, b"\0")[:16]


class World:
    """Topics by name, with their numbers of partitions."""

    def __init__(self, **counts: int) -> None:
        self.counts = dict(counts)
        self.generation: dict[str, int] = {}

    def partitions(self, name: str) -> int | None:
        return self.counts.get(name)

    def id(self, name: str) -> bytes | None:
        if name not in self.counts:
            return None
        return topic_id(f"{name}{self.generation.get(name, '')}")

    def name(self, topic: bytes) -> str | None:
        return next((name for name in self.counts if self.id(name) == topic), None)

    def names(self) -> Iterable[str]:
        return list(self.counts)

    def racks(self, name: str) -> Sequence[frozenset[str]]:
        return [frozenset(("a",))] * self.counts[name]


def rewritten(message: Message) -> Message:
    """The message as it comes back from the log."""
    return decode(type(message), encode(message, 0), 0)


class Harness:
    """One group, its log, and a clock. After each step a replay must equal the group."""

    def __init__(self, *, settings: GroupSettings | None = None, **topics: int) -> None:
        self.settings = settings or GroupSettings()
        self.world = World(**topics)
        self.group = self._new_group()
        self.log: list[Record] = []
        self.now = 1000.0
        self.looks = 0
        self.topics_changed()

    def _new_group(self) -> ConsumerGroup:
        return ConsumerGroup("g", self.settings, Random(1), Topics())

    @property
    def now_ms(self) -> int:
        return int(self.now * 1000) + 1_700_000_000_000

    def topics_changed(self) -> None:
        self.now += 0.001
        self.group.topics.update(self.world)
        self.group.on_metadata()

    def take(self, decision: Decision) -> list[Message]:
        for record in decision.records:
            value = None if record.value is None else rewritten(record.value)
            written = Record(rewritten(record.key), value)
            self.log.append(written)
            self.group.apply(written)
        self.check_replay()
        return [message for _, message in decision.replies]

    def check_replay(self) -> None:
        fresh = self._new_group()
        for record in self.log:
            fresh.apply(record)
        assert fresh.durable_state() == self.group.durable_state()

    def tick(self, seconds: float = 0.0) -> None:
        self.now += seconds
        while self.group.next_deadline() <= self.now:
            self.take(self.group.on_tick(self.now, self.now_ms))

    def ask(
        self, member_id: str = "m", epoch: int = 0, *, version: int = 1, **fields: Any
    ) -> ConsumerGroupHeartbeatResponse:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=member_id, member_epoch=epoch, **fields
        )
        decision = self.group.decide_heartbeat(
            7, request, client=CLIENT, version=version, now=self.now, now_ms=self.now_ms
        )
        (answer,) = self.take(decision)
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer


class Consumer:
    """A member that does what it is told."""

    def __init__(self, harness: Harness, member_id: str, topics: list[str] | None = None) -> None:
        self.harness = harness
        self.id = member_id
        self.topics = topics
        self.regex: str | None = None
        self.instance_id: str | None = None
        self.assignor: str | None = None
        self.rebalance_timeout_ms = 60_000
        self.epoch = 0
        self.owned: dict[bytes, frozenset[int]] = {}
        self.slow = False  # keeps what it should give up

    def _owned(self) -> list[ConsumerGroupHeartbeatRequestTopicPartitions]:
        return [
            ConsumerGroupHeartbeatRequestTopicPartitions(topic_id=topic, partitions=sorted(mine))
            for topic, mine in self.owned.items()
        ]

    def beat(self, **changes: Any) -> ConsumerGroupHeartbeatResponse:
        """A full heartbeat when joining; else only what is owned."""
        fields: dict[str, Any] = {"instance_id": self.instance_id}
        if self.epoch == 0:
            self.owned = {}
            fields |= {
                "rebalance_timeout_ms": self.rebalance_timeout_ms,
                "subscribed_topic_names": self.topics,
                "subscribed_topic_regex": self.regex,
                "server_assignor": self.assignor,
            }
        fields |= {"topic_partitions": self._owned(), **changes}
        return self.took(self.harness.ask(self.id, self.epoch, **fields))

    def took(self, answer: ConsumerGroupHeartbeatResponse) -> ConsumerGroupHeartbeatResponse:
        if answer.error_code == 0:
            self.epoch = answer.member_epoch
            if answer.assignment is not None:
                given = {
                    bytes(topic.topic_id): frozenset(topic.partitions)
                    for topic in answer.assignment.topic_partitions
                }
                if self.slow:
                    for topic, mine in self.owned.items():
                        given[topic] = given.get(topic, frozenset()) | mine
                self.owned = given
        elif answer.error_code in (25, 110):
            self.epoch, self.owned = 0, {}
        return answer

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        answer = self.harness.ask(self.id, epoch, instance_id=self.instance_id)
        self.epoch, self.owned = 0, {}
        return answer

    @property
    def count(self) -> int:
        return sum(map(len, self.owned.values()))


def settle(harness: Harness, consumers: Iterable[Consumer], rounds: int = 8) -> None:
    everybody = list(consumers)
    for _ in range(rounds):
        harness.tick(1.5)
        for consumer in everybody:
            consumer.beat()
