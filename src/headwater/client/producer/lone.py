"""The quick path of a lone record: bytes of a request and of its answer that are known beforehand.

Between two requests for the same partition only the records and a few numbers differ, and so do the
answers while all is well. So both are written once by the general codec and cut where they differ.
An answer that says anything else (an error, a throttle time, a leader) is none of ours: `read`
gives None, and the general decoder reads it.
"""

from __future__ import annotations

from struct import Struct

from headwater.protocol.apis import APIS, ApiKey
from headwater.protocol.encoding import write_varint
from headwater.protocol.frame import encode_request, encode_response, is_flexible
from headwater.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

# Larger ones are better sent as a part of their own than copied.
LONE_BYTES_MAX = 4096

_SIZE = Struct(">i")
_START = Struct(">ihhi")  # size, api key, version, correlation id
_PLACE = Struct(">qq")  # base offset, log append time
# Stands for what changes; where it stands last, for names and ids come first.
_MARK = bytes(range(1, 9))
_MARK_NUMBER = int.from_bytes(_MARK)
_LOG_START_SINCE = 5

Place = tuple[int, int]  # base offset and log append time


class LoneRequest:
    """A request for one partition in one version: whatever the records, few bytes change."""

    api = APIS[ApiKey.PRODUCE]

    def __init__(self, request: ProduceRequest, version: int, client_id: str) -> None:
        """`request` has one topic with one partition; its records do not matter."""
        self.version = version
        self._flexible = is_flexible(ApiKey.PRODUCE, version)
        (topic,) = request.topic_data
        (data,) = topic.partition_data
        kept, data.records = data.records, _MARK
        written = bytes(encode_request(request, version, 0, client_id))
        data.records = kept
        at = written.rindex(_MARK)
        self._head = written[_START.size : at - (1 if self._flexible else _SIZE.size)]
        self._tail = written[at + len(_MARK) :]
        self._fixed_bytes = len(self._head) + len(self._tail) + _START.size - _SIZE.size

        result = PartitionProduceResponse(
            index=data.index,
            base_offset=_MARK_NUMBER,
            log_append_time_ms=_MARK_NUMBER,
            log_start_offset=_MARK_NUMBER,
        )
        named = TopicProduceResponse(
            name=topic.name, topic_id=topic.topic_id, partition_responses=[result]
        )
        answer = bytes(encode_response(ProduceResponse(responses=[named]), version, 0))
        answer = answer[_SIZE.size :]
        changing = _PLACE.size + (len(_MARK) if version >= _LOG_START_SINCE else 0)
        end = answer.rindex(_MARK) + len(_MARK)
        self._at = end - changing
        self._before = answer[_SIZE.size : self._at]
        self._behind = answer[end:]
        self._answer_bytes = len(answer)

    def frame(self, correlation_id: int, records: memoryview) -> bytes:
        """The whole request, its size first."""
        count = len(records)
        if self._flexible:
            size = bytearray()
            write_varint(size, count + 1)
        else:
            size = bytearray(_SIZE.pack(count))
        start = _START.pack(
            self._fixed_bytes + len(size) + count, ApiKey.PRODUCE, self.version, correlation_id
        )
        return b"".join((start, self._head, size, records, self._tail))

    def read(self, frame: bytes) -> Place | None:
        """Where the records are, if the answer says that and nothing else."""
        if (
            len(frame) == self._answer_bytes
            and frame.startswith(self._before, _SIZE.size)
            and frame.endswith(self._behind)
        ):
            return _PLACE.unpack_from(frame, self._at)
        return None
