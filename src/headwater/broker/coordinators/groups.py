"""The group coordinator of this broker: a driver for each partition that it leads.

A partition of `__consumer_offsets` is loaded when this broker becomes its leader and closed when it
no longer is. The topic itself is created when a client first looks for a coordinator.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, TypeVar, cast

from headwater.broker.context import Context
from headwater.broker.coordinators.driver import CoordinatorDriver, State
from headwater.broker.coordinators.records import GroupCodec
from headwater.broker.coordinators.shards import Shards, check_length
from headwater.broker.partition import Partition
from headwater.broker.partitions import Partitions
from headwater.config import NodeConfig
from headwater.coordination import Decision, Token
from headwater.errors import ApiError, ErrorCode
from headwater.groups.clients import ClientInfo
from headwater.io import Host
from headwater.metadata import Delta, Image, Resource, ResourceType
from headwater.observability import Log as Lines
from headwater.protocol import Message
from headwater.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from headwater.protocol.messages.heartbeat import HeartbeatResponse

if TYPE_CHECKING:
    from headwater.groups.shard import GroupShard
    from headwater.protocol.messages.txn_offset_commit import (
        TxnOffsetCommitRequest,
        TxnOffsetCommitResponse,
    )
    from headwater.storage import Verification

R = TypeVar("R", bound=Message)
T = TypeVar("T")

OFFSETS_TOPIC = "__consumer_offsets"


def client_of(context: Context) -> ClientInfo:
    """Returns the client of a request as groups show it."""
    return ClientInfo(context.client_id or "", f"/{context.connection.stream.peer.host}")


class ImageTopics:
    """The topics of the cluster, as groups see them."""

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
        """Returns, for each partition, the racks of its replicas."""
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
    """Routes requests to the shard of their group, and follows the metadata."""

    def __init__(
        self, config: NodeConfig, host: Host, partitions: Partitions, lines: Lines
    ) -> None:
        self._config = config
        self._host = host
        self._lines = lines
        self._codec = GroupCodec()
        self.shards: Shards[GroupShard] = Shards(OFFSETS_TOPIC, partitions, self._new_driver)
        self._image = Image()

    # Requests

    def partition_for(self, group_id: str) -> int | None:
        """Returns the partition that coordinates a group; None while the topic does not exist."""
        return self.shards.partition_for(group_id)

    def _driver(self, group_id: str) -> CoordinatorDriver[GroupShard]:
        check_length(group_id)
        return self.shards.find(group_id)

    def ask(
        self, group_id: str, response: type[R], decide: Callable[[GroupShard, Token], Decision]
    ) -> R | Awaitable[R]:
        """Returns the response of a group's shard, which is of this class, now or later."""
        often_writes = response not in (HeartbeatResponse, ConsumerGroupHeartbeatResponse)
        answer = self._driver(group_id).ask(decide, often_writes=often_writes)
        return cast("R | Awaitable[R]", answer)

    def ask_in_transaction(
        self,
        request: TxnOffsetCommitRequest,
        guard: Verification | None,
        decide: Callable[[GroupShard, Token], Decision],
    ) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
        """Returns the response to a commit that is part of a producer's transaction."""
        answer = self._driver(request.group_id).ask_in_transaction(
            decide,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            guard=guard,
        )
        return cast("TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]", answer)

    def write_marker(
        self,
        index: int,
        producer_id: int,
        producer_epoch: int,
        *,
        commits: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> Awaitable[None] | None:
        """Ends a producer's transaction in one partition of the topic. Returns None if that is
        committed, else an awaitable."""
        driver = self.shards.drivers.get(index)
        if driver is None:
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return driver.write_marker(
            producer_id,
            producer_epoch,
            commits=commits,
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )

    def read(
        self,
        group_id: str,
        look: Callable[[GroupShard], T],
        refused: Callable[[ApiError], T],
    ) -> T | Awaitable[T]:
        """Returns what `look` finds in a group's shard, once it is committed; what `refused` makes
        of the error if it is not."""
        try:
            seen = self._driver(group_id).read(look)
        except ApiError as refusal:
            return refused(refusal)
        return _or_refused(seen, refused) if isinstance(seen, Awaitable) else seen

    def loaded(self) -> list[GroupShard]:
        """Returns the shards of this broker, to look at what they have now. What they have may not
        be committed yet."""
        return self.shards.loaded()

    def read_all(self, look: Callable[[GroupShard], T]) -> list[T | Awaitable[T]]:
        """Returns what `look` finds in each shard of this broker."""
        return [driver.read(look) for driver in self.shards.drivers.values()]

    def check_consumer_protocol(self) -> None:
        """Raises ApiError if the newer protocol is switched off."""
        if "consumer" not in self._config.group_coordinator_rebalance_protocols:
            raise ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "group.coordinator.rebalance.protocols of this node does not include consumer",
            )

    # Following the metadata

    def follow(self, image: Image, delta: Delta) -> None:
        self._image = image
        self.shards.follow(image, delta)
        if delta.topics_created or delta.topics_deleted or delta.partitions:
            topics = ImageTopics(image)
            deleted = {gone.name for gone in delta.topics_deleted.values()}
            now = self._host.clock.monotonic()
            for driver in self.shards.drivers.values():
                driver.run(lambda machine: machine.on_metadata(topics, deleted, now))
        self._follow_configs(image, delta)

    def on_role(self, partition: Partition) -> None:
        """Follows a change of leadership that comes after its metadata, as that of a partition
        whose log had to be truncated first."""
        self.shards.on_role(partition)

    def _new_driver(self, partition: Partition) -> CoordinatorDriver[GroupShard]:
        return CoordinatorDriver(
            partition,
            self._make_machine,
            self._on_loaded,
            self._codec,
            self._host.clock,
            self._host.workers,
            self._lines,
            commit_timeout_ms=self._config.offsets_commit_timeout_ms,
            loads=self.shards.loads,
        )

    def _make_machine(self) -> GroupShard:
        # Imported here: a node without groups starts without loading their machines.
        from headwater.groups.settings import GroupSettings
        from headwater.groups.shard import GroupShard

        return GroupShard(GroupSettings.of(self._config), self._host.random)

    def _on_loaded(self, machine: GroupShard) -> None:
        """Gives groups what is in the metadata and not in their log: the topics, which may have
        changed during the load, and the groups' settings."""
        machine.on_metadata(ImageTopics(self._image), set(), self._host.clock.monotonic())
        for resource, overrides in self._image.configs.items():
            if resource.type == ResourceType.GROUP:
                machine.on_group_config(resource.name, overrides)

    def _follow_configs(self, image: Image, delta: Delta) -> None:
        for resource in sorted(delta.configs):
            if resource.type == ResourceType.GROUP:
                overrides = image.config(Resource(ResourceType.GROUP, resource.name))
                index = self.partition_for(resource.name)
                driver = self.shards.drivers.get(index) if index is not None else None
                if driver is not None and driver.state is State.ACTIVE:
                    driver.machine.on_group_config(resource.name, overrides)

    def stop(self) -> list[asyncio.Task[None]]:
        """Closes all drivers; returns the tasks that are still ending."""
        return self.shards.stop()


async def _or_refused(seen: Awaitable[T], refused: Callable[[ApiError], T]) -> T:
    try:
        return await seen
    except ApiError as refusal:
        return refused(refusal)
