"""Headers, and the table of APIs that says which header it is."""

from __future__ import annotations

import pytest

from headwater.protocol import DecodeError, decode
from headwater.protocol.apis import APIS, ApiKey, request_class, response_class
from headwater.protocol.frame import (
    encode_request,
    encode_response,
    is_flexible,
    read_request_header,
    read_response_header,
    response_header_is_flexible,
    skip_tags,
)
from headwater.protocol.messages.api_versions import ApiVersionsResponse
from headwater.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from headwater.protocol.records.groups import group_record
from headwater.protocol.records.metadata import RECORDS


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("client_id", [None, "", "client"])
def test_a_request_comes_back_with_its_header(version: int, client_id: str | None) -> None:
    request = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    frame = encode_request(request, version, 42, client_id)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header, position = read_request_header(memoryview(frame)[4:])
    assert header == (APIS[ApiKey.HEARTBEAT], version, 42, client_id or "")
    assert decode(HeartbeatRequest, frame, version, position + 4) == request


def test_the_client_id_is_never_compact() -> None:
    request = HeartbeatRequest(group_id="", generation_id=0, member_id="")
    assert encode_request(request, 4, 1, "me")[4:17].hex() == "000c00040000000100026d6500"


def test_tags_of_a_request_header_are_passed_over() -> None:
    data = bytes.fromhex("000c000400000001ffff020001aa0502bbcc") + b"body"
    _, position = read_request_header(data)
    assert data[position:] == b"body"
    assert skip_tags(data, 10) == position


def test_a_version_from_the_future_still_has_a_header() -> None:
    header, _ = read_request_header(bytes.fromhex("0012005a00000007ffff00"))
    assert (header.api.key, header.version) == (ApiKey.API_VERSIONS, 90)
    assert not header.api.has(90)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "000c0004",
        "00ff000000000001ffff",  # no such key
        "0004000000000001ffff",  # LeaderAndIsr: the key is known, and no version of it is left
        "000c00040000000100056d",  # client id cut short
        "000c000400000001ffff",  # no tag section
        "000c000400000001ffff01",
    ],
)
def test_a_bad_header_is_refused(data: str) -> None:
    with pytest.raises(DecodeError):
        read_request_header(bytes.fromhex(data))


@pytest.mark.parametrize("version", [3, 4])
def test_a_response_comes_back_with_its_header(version: int) -> None:
    response = HeartbeatResponse(error_code=25)
    frame = encode_response(response, version, 42)
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    api = APIS[ApiKey.HEARTBEAT]
    correlation_id, position = read_response_header(api, version, frame, 4)
    assert correlation_id == 42
    assert decode(HeartbeatResponse, frame, version, position) == response


def test_an_api_versions_response_never_has_a_flexible_header() -> None:
    frame = encode_response(ApiVersionsResponse(error_code=35), 3, 1)
    assert frame[8:10] == b"\x00\x23"
    assert is_flexible(ApiKey.API_VERSIONS, 3)
    assert not response_header_is_flexible(ApiKey.API_VERSIONS, 3)
    assert response_header_is_flexible(ApiKey.HEARTBEAT, 4)


def test_every_api_has_its_messages() -> None:
    for key, api in APIS.items():
        if api.versions is None:
            with pytest.raises(DecodeError):
                request_class(key)
            continue
        for cls in (request_class(key), response_class(key)):
            assert (key, api.versions, api.flexible) == (cls.API, cls.VERSIONS, cls.FLEXIBLE)


def test_what_we_advertise_we_can_read() -> None:
    for api in APIS.values():
        if api.advertised is not None and api.key is not ApiKey.PRODUCE:
            assert api.has(api.advertised[0])
            assert api.has(api.advertised[1])
    # librdkafka needs to see version 0, which nobody sends (KAFKA-18659).
    assert APIS[ApiKey.PRODUCE].advertised == (0, 13)
    assert APIS[ApiKey.INIT_PRODUCER_ID].advertised == (0, 5)


def test_records_are_found_by_their_number() -> None:
    assert {number: cls.API for number, cls in RECORDS.items()} == {n: n for n in RECORDS}
    assert len(RECORDS) == 27
    for number in range(24):
        found = group_record(number)
        assert (found is None) == (number in (9, 18))
        assert found is None or [cls.API for cls in found] == [number, number]
