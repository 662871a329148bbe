"""WriteTxnMarkers: a coordinator ends transactions in partitions that this broker leads."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from headwater.broker.authorization import is_allowed
from headwater.broker.context import Context, Later
from headwater.broker.marker_writer import Codes
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from headwater.broker.broker import Broker


def handle(
    broker: Broker, context: Context, request: WriteTxnMarkersRequest
) -> WriteTxnMarkersResponse | Later:
    may_alter = is_allowed(broker, context, Operation.ALTER, AclResource.CLUSTER, tentative=True)
    if not may_alter and not is_allowed(
        broker, context, Operation.CLUSTER_ACTION, AclResource.CLUSTER
    ):
        return _refused(request)
    answer = _Answer(len(request.markers))
    for marker in request.markers:
        broker.marker_writer.write(marker, partial(answer.add, marker.producer_id))
    return answer.response()


def _refused(request: WriteTxnMarkersRequest) -> WriteTxnMarkersResponse:
    answer = _Answer(len(request.markers))
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    for marker in request.markers:
        answer.add(
            marker.producer_id,
            {
                TopicPartition(topic.name, index): code
                for topic in marker.topics
                for index in topic.partition_indexes
            },
        )
    return answer.build()


class _Answer:
    """The outcomes of all markers of a request, by producer."""

    __slots__ = ("_by_producer", "_later", "_left")

    def __init__(self, count: int) -> None:
        self._left = count
        self._by_producer: dict[int, dict[str, dict[int, int]]] = {}
        self._later: Later | None = None

    def add(self, producer_id: int, codes: Codes) -> None:
        topics = self._by_producer.setdefault(producer_id, {}) if codes else {}
        for (topic, index), code in codes.items():
            topics.setdefault(topic, {})[index] = code
        self._left -= 1
        if not self._left and self._later is not None:
            self._later.answer(self.build())

    def response(self) -> WriteTxnMarkersResponse | Later:
        if not self._left:
            return self.build()
        self._later = Later()
        return self._later

    def build(self) -> WriteTxnMarkersResponse:
        return WriteTxnMarkersResponse(
            markers=[
                WritableTxnMarkerResult(
                    producer_id=producer_id,
                    topics=[
                        WritableTxnMarkerTopicResult(
                            name=name,
                            partitions=[
                                WritableTxnMarkerPartitionResult(
                                    partition_index=index, error_code=code
                                )
                                for index, code in partitions.items()
                            ],
                        )
                        for name, partitions in topics.items()
                    ],
                )
                for producer_id, topics in self._by_producer.items()
            ]
        )
