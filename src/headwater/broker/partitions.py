"""All replicas on this broker, following the metadata image.

The last stop of a metadata change: new topics get their logs, those of deleted topics are renamed,
leadership and configs are passed on. Handlers look up partitions here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import islice
from typing import NamedTuple

from headwater.broker.partition import Partition
from headwater.config import NodeConfig, TopicConfig
from headwater.errors import ApiError, ErrorCode
from headwater.io import Clock, Workers
from headwater.metadata import Delta, Image, PartitionState, Resource, ResourceType
from headwater.metadata.model import CLUSTER_DEFAULT
from headwater.model import ZERO_ID, TopicPartition
from headwater.observability import Log as Lines
from headwater.observability.traffic import TopicTraffic
from headwater.replication.leader import IsrProposal
from headwater.storage import LogDirs, StorageFailed, TruncationJob

# A new log costs several files, and a topic may have thousands of partitions: not all at once.
_MADE_AT_ONCE = 4


class LeaderHint(NamedTuple):
    node_id: int
    epoch: int


class Partitions:
    def __init__(
        self, config: NodeConfig, log_dirs: LogDirs, clock: Clock, workers: Workers, lines: Lines
    ) -> None:
        self._config = config
        self._log_dirs = log_dirs
        self._clock = clock
        self._workers = workers
        self._lines = lines
        self._image = Image()
        self._incarnation_id: bytes | None = None  # without whose registration nothing is led
        self._here: dict[str, dict[int, Partition]] = {}
        self.traffic = TopicTraffic()
        # By topic id and index, the partitions of the first image; only while a directory is
        # offline, where their logs may be.
        self._older: set[tuple[bytes, int]] | None = None
        self._offline: set[TopicPartition] = set()  # those that were logged
        # The disk was full when their logs were to be created: tried again when they are used.
        self._without_room: set[TopicPartition] = set()
        # Created a few at a time, or when they are used.
        self._to_make: dict[TopicPartition, None] = {}
        self._making: asyncio.Handle | None = None
        # Told of each replica whose leader, epoch or existence has changed.
        self.on_role: list[Callable[[Partition], None]] = []
        # Takes proposals of other in-sync sets for the controller.
        self.on_proposal: Callable[[Partition, IsrProposal], None] | None = None

    # Looking up

    def get(self, topic: str, index: int) -> Partition:
        """Returns the replica on this broker. Raises ApiError with the reason if there is none."""
        try:
            return self._here[topic][index]
        except KeyError:
            pass
        state = self._image.partition(topic, index)
        if state is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}-{index} does not exist")
        if self._config.node_id in state.replicas:
            tp = TopicPartition(topic, index)
            if tp in self._to_make or tp in self._without_room:
                self._to_make.pop(tp, None)
                topic_id = self._image.topics[topic].id
                self._follow_partition(topic, topic_id, index, state)
                if index in self._here.get(topic, {}):
                    return self._here[topic][index]
            raise ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"the log of {topic}-{index} is offline")
        raise ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{topic}-{index} is not on this broker")

    def find(self, tp: TopicPartition) -> Partition | None:
        """Returns the replica on this broker, if there is one."""
        return self._here.get(tp.topic, {}).get(tp.partition)

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def leader_hint(self, topic: str, index: int) -> LeaderHint | None:
        state = self._image.partition(topic, index)
        return LeaderHint(state.leader, state.leader_epoch) if state is not None else None

    def active_epoch(self, broker_id: int) -> int | None:
        """Returns the epoch of a broker that is neither fenced nor shutting down; None for any
        other."""
        broker = self._image.brokers.get(broker_id)
        return broker.epoch if broker is not None and broker.is_active else None

    def has(self, partition: Partition) -> bool:
        """Returns whether this is still the replica of its partition on this broker."""
        return self._here.get(partition.tp.topic, {}).get(partition.tp.partition) is partition

    def all(self) -> list[Partition]:
        return [partition for found in self._here.values() for partition in found.values()]

    @property
    def offline_count(self) -> int:
        """The number of replicas whose logs cannot be used."""
        return len(self._offline)

    # Following the image

    def wait_for_registration(self, incarnation_id: bytes) -> None:
        """Lets all replicas wait without a role until the metadata has the registration of this run
        of the broker. Older metadata may still name it as leader, although it has lost records in a
        crash: its followers would truncate theirs."""
        self._incarnation_id = incarnation_id

    def _is_registered(self) -> bool:
        if self._incarnation_id is None:
            return True
        broker = self._image.brokers.get(self._config.node_id)
        return broker is not None and broker.incarnation_id == self._incarnation_id

    def follow(self, image: Image, delta: Delta) -> None:
        self._image = image
        may_begin = self._incarnation_id is not None and self._is_registered()
        if may_begin:
            self._incarnation_id = None
        if self._older is None:
            self._older = set(delta.partitions) if self._log_dirs.offline() else set()
        for topic in delta.topics_deleted.values():
            for partition in self._here.pop(topic.name, {}).values():
                self._remove(partition)
            self.traffic.forget(topic.name)
            for index in topic.partitions:
                self._without_room.discard(TopicPartition(topic.name, index))
                self._offline.discard(TopicPartition(topic.name, index))
                self._to_make.pop(TopicPartition(topic.name, index), None)
        # Sorted: the order of a set of ids would not be the same in a replayed run.
        made = 0
        for topic_id, index in sorted(delta.partitions):
            found = image.topics_by_id.get(topic_id)
            if found is None:
                continue
            tp, state = TopicPartition(found.name, index), found.partitions[index]
            if self._must_be_made(tp, state):
                made += 1
                if made > _MADE_AT_ONCE or tp in self._to_make:
                    self._to_make[tp] = None
                    continue
            self._follow_partition(found.name, topic_id, index, state)
        if may_begin:
            self._begin()
        self._follow_brokers(delta)
        self._follow_configs(image, delta)
        self._make_later()

    def _begin(self) -> None:
        """Gives the replicas that were opened before the registration their roles."""
        for partition in self.all():
            state = self._image.partition(*partition.tp)
            assert state is not None, f"{partition.tp} is not in the metadata"
            if not partition.is_being_cut and self._take_role(partition, state):
                self._tell(partition)

    def _must_be_made(self, tp: TopicPartition, state: PartitionState) -> bool:
        is_here = tp.partition in self._here.get(tp.topic, ())
        is_ours = self._config.node_id in state.replicas
        return is_ours and not is_here and self._log_dirs.get(tp) is None

    def _make_later(self) -> None:
        if self._to_make and self._making is None:
            self._making = asyncio.get_running_loop().call_soon(self._make_some)

    def _make_some(self) -> None:
        self._making = None
        for tp in list(islice(self._to_make, _MADE_AT_ONCE)):
            del self._to_make[tp]
            topic = self._image.topics[tp.topic]
            self._follow_partition(
                topic.name, topic.id, tp.partition, topic.partitions[tp.partition]
            )
        self._make_later()

    def stop(self) -> None:
        """Leaves logs that are not created yet to the next start."""
        self._to_make.clear()
        if self._making is not None:
            self._making.cancel()

    def _follow_partition(
        self, name: str, topic_id: bytes, index: int, state: PartitionState
    ) -> None:
        node_id = self._config.node_id
        partition = self._here.get(name, {}).get(index)
        if node_id not in state.replicas:
            self._to_make.pop(TopicPartition(name, index), None)
            if partition is not None:
                del self._here[name][index]
                self._remove(partition)
            return
        if partition is None:
            tp = TopicPartition(name, index)
            try:
                partition = self._open(tp, topic_id)
            except (ApiError, OSError) as failure:
                if tp not in self._without_room and tp not in self._offline:
                    self._lines.error(f"{tp} cannot be opened: {failure}")
                is_offline = isinstance(failure, StorageFailed)
                (self._offline if is_offline else self._without_room).add(tp)
                return
            self._without_room.discard(tp)
            self._offline.discard(tp)
            self._here.setdefault(name, {})[index] = partition
        # While a truncation is under way, `cut_ended` does this.
        if not partition.is_being_cut and self._take_role(partition, state):
            self._tell(partition)

    def _tell(self, partition: Partition) -> None:
        for listener in self.on_role:
            listener(partition)

    def _take_role(self, partition: Partition, state: PartitionState) -> bool:
        """Passes a state on; returns whether the leader or its epoch has changed."""
        if self._incarnation_id is not None:
            return False
        node_id = self._config.node_id
        before = partition.leader or partition.follower
        if state.leader == node_id:
            partition.become_leader(
                state,
                node_id=node_id,
                lag_seconds_max=self._config.replica_lag_time_max_ms / 1000,
                active_epoch=self.active_epoch,
                now=self._clock.monotonic(),
            )
        else:
            partition.become_follower(state)
        if (partition.leader or partition.follower) is before:
            return False
        whom = "leads" if state.leader == node_id else f"follows {state.leader} in"
        self._lines.debug(f"{partition.tp}: {whom} epoch {state.leader_epoch}")
        return True

    def cut_ended(self, partition: Partition, job: TruncationJob) -> None:
        """Takes note of a truncation that is durable now, and of the role that the replica was
        given meanwhile."""
        partition.cut_ended(job)
        state = self._image.partition(*partition.tp)
        if state is not None and self.has(partition):
            self._take_role(partition, state)
            self._tell(partition)

    def _follow_brokers(self, delta: Delta) -> None:
        """Lets replicas join that were caught up before their broker was unfenced: while nothing is
        appended, no fetch brings news of them."""
        if not delta.brokers:
            return
        active = [each for each in sorted(delta.brokers) if self.active_epoch(each) is not None]
        for partition in self.all():
            leader = partition.leader
            if leader is not None and len(leader.isr) < len(leader.replicas):
                for broker in active:
                    partition.try_to_join(broker)
            partition.check_deleted()  # nobody waits for a broker that has gone

    def _open(self, tp: TopicPartition, topic_id: bytes) -> Partition:
        config = self.topic_config(tp.topic)
        log = self._log_dirs.get(tp)
        if log is not None and log.topic_id == ZERO_ID:
            self._log_dirs.assign_topic_id(tp, topic_id)
        elif log is not None and log.topic_id != topic_id:
            # A topic of this name was deleted while this broker was down.
            self._log_dirs.delete(tp)
            log = None
        if log is None:
            self._check_is_not_offline(tp, topic_id)
            log = self._log_dirs.create(tp, topic_id, config)
        log.configure(config)
        high_watermark = self._log_dirs.high_watermarks.get(tp, log.start)
        traffic = self.traffic.of(tp.topic)
        partition = Partition(tp, topic_id, log, self._workers, high_watermark, traffic)
        if self.on_proposal is not None:
            partition.on_proposal = self.on_proposal
        return partition

    def _check_is_not_offline(self, tp: TopicPartition, topic_id: bytes) -> None:
        """Refuses an empty log for a partition that may have one in a directory that is offline:
        its records would seem to be gone, and with both logs the node would not start again."""
        offline = self._log_dirs.offline()
        if offline and self._older and (topic_id, tp.partition) in self._older:
            raise StorageFailed(offline[0].path, f"it may have the log of {tp}")

    def is_lost(self, tp: TopicPartition) -> bool:
        """Returns whether the log of a replica is in a directory that is offline."""
        return tp in self._offline

    def drop_failed(self) -> list[TopicPartition]:
        """Closes the replicas in directories that have failed since the last call; returns them.
        Their logs must not be created anew elsewhere."""
        lost = self._log_dirs.drop_offline()
        for tp in lost:
            self._offline.add(tp)
            partition = self._here.get(tp.topic, {}).pop(tp.partition, None)
            if partition is not None:
                assert self._older is not None, "a replica is made of an image"
                self._older.add((partition.topic_id, tp.partition))
                partition.close()
                self._tell(partition)
        return lost

    def _remove(self, partition: Partition) -> None:
        partition.close()
        self._tell(partition)
        self._lines.debug(f"{partition.tp}: the log is deleted")
        try:
            self._log_dirs.delete(partition.tp)
        except (StorageFailed, OSError) as failure:
            self._lines.error(f"{partition.tp} cannot be removed: {failure}")

    def topic_config(self, topic: str) -> TopicConfig:
        return self._config.topic_defaults.config(
            self._image.config(Resource(ResourceType.TOPIC, topic))
        )

    def _follow_configs(self, image: Image, delta: Delta) -> None:
        own = Resource(ResourceType.BROKER, str(self._config.node_id))
        if CLUSTER_DEFAULT in delta.configs or own in delta.configs:
            changed = set(self._here)
        else:
            changed = {
                resource.name
                for resource in delta.configs
                if resource.type == ResourceType.TOPIC and resource.name in self._here
            }
        for topic in sorted(changed):
            config = self.topic_config(topic)
            for partition in self._here[topic].values():
                partition.configure(config)

    def reconfigure(self, config: NodeConfig) -> None:
        """Takes new dynamic broker settings, which topics inherit."""
        self._config = config
