"""Log directories of replicas on their way to the controller (AssignReplicasToDirs, KIP-858).

The metadata says in which directory a broker keeps each replica. A broker that has several chooses
one when it creates a log, and tells the controller: if a directory fails, the controller has to
know whose leaders it must replace. The metadata is compared with the logs whenever it changes and
when a log has moved; what differs is sent, many partitions at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from headwater.broker.isr_changes import Channel
from headwater.config import NodeConfig
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Delta, Image
from headwater.metadata.model import DIRECTORIES_RESERVED, DIRECTORY_LOST
from headwater.model import TopicPartition
from headwater.observability import Log as Lines
from headwater.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)
from headwater.storage import LogDirs

_SENT_MAX = 2000  # in one request
_TIMEOUT_MS = 30_000
_GATHER_SECONDS = 0.05  # the replicas of a new topic go together
_RETRY_SECONDS = 1.0


class DirectoryAssignments:
    def __init__(
        self,
        config: NodeConfig,
        log_dirs: LogDirs,
        channel: Channel,
        lines: Lines,
        *,
        broker_epoch: Callable[[], int],
        is_lost: Callable[[TopicPartition], bool],
    ) -> None:
        """`is_lost` tells whether the log of a replica is in a directory that is offline."""
        self._node_id = config.node_id
        self._log_dirs = log_dirs
        self._channel = channel
        self._lines = lines
        self._broker_epoch = broker_epoch
        self._is_lost = is_lost
        self._image = Image()
        # Whether this broker is registered with directories: below metadata.version 3.7-IV2 none
        # is, and until a broker has registered again after a raise, the controller would take its
        # directories for offline ones.
        self._has_directories = False
        self._unsure: dict[TopicPartition, None] = {}  # to be compared
        self._news = asyncio.Event()

    def follow(self, image: Image, delta: Delta) -> None:
        self._image = image
        own = image.brokers.get(self._node_id)
        had_directories = self._has_directories
        self._has_directories = own is not None and bool(own.log_dirs)
        if not self._has_directories:
            return
        if not had_directories:
            for each, index, state in image.partitions():
                if self._node_id in state.replicas:
                    self.compare(TopicPartition(each.name, index))
            return
        for topic_id, index in sorted(delta.partitions):
            topic = image.topics_by_id.get(topic_id)
            if topic is not None and self._node_id in topic.partitions[index].replicas:
                self.compare(TopicPartition(topic.name, index))

    def compare(self, tp: TopicPartition) -> None:
        """Looks at a replica that may have got another directory."""
        self._unsure[tp] = None
        self._news.set()

    async def run(self) -> None:
        """Sends what differs, until it is cancelled."""
        while True:
            await self._news.wait()
            self._news.clear()
            await asyncio.sleep(_GATHER_SECONDS)
            if not await self._send_some():
                await asyncio.sleep(_RETRY_SECONDS)
                self._news.set()

    async def _send_some(self) -> bool:
        """Returns whether all is settled; otherwise it is to be called again later."""
        if not self._has_directories:
            self._unsure.clear()
            return True
        wrong = self._wrong()
        if wrong:
            try:
                response = await self._channel.ask(self._request(wrong), timeout_ms=_TIMEOUT_MS)
                assert isinstance(response, AssignReplicasToDirsResponse)
                if response.error_code:
                    raise ApiError(ErrorCode(response.error_code), "AssignReplicasToDirs")
            except ApiError as refusal:
                self._lines.debug(f"the controller did not take directories of replicas: {refusal}")
                return False
            # A partition that is refused was deleted or reassigned: the metadata will say so.
            for tp in wrong:
                self._unsure.pop(tp, None)
        return not self._unsure

    def _wrong(self) -> dict[TopicPartition, bytes]:
        """Returns replicas with the directory that the metadata should name."""
        wrong: dict[TopicPartition, bytes] = {}
        for tp in tuple(self._unsure):
            state = self._image.partition(*tp)
            if state is None or self._node_id not in state.replicas:
                del self._unsure[tp]
                continue
            known, log = state.directory_of(self._node_id), self._log_dirs.get(tp)
            if log is not None:
                wanted = self._log_dirs.directory_of(log).id
            elif self._is_lost(tp):
                # A directory that is named is known to be offline from the registration.
                wanted = DIRECTORY_LOST if known in DIRECTORIES_RESERVED else known
            else:
                continue  # not created yet
            if wanted == known:
                del self._unsure[tp]
            elif len(wrong) < _SENT_MAX:
                wrong[tp] = wanted
        return wrong

    def _request(self, wrong: dict[TopicPartition, bytes]) -> AssignReplicasToDirsRequest:
        places: dict[bytes, dict[bytes, list[int]]] = {}
        for tp, directory in wrong.items():
            topic_id = self._image.topics[tp.topic].id
            places.setdefault(directory, {}).setdefault(topic_id, []).append(tp.partition)
        return AssignReplicasToDirsRequest(
            broker_id=self._node_id,
            broker_epoch=self._broker_epoch(),
            directories=[
                AssignReplicasToDirsRequestDirectoryData(
                    id=directory,
                    topics=[
                        AssignReplicasToDirsRequestTopicData(
                            topic_id=topic_id,
                            partitions=[
                                AssignReplicasToDirsRequestPartitionData(partition_index=index)
                                for index in indexes
                            ],
                        )
                        for topic_id, indexes in topics.items()
                    ],
                )
                for directory, topics in places.items()
            ],
        )
