"""The codec where the schema says what is right: nulls, tags, versions, lengths, records."""

from __future__ import annotations

from typing import cast

import pytest

from headwater.errors import ErrorCode
from headwater.protocol import DecodeError, EncodeError, decode, encode, encode_parts
from headwater.protocol.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    PartitionData,
)
from headwater.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.protocol.messages.metadata import MetadataRequest
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.protocol.records.group_consumer import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="g", generation_id=3, member_id="m")


def produce(records: bytes | None) -> ProduceRequest:
    partition = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="orders", partition_data=[partition])
    return ProduceRequest(transactional_id=None, acks=-1, timeout_ms=1000, topic_data=[topic])


def fetched(records: object) -> FetchResponse:
    partition = PartitionData(partition_index=0, high_watermark=9, records=records)
    topic = FetchableTopicResponse(topic_id=b"t" * 16, partitions=[partition])
    return FetchResponse(responses=[topic])


def test_bytes_of_a_fixed_version() -> None:
    assert encode(heartbeat(), 0).hex() == "0001670000000300016d"


def test_bytes_of_a_flexible_version() -> None:
    assert encode(heartbeat(), 4).hex() == "026700000003026d0000"


def test_an_error_code_may_be_the_enum() -> None:
    response = HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID)
    assert decode(HeartbeatResponse, encode(response, 4), 4).error_code == 25


def test_a_field_the_version_lacks_is_refused_if_it_is_set() -> None:
    request = heartbeat()
    request.group_instance_id = "static"
    with pytest.raises(EncodeError, match="HeartbeatRequest v2 has no field group_instance_id"):
        encode(request, 2)


def test_an_ignorable_field_the_version_lacks_is_dropped() -> None:
    request = FetchRequest(max_wait_ms=1, min_bytes=1, rack_id="r1")
    assert decode(FetchRequest, encode(request, 11), 11).rack_id == "r1"
    assert decode(FetchRequest, encode(request, 10), 10).rack_id == ""


def test_a_version_nobody_knows_is_refused() -> None:
    with pytest.raises(EncodeError, match="has versions 0 to 4, not 5"):
        encode(heartbeat(), 5)
    with pytest.raises(DecodeError, match="has versions 0 to 4, not -1"):
        decode(HeartbeatRequest, b"", -1)


def test_null_is_read_only_where_it_is_allowed() -> None:
    assert decode(MetadataRequest, b"\xff\xff\xff\xff", 1).topics is None
    with pytest.raises(DecodeError, match=r"MetadataRequest\.topics must not be null"):
        decode(MetadataRequest, b"\xff\xff\xff\xff", 0)


def test_null_is_written_only_where_it_is_allowed() -> None:
    request = MetadataRequest(topics=None)
    assert encode(request, 1) == b"\xff\xff\xff\xff"
    with pytest.raises(EncodeError, match="MetadataRequest v0"):
        encode(request, 0)


def test_unknown_tags_are_kept_and_written_in_order() -> None:
    data = bytes.fromhex("026700000003026d00020501aa810102bbcc")
    request = decode(HeartbeatRequest, data, 4)
    assert request.unknown_tags == {5: b"\xaa", 129: b"\xbb\xcc"}
    assert encode(request, 4) == data
    with pytest.raises(EncodeError, match="no place for tagged fields"):
        encode(request, 3)


def test_a_tagged_struct_is_not_written_while_it_is_empty() -> None:
    plain = encode(fetched(b""), 12 + 1)
    response = fetched(b"")
    partition = response.responses[0].partitions[0]
    partition.diverging_epoch = EpochEndOffset()
    assert encode(response, 13) == plain
    partition.current_leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=7)
    back = decode(FetchResponse, encode(response, 13), 13).responses[0].partitions[0]
    assert back.current_leader == partition.current_leader
    assert back.diverging_epoch is None


