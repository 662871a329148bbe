"""The prepared bytes of a lone record's request and answer are those of the general codec."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headwater.client.producer.requests import SINGLE_BYTES_MAX, SingleRequest
from headwater.protocol.frame import encode_request, encode_response
from headwater.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

VERSIONS = range(ProduceRequest.VERSIONS[0], ProduceRequest.VERSIONS[1] + 1)
TOPIC_ID = bytes(range(16))  # contains what marks the places that change
INT64 = st.integers(-(2**63), 2**63 - 1)


def request(records: bytes, *, partition: int = 3, name: str = "orders") -> ProduceRequest:
    data = PartitionProduceData(index=partition, records=memoryview(records))
    topic = TopicProduceData(name=name, topic_id=TOPIC_ID, partition_data=[data])
    return ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[topic])


def answer(version: int, result: PartitionProduceResponse, throttle_time_ms: int = 0) -> bytes:
    topic = TopicProduceResponse(name="orders", topic_id=TOPIC_ID, partition_responses=[result])
    response = ProduceResponse(responses=[topic], throttle_time_ms=throttle_time_ms)
    return bytes(encode_response(response, version, 77))[4:]


@pytest.mark.parametrize("version", VERSIONS)
@given(
    st.integers(0, SINGLE_BYTES_MAX),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**31 - 1),
    st.text(max_size=20),
)
def test_a_request_is_what_the_codec_writes(
    version: int, size: int, correlation_id: int, partition: int, client_id: str
) -> None:
    records = bytes(range(1, 9)) * (size // 8) + b"x" * (size % 8)
    lone = SingleRequest(request(b"", partition=partition), version, client_id)
    whole = encode_request(
        request(records, partition=partition), version, correlation_id, client_id
    )
    assert lone.frame(correlation_id, memoryview(records)) == whole


@pytest.mark.parametrize("version", VERSIONS)
@given(INT64, INT64, INT64)
def test_a_plain_answer_is_read(version: int, offset: int, time: int, start: int) -> None:
    result = PartitionProduceResponse(
        index=3, base_offset=offset, log_append_time_ms=time, log_start_offset=start
    )
    lone = SingleRequest(request(b""), version, "me")
    assert lone.read(answer(version, result)) == (offset, time)


@pytest.mark.parametrize("version", VERSIONS)
def test_any_other_answer_is_left_to_the_codec(version: int) -> None:
    lone = SingleRequest(request(b""), version, "me")
    plain = answer(version, PartitionProduceResponse(index=3))
    assert lone.read(plain) == (0, -1)
    assert lone.read(plain[:-1]) is None
    assert lone.read(plain + b"\0") is None
    assert lone.read(b"") is None
    assert lone.read(answer(version, PartitionProduceResponse(index=4))) is None
    assert lone.read(answer(version, PartitionProduceResponse(index=3, error_code=6))) is None
    assert lone.read(answer(version, PartitionProduceResponse(index=3), throttle_time_ms=9)) is None
    if version >= 8:
        blamed = PartitionProduceResponse(
            index=3, record_errors=[BatchIndexAndErrorMessage(batch_index=1)]
        )
        assert lone.read(answer(version, blamed)) is None
    if version >= 10:
        moved = PartitionProduceResponse(
            index=3, current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
        )
        assert lone.read(answer(version, moved)) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_preparing_leaves_the_request_as_it_was(version: int) -> None:
    given_request = request(b"abc")
    SingleRequest(given_request, version, "me")
    assert given_request == request(b"abc")
