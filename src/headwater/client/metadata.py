"""The metadata of the cluster: brokers, topics, and the leaders of partitions.

A machine: responses in, changes out. Brokers answer from images of different age, so what is older
than what is known is ignored: within one topic id, leader epochs never go back (KIP-320). Another
id under the same name is another topic.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from headwater.errors import ErrorCode
from headwater.io import Address
from headwater.model import NO_EPOCH, NO_NODE, ZERO_ID, TopicPartition
from headwater.protocol.messages.describe_cluster import DescribeClusterResponse
from headwater.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


@dataclass(frozen=True, slots=True)
class Broker:
    node_id: int
    address: Address
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class Partition:
    topic: str
    index: int
    leader: int  # NO_NODE while there is none
    leader_epoch: int  # NO_EPOCH from brokers that do not report it
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes  # ZERO_ID from brokers older than Kafka 2.8
    partitions: tuple[Partition, ...]  # by index
    is_internal: bool = False


@dataclass(frozen=True, slots=True)
class Change:
    """The changes of an update, for listeners. Names of topics, in order."""

    topics: tuple[str, ...] = ()  # new, or with new partitions or leaders
    recreated: tuple[str, ...] = ()  # they have another id than before
    gone: tuple[str, ...] = ()
    brokers: bool = False

    def __bool__(self) -> bool:
        return bool(self.topics or self.recreated or self.gone or self.brokers)


@dataclass(slots=True)
class ClusterMetadata:
    cluster_id: str | None = None
    controller_id: int = NO_NODE
    brokers: dict[int, Broker] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    names: dict[bytes, str] = field(default_factory=dict)  # by topic id
    # Topics that were requested and refused, with the code.
    errors: dict[str, int] = field(default_factory=dict)
    # Whether a partition had no leader at the last update.
    leaderless: bool = False

    def partition(self, tp: TopicPartition) -> Partition | None:
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def leader(self, tp: TopicPartition) -> int | None:
        """Returns the leader's node id, or None while none is known."""
        partition = self.partition(tp)
        return None if partition is None or partition.leader == NO_NODE else partition.leader

    # Updates

    def update(self, answer: MetadataResponse, *, is_all: bool = False) -> Change:
        """Applies a response. `is_all`: it is about all topics, so others are gone."""
        brokers = {
            each.node_id: Broker(each.node_id, Address(each.host, each.port), each.rack)
            for each in answer.brokers
        }
        # A broker that has just started may not know of any, itself included.
        brokers_changed = bool(brokers) and brokers != self.brokers
        if brokers:
            self.brokers = brokers
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = answer.controller_id
        changed: list[str] = []
        recreated: list[str] = []
        gone: list[str] = []
        seen = set()
        for each in answer.topics:
            name = each.name if each.name is not None else self.names.get(each.topic_id)
            if name is None:
                continue
            seen.add(name)
            if each.error_code:
                if self._refused(name, each.error_code):
                    gone.append(name)
                continue
            before = self.topics.get(name)
            after = _merged(before, each, name)
            self.errors.pop(name, None)
            if after == before:
                continue
            self._put(after)
            changed.append(name)
            if before is not None and not _is_same(before.topic_id, after.topic_id):
                recreated.append(name)
        if is_all:
            for name in [name for name in self.topics if name not in seen]:
                self.forget(name)
                gone.append(name)
        self.leaderless = any(
            partition.leader == NO_NODE
            for each in answer.topics
            if each.name in self.topics
            for partition in self.topics[each.name].partitions
        )
        return Change(tuple(changed), tuple(recreated), tuple(gone), brokers_changed)

    def update_controllers(self, answer: DescribeClusterResponse) -> Change:
        """Applies a controller's response, for clients that talk to controllers: these are the
        nodes then, and `controller_id` is the active one."""
        nodes = {
            each.broker_id: Broker(each.broker_id, Address(each.host, each.port))
            for each in answer.brokers
        }
        changed = nodes != self.brokers or answer.controller_id != self.controller_id
        self.brokers = nodes
        self.cluster_id = answer.cluster_id or self.cluster_id
        self.controller_id = answer.controller_id
        return Change(brokers=changed)

    def _refused(self, name: str, code: int) -> bool:
        """Notes why a topic was refused; returns whether it was known before."""
        self.errors[name] = code
        # During an election, or if a response is late, what is known may still be right.
        if code not in _GONE or name not in self.topics:
            return False
        self.forget(name)
        return True

    def _put(self, topic: Topic) -> None:
        before = self.topics.get(topic.name)
        if before is not None:
            self.names.pop(before.topic_id, None)
        self.topics[topic.name] = topic
        if topic.topic_id != ZERO_ID:
            self.names[topic.topic_id] = topic.name

    def learn_leader(self, tp: TopicPartition, leader: int, leader_epoch: int) -> bool:
        """Applies a leader hint (KIP-951); returns whether it was new."""
        partition = self.partition(tp)
        if partition is None or leader < 0 or leader_epoch <= partition.leader_epoch:
            return False
        topic = self.topics[tp.topic]
        partitions = list(topic.partitions)
        partitions[tp.partition] = replace(partition, leader=leader, leader_epoch=leader_epoch)
        self.topics[tp.topic] = replace(topic, partitions=tuple(partitions))
        return True

    def learn_broker(self, broker: Broker) -> bool:
        """Adds a broker named in a hint or as a coordinator; returns whether it was new."""
        before = self.brokers.get(broker.node_id)
        if before is not None and before.address == broker.address:
            return False
        self.brokers[broker.node_id] = broker
        return True

    def forget(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None:
            self.names.pop(topic.topic_id, None)


# The topic does not exist or is not allowed: what was known of it is void.
_GONE = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)


def _is_same(one: bytes, other: bytes) -> bool:
    """Returns whether two ids may be of one topic. Old brokers report none."""
    return ZERO_ID in (one, other) or one == other


def _merged(before: Topic | None, answer: MetadataResponseTopic, name: str) -> Topic:
    known: tuple[Partition, ...] = ()
    if before is not None and _is_same(before.topic_id, answer.topic_id):
        known = before.partitions
    partitions = []
    for each in _in_order(answer.partitions):
        index = each.partition_index
        old = known[index] if index < len(known) else None
        if old is not None and NO_EPOCH < each.leader_epoch < old.leader_epoch:
            partitions.append(old)
        else:
            partitions.append(_partition(name, each))
    if answer.topic_id != ZERO_ID:
        # Partitions are never removed, so a response with fewer of them is an old one. Without
        # ids it may as well be about a new topic of the same name.
        partitions += known[len(partitions) :]
    return Topic(name, answer.topic_id, tuple(partitions), answer.is_internal)


def _in_order(
    partitions: Iterable[MetadataResponsePartition],
) -> Iterable[MetadataResponsePartition]:
    """Yields partitions by index, up to the first that is missing: a tuple is indexed by number."""
    in_order = sorted(partitions, key=lambda each: each.partition_index)
    for index, each in enumerate(in_order):
        if each.partition_index != index:
            return
        yield each


def _partition(topic: str, answer: MetadataResponsePartition) -> Partition:
    return Partition(
        topic,
        answer.partition_index,
        answer.leader_id if answer.leader_id >= 0 else NO_NODE,
        answer.leader_epoch,
        tuple(answer.replica_nodes),
        tuple(answer.isr_nodes),
        tuple(answer.offline_replicas),
    )
