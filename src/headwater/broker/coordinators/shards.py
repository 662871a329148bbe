"""The shards of a coordinator on this broker: a driver for each partition of its topic it leads.

A partition is loaded when this broker becomes its leader and closed when it no longer is. Groups
and transactions have one object of this class each.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Generic, TypeVar

from headwater.broker.coordinators.driver import CoordinatorDriver, Machine, State
from headwater.broker.coordinators.hashing import is_too_long, partition_of
from headwater.broker.partition import Partition
from headwater.broker.partitions import Partitions
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Delta, Image
from headwater.observability.measures import Window

M = TypeVar("M", bound=Machine)


class Shards(Generic[M]):
    def __init__(
        self,
        topic: str,
        partitions: Partitions,
        new_driver: Callable[[Partition], CoordinatorDriver[M]],
    ) -> None:
        self.topic = topic
        self.drivers: dict[int, CoordinatorDriver[M]] = {}  # by partition
        self.loads = Window()  # seconds for each load of a partition
        self._partitions = partitions
        self._new_driver = new_driver
        self._image = Image()

    def partition_for(self, key: str) -> int | None:
        """Returns the partition of a group or a transactional id; None while the topic does not
        exist."""
        topic = self._image.topics.get(self.topic)
        return partition_of(key, len(topic.partitions)) if topic is not None else None

    def find(self, key: str) -> CoordinatorDriver[M]:
        index = self.partition_for(key)
        found = None if index is None else self.drivers.get(index)
        if found is None:  # another broker leads it, or the topic does not exist yet
            raise ApiError(ErrorCode.NOT_COORDINATOR)
        return found

    def loaded(self) -> list[M]:
        """Returns the machines that are loaded."""
        drivers = self.drivers.values()
        return [driver.machine for driver in drivers if driver.state is State.ACTIVE]

    def states(self) -> Counter[State]:
        """Returns how many partitions are in each state."""
        return Counter(driver.state for driver in self.drivers.values())

    # Following the metadata

    def follow(self, image: Image, delta: Delta) -> None:
        self._image = image
        topic = image.topics.get(self.topic)
        for index, driver in list(self.drivers.items()):
            if topic is None or driver.topic_id != topic.id:
                self._close(index)
        if topic is not None:
            for topic_id, index in sorted(delta.partitions):
                if topic_id == topic.id:
                    self._follow_partition(index)

    def on_role(self, partition: Partition) -> None:
        """Follows a change of leadership that comes after its metadata, as that of a partition
        whose log had to be truncated first."""
        if partition.tp.topic == self.topic:
            self._follow_partition(partition.tp.partition)

    def _follow_partition(self, index: int) -> None:
        driver = self.drivers.get(index)
        try:
            partition = self._partitions.get(self.topic, index)
        except ApiError:  # this broker has no replica, or no longer
            self._close(index)
            return
        leader = partition.leader
        if driver is not None and (leader is None or leader.epoch != driver.epoch):
            self._close(index)
        if leader is not None and index not in self.drivers:
            driver = self.drivers[index] = self._new_driver(partition)
            driver.start()

    def _close(self, index: int) -> None:
        driver = self.drivers.pop(index, None)
        if driver is not None:
            driver.close()

    def stop(self) -> list[asyncio.Task[None]]:
        """Closes all drivers; returns the tasks that are still ending."""
        ending = [task for driver in self.drivers.values() for task in driver.close()]
        self.drivers.clear()
        return ending


def check_length(key: str) -> None:
    """Refuses an id that no record can have, before one is written: the append would fail, and the
    shard would be loaded again."""
    if is_too_long(key):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "no record can have so long an id")