def test_a_tagged_struct_that_may_be_null_tells_null_from_absent() -> None:
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="",
        client_host="",
        subscribed_topic_regex=None,
        server_assignor=None,
    )
    absent = encode(member, 0)
    member.classic_member_metadata = None
    null = encode(member, 0)
    assert absent[-1:] == b"\x00"
    assert null[-4:] == bytes.fromhex("01000100")  # as Kafka 4.3.1 writes it to its log
    assert decode(ConsumerGroupMemberMetadataValue, null, 0).classic_member_metadata is None
    back = decode(ConsumerGroupMemberMetadataValue, absent, 0).classic_member_metadata
    assert back == ClassicMemberMetadata(session_timeout_ms=0)


def test_a_tag_whose_size_lies_is_refused() -> None:
    whole = encode(fetched(b""), 13)
    response = fetched(b"")
    response.responses[0].partitions[0].current_leader = LeaderIdAndEpoch(leader_id=1)
    data = bytearray(encode(response, 13))
    size = data.index(b"\x01\x01\x09") + 2  # one tag, number 1, nine bytes
    data[size] -= 1
    with pytest.raises(DecodeError, match="does not fill its size"):
        decode(FetchResponse, bytes(data), 13)
    assert len(whole) < len(data)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ("", "HeartbeatRequest v4"),
        ("0967", "group_id has length 8"),
        ("00", "group_id must not be null"),
        ("808080808000", "varint has more than 5 bytes"),
        ("ffffffff7f", "varint does not fit 32 bits"),
        ("818080800000000003", "index out of range|requires a buffer"),
    ],
)
def test_bad_bytes_are_refused_with_a_reason(data: str, problem: str) -> None:
    with pytest.raises(DecodeError, match=problem):
        decode(HeartbeatRequest, bytes.fromhex(data), 4)


def test_bytes_that_are_no_text_are_replaced() -> None:
    request = decode(HeartbeatRequest, bytes.fromhex("02ff00000003026d0000"), 4)
    assert request.group_id == "\N{REPLACEMENT CHARACTER}"


def test_a_string_has_at_most_32767_bytes() -> None:
    request = heartbeat()
    request.member_id = "x" * 32767
    for version in (3, 4):
        assert decode(HeartbeatRequest, encode(request, version), version) == request
    request.member_id += "x"
    for version in (3, 4):
        with pytest.raises(EncodeError):
            encode(request, version)


def test_a_number_out_of_range_is_refused() -> None:
    request = heartbeat()
    request.generation_id = 2**31
    with pytest.raises(EncodeError, match="HeartbeatRequest v4"):
        encode(request, 4)


def test_an_id_has_sixteen_bytes() -> None:
    response = fetched(b"")
    response.responses[0].topic_id = b"short"
    with pytest.raises(EncodeError, match=r"topic_id has length 5"):
        encode(response, 13)


def test_records_are_a_view_into_the_frame() -> None:
    frame = bytearray(encode(produce(b"batch"), 11))
    read = decode(ProduceRequest, memoryview(frame), 11)
    records = read.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert bytes(records) == b"batch"
    frame[frame.index(b"batch")] = ord("c")
    assert bytes(records) == b"catch"


def test_records_may_be_null() -> None:
    read = decode(ProduceRequest, encode(produce(None), 9), 9)
    assert read.topic_data[0].partition_data[0].records is None


class FileSlice:
    """Something that has a length and no bytes."""

    def __len__(self) -> int:
        return 700


def test_a_slice_of_a_file_stands_by_itself_between_the_bytes() -> None:
    file_slice = FileSlice()
    head, middle, tail = encode_parts(fetched(file_slice), 13, b"head")
    assert middle is file_slice
    whole = bytes(cast(bytearray, head)) + bytes(700) + bytes(cast(bytearray, tail))
    assert whole == b"head" + encode(fetched(bytes(700)), 13)


def test_a_slice_of_a_file_cannot_be_encoded_into_one_buffer() -> None:
    with pytest.raises(EncodeError, match="FetchResponse v13"):
        encode(fetched(FileSlice()), 13)


def test_small_records_are_copied_and_large_ones_are_not() -> None:
    assert len(encode_parts(fetched(bytes(4096)), 13)) == 1
    large = bytes(4097)
    parts = encode_parts(fetched(large), 13)
    assert parts[1] is large
    assert len(parts) == 3
