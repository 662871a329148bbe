"""Carries the markers of ended transactions to the leaders of their partitions.

A coordinator that has committed the end of a transaction hands over its partitions here, and is
told which of them have their marker. Partitions that this broker leads are written at once, in the
same turn of the loop. For every other broker there is one request in flight, and the next one has
what has gathered meanwhile. Failed requests are retried, with the leader of that time, until the
marker is written, the partition is deleted, or the shard has moved: its next coordinator starts
over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from headwater.broker.broker_channel import BrokerChannel
from headwater.errors import ErrorCode
from headwater.io import Host
from headwater.metadata import Delta, Image
from headwater.model import TopicPartition
from headwater.net.peer import PeerError
from headwater.observability import Log as Lines
from headwater.observability import printable
from headwater.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

if TYPE_CHECKING:
    from headwater.transactions.shard import SendMarkers

# Markers of one request; the rest follows in the next one.
_MARKERS_MAX = 1000
_BACKOFF_SECONDS = 0.01
_BACKOFF_SECONDS_MAX = 0.5
_NAME_LENGTH_MAX = 200

Codes = Mapping[TopicPartition, int]
WriteHere = Callable[[WritableTxnMarker, Callable[[Codes], None]], None]
"""Writes a marker to partitions that this broker leads. Calls back, possibly at once, with an error
code for each of them when they are committed."""

# The producer could not have written to such a partition.
_NEVER_WRITTEN = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
# Somebody else has ended this transaction, or coordinates it now.
_OUTDATED = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class Shard(Protocol):
    """The shard that has ended a transaction."""

    epoch: int  # of the coordinator

    @property
    def is_current(self) -> bool:
        """Whether it still waits for these markers."""

    @property
    def is_writable(self) -> bool:
        """Whether the end of the transaction could be written now."""

    def on_written(self, markers: SendMarkers, partitions: Sequence[TopicPartition]) -> None: ...


class _Errand:
    """A marker on its way to some partitions of a transaction."""

    __slots__ = ("attempts", "markers", "partitions", "shard", "written")

    def __init__(
        self,
        shard: Shard,
        markers: SendMarkers,
        partitions: Sequence[TopicPartition],
        *,
        attempts: int = 0,
    ) -> None:
        self.shard = shard
        self.markers = markers
        self.partitions = partitions
        self.written: Sequence[TopicPartition] = ()  # and not yet reported to the shard
        self.attempts = attempts

    def marker(self) -> WritableTxnMarker:
        topics: dict[str, WritableTxnMarkerTopic] = {}
        for name, index in self.partitions:
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = WritableTxnMarkerTopic(name=name, partition_indexes=[])
            topic.partition_indexes.append(index)
        markers = self.markers
        return WritableTxnMarker(
            producer_id=markers.producer_id,
            producer_epoch=markers.producer_epoch,
            transaction_result=markers.commits,
            topics=list(topics.values()),
            coordinator_epoch=self.shard.epoch,
            transaction_version=markers.transaction_version,
        )


class MarkerSender:
    def __init__(
        self,
        node_id: int,
        host: Host,
        channel: BrokerChannel,
        write_here: WriteHere,
        lines: Lines,
    ) -> None:
        self._node_id = node_id
        self._random = host.random
        self._channel = channel
        self._write_here = write_here
        self._lines = lines
        self._image = Image()
        self._outboxes: dict[int, list[_Errand]] = {}  # by destination
        self._in_flight: set[int] = set()
        self._paused: dict[_Errand, asyncio.TimerHandle] = {}
        self._without_leader: list[_Errand] = []
        self._is_stopped = False

    def send(self, shard: Shard, markers: SendMarkers) -> None:
        """Writes the markers of a transaction; the shard may hear of it before this returns."""
        self._place(_Errand(shard, markers, markers.partitions))

    def follow(self, image: Image, delta: Delta) -> None:
        """Sends what waits once more if a leader may have changed."""
        self._image = image
        if not (delta.partitions or delta.topics_deleted or delta.brokers):
            return
        waiting, self._without_leader = self._without_leader, []
        for errand in waiting:
            self._place(errand)
        paused, self._paused = self._paused, {}
        for errand, timer in paused.items():
            timer.cancel()
            self._try_again(errand)

    def stop(self) -> None:
        self._is_stopped = True
        for timer in self._paused.values():
            timer.cancel()
        self._paused.clear()
        self._outboxes.clear()

    # To the leaders

    def _place(self, errand: _Errand) -> None:
        """Finds the leaders of the partitions, and writes to them or queues for them."""
        if self._is_stopped or not errand.shard.is_current:
            return
        deleted: list[TopicPartition] = []
        found: dict[int | None, list[TopicPartition]] = {}
        brokers = self._image.brokers
        for tp in errand.partitions:
            state = self._image.partition(tp.topic, tp.partition)
            if state is None:
                deleted.append(tp)
                continue
            leader = brokers.get(state.leader)
            at = state.leader if leader is not None and not leader.fenced else None
            found.setdefault(at, []).append(tp)
        for node_id, partitions in found.items():
            part = errand
            if len(partitions) < len(errand.partitions):
                part = _Errand(errand.shard, errand.markers, partitions, attempts=errand.attempts)
            if node_id is None:
                self._without_leader.append(part)
            elif node_id == self._node_id:
                self._write_here(part.marker(), partial(self._on_codes, part))
            else:
                self._outboxes.setdefault(node_id, []).append(part)
                self._flush(node_id)
        if deleted:
            self._report(errand, deleted)

    def _flush(self, node_id: int) -> None:
        if node_id in self._in_flight:
            return
        queued = [each for each in self._outboxes.pop(node_id, ()) if each.shard.is_current]
        if len(queued) > _MARKERS_MAX:
            self._outboxes[node_id] = queued[_MARKERS_MAX:]
        errands = queued[:_MARKERS_MAX]
        if errands:
            self._in_flight.add(node_id)
            request = WriteTxnMarkersRequest(markers=[errand.marker() for errand in errands])
            self._channel.post(node_id, request, partial(self._on_response, node_id, errands))

    def _on_response(
        self,
        node_id: int,
        errands: Iterable[_Errand],
        response: WriteTxnMarkersResponse | None,
        error: PeerError | None,
    ) -> None:
        self._in_flight.discard(node_id)
        if self._is_stopped:
            return
        if response is None:
            self._lines.debug(f"markers were not written by node {node_id}: {error}")
            for errand in errands:
                self._pause(errand)
        else:
            codes: dict[int, dict[TopicPartition, int]] = {}
            for marker in response.markers:
                of_producer = codes.setdefault(marker.producer_id, {})
                for topic in marker.topics:
                    for each in topic.partitions:
                        tp = TopicPartition(topic.name, each.partition_index)
                        of_producer[tp] = each.error_code
            for errand in errands:
                self._on_codes(errand, codes.get(errand.markers.producer_id, {}))
        self._flush(node_id)

    # Outcomes

    def _on_codes(self, errand: _Errand, codes: Codes) -> None:
        if self._is_stopped or not errand.shard.is_current:
            return
        written: list[TopicPartition] = []
        again: list[TopicPartition] = []
        for tp in errand.partitions:
            code = codes.get(tp, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code == ErrorCode.NONE or code in _NEVER_WRITTEN:
                written.append(tp)
            elif code in _OUTDATED:
                self._lines.warn(
                    f"{self._name(errand)}: {tp} refuses the marker of epoch "
                    f"{errand.markers.producer_epoch}: {ErrorCode(code).name}"
                )
            else:
                self._lines.debug(f"{self._name(errand)}: {tp} has no marker yet: error {code}")
                again.append(tp)
        if again:
            self._pause(_Errand(errand.shard, errand.markers, again, attempts=errand.attempts))
        if written:
            self._report(errand, written)

    def _report(self, errand: _Errand, written: Sequence[TopicPartition]) -> None:
        if errand.shard.is_writable:
            errand.shard.on_written(errand.markers, written)
        else:
            # A failed append would have the shard loaded again, and the markers written again.
            report = _Errand(errand.shard, errand.markers, (), attempts=errand.attempts)
            report.written = written
            self._pause(report)

    def _pause(self, errand: _Errand) -> None:
        delay = min(_BACKOFF_SECONDS_MAX, _BACKOFF_SECONDS * 2.0 ** min(errand.attempts, 16))
        errand.attempts += 1
        self._paused[errand] = asyncio.get_running_loop().call_later(
            delay * self._random.uniform(0.8, 1.2), self._on_pause_ended, errand
        )

    def _on_pause_ended(self, errand: _Errand) -> None:
        del self._paused[errand]
        self._try_again(errand)

    def _try_again(self, errand: _Errand) -> None:
        if not errand.shard.is_current:
            return
        if errand.written:
            self._report(errand, errand.written)
        else:
            self._place(errand)

    def _name(self, errand: _Errand) -> str:
        return f"transaction of {printable(errand.markers.transactional_id, _NAME_LENGTH_MAX)}"
