"""The group coordinator of this broker: its shards, and who asks which of them.

A shard is a partition of `__consumer_offsets` that is led here. It is loaded when leadership comes
and closed when it goes. The topic itself is made when somebody first asks for a coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar, cast

from headwater.broker.context import Context
from headwater.broker.coordinators.driver import CoordinatorDriver, State
from headwater.broker.coordinators.hashing import partition_of
from headwater.broker.coordinators.records import GroupCodec
from headwater.broker.partitions import Partitions
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.groups.decision import ClientInfo, Decision, Token
from headwater.io import Host
from headwater.metadata import Delta, Image, Resource, ResourceType
from headwater.observability import Log as Lines
from headwater.protocol import Message

if TYPE_CHECKING:
    from headwater.groups.shard import GroupShard

R = TypeVar("R", bound=Message)

OFFSETS_TOPIC = "__consumer_offsets"


def client_of(context: Context) -> ClientInfo:
    """Who a member is, as groups show it."""
    return ClientInfo(context.client_id or "", f"/{context.connection.stream.peer.host}")


class ImageTopics:
    """The cluster's topics, as groups look at them."""

    __slots__ = ("_image",)

    def __init__(self, image: Image) -> None:
        self._image = image

    def partitions(self, name: str) -> int | None:
        topic = self._image.topics.get(name)
        return len(topic.partitions) if topic is not None else None

    def id(self, name: str) -> bytes | None:
        topic = self._image.topics.get(name)
        return topic.id if topic is not None else None

    def name(self, topic_id: bytes) -> str | None:
        topic = self._image.topics_by_id.get(topic_id)
        return topic.name if topic is not None else None

    def names(self) -> Iterable[str]:
        return self._image.topics

    def racks(self, name: str) -> list[frozenset[str]]:
        """For each partition, the racks that have a replica of it."""
        topic = self._image.topics.get(name)
        if topic is None:
            return []
        brokers = self._image.brokers
        return [
            frozenset(
                rack
                for replica in topic.partitions[index].replicas
                if replica in brokers and (rack := brokers[replica].rack) is not None
            )
            for index in range(len(topic.partitions))
        ]


class GroupCoordinator:
    def __init__(
        self, config: NodeConfig, host: Host, partitions: Partitions, lines: Lines
    ) -> None:
        self._config = config
        self._host = host
        self._partitions = partitions
        self._lines = lines
        self._codec = GroupCodec()
        self._shards: dict[int, CoordinatorDriver[GroupShard]] = {}
        self._image = Image()

    # Finding

    def partition_for(self, group_id: str) -> int | None:
        """The partition that coordinates a group; None while the topic does not exist."""
        topic = self._image.topics.get(OFFSETS_TOPIC)
        return partition_of(group_id, len(topic.partitions)) if topic is not None else None

    def shard(self, group_id: str) -> CoordinatorDriver[GroupShard]:
        index = self.partition_for(group_id)
        found = None if index is None else self._shards.get(index)
        if found is None:  # led elsewhere, or the topic is still to be made
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        found.check()
        return found

    def shards(self) -> list[CoordinatorDriver[GroupShard]]:
        return list(self._shards.values())

    def ask(
        self, group_id: str, answer: type[R], call: Callable[[GroupShard, Token], Decision]
    ) -> R | Awaitable[R]:
        """The answer of a group's shard, which is of this class, at once or later."""
        return cast("R | Awaitable[R]", self.shard(group_id).ask(call))

    def check_consumer_protocol(self) -> None:
        """The newer protocol can be switched off."""
        if "consumer" not in self._config.group_coordinator_rebalance_protocols:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "group.coordinator.rebalance.protocols of this node does not have consumer",
            )

    # Following the metadata

    def follow(self, image: Image, delta: Delta) -> None:
        self._image = image
        topic = image.topics.get(OFFSETS_TOPIC)
        if topic is not None:
            for topic_id, index in sorted(delta.partitions):
                if topic_id == topic.id:
                    self._follow_partition(index)
        if delta.topics_created or delta.topics_deleted or delta.partitions:
            topics = ImageTopics(image)
            deleted = {gone.name for gone in delta.topics_deleted.values()}
            now = self._host.clock.monotonic()
            for shard in self._shards.values():
                shard.run(lambda machine: machine.on_metadata(topics, deleted, now))
        self._follow_configs(image, delta)

    def _follow_partition(self, index: int) -> None:
        try:
            partition = self._partitions.get(OFFSETS_TOPIC, index)
        except ApiError:
            return
        shard = self._shards.get(index)
        leader = partition.leader
        if shard is not None and (leader is None or leader.epoch != shard.epoch):
            del self._shards[index]
            shard.close()
            shard = None
        if shard is None and leader is not None:
            shard = CoordinatorDriver(
                partition,
                self._make_machine,
                self._on_loaded,
                self._codec,
                self._host.clock,
                self._host.workers,
                self._lines,
            )
            self._shards[index] = shard
            shard.start()

    def _make_machine(self) -> GroupShard:
        # Here, not above: a node that nobody joins starts without the machines of groups.
        from headwater.groups.settings import GroupSettings
        from headwater.groups.shard import GroupShard

        machine = GroupShard(GroupSettings.of(self._config), self._host.random)
        machine.on_metadata(ImageTopics(self._image), set(), self._host.clock.monotonic())
        return machine

    def _on_loaded(self, machine: GroupShard) -> None:
        """The settings of groups are in the metadata, not in their log."""
        for resource, overrides in self._image.configs.items():
            if resource.type == ResourceType.GROUP:
                machine.on_group_config(resource.name, overrides)

    def _follow_configs(self, image: Image, delta: Delta) -> None:
        for resource in sorted(delta.configs):
            if resource.type == ResourceType.GROUP:
                overrides = image.config(Resource(ResourceType.GROUP, resource.name))
                index = self.partition_for(resource.name)
                shard = self._shards.get(index) if index is not None else None
                if shard is not None and shard.state is State.ACTIVE:
                    shard.machine.on_group_config(resource.name, overrides)

    def stop(self) -> list[asyncio.Task[None]]:
        """Gives the tasks that end with it."""
        ending = [task for shard in self._shards.values() for task in shard.close()]
        self._shards.clear()
        return ending
