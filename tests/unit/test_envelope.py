"""Envelopes: what a broker hands on, and what a controller makes of it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from headwater.broker.context import Context
from headwater.broker.envelope import (
    enclose,
    enclose_response,
    has_error,
    take_out,
    take_out_response,
)
from headwater.errors import ApiError, ErrorCode
from headwater.protocol import DecodeError
from headwater.protocol.apis import ApiKey
from headwater.protocol.frame import encode_request
from headwater.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from headwater.protocol.messages.envelope import EnvelopeRequest
from headwater.protocol.messages.metadata import MetadataRequest
from headwater.security.principal import ANONYMOUS, Principal, decode_principal, encode_principal

REQUEST = CreateTopicsRequest(
    topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)], timeout_ms=1000
)


def context_of(host: str, version: int = 7, client_id: str | None = "app") -> Context:
    stream = SimpleNamespace(peer=SimpleNamespace(host=host))
    connection: Any = SimpleNamespace(stream=stream, principal=ANONYMOUS)
    return Context(connection, version, client_id)


def refusal_of(request: EnvelopeRequest) -> ErrorCode:
    with pytest.raises(ApiError) as refused:
        take_out(request)
    return refused.value.code


def test_a_principal_looks_as_kafka_writes_it() -> None:
    # Version 0 in two bytes, compact strings, a boolean, no tags.
    assert encode_principal(ANONYMOUS) == b"\0\0" + b"\x05User" + b"\x0aANONYMOUS" + b"\0" + b"\0"
    token = Principal("User", "robot", is_token=True)
    assert decode_principal(encode_principal(token)) == token


@pytest.mark.parametrize("host", ["127.0.0.1", "10.1.2.3", "::1", "fe80::1"])
@pytest.mark.parametrize("version", [2, 5, 7])
def test_a_request_arrives_with_its_client(host: str, version: int) -> None:
    header, request, origin = take_out(enclose(context_of(host, version), REQUEST, 17))
    assert (header.api.key, header.version) == (ApiKey.CREATE_TOPICS, version)
    assert (header.correlation_id, header.client_id) == (17, "app")
    assert request == REQUEST
    assert origin == (ANONYMOUS, host)


def test_the_scope_of_an_address_stays_at_home() -> None:
    assert take_out(enclose(context_of("fe80::1%eth0"), REQUEST, 1)).origin.host == "fe80::1"


def test_ipv4_inside_of_ipv6_is_ipv4() -> None:
    assert take_out(enclose(context_of("::ffff:10.1.2.3"), REQUEST, 1)).origin.host == "10.1.2.3"


def test_a_response_goes_back_only_to_its_request() -> None:
    header = take_out(enclose(context_of("::1"), REQUEST, 17)).header
    response = CreateTopicsResponse(topics=[CreatableTopicResult(name="t", error_message=None)])
    data = enclose_response(header, response)
    assert take_out_response(ApiKey.CREATE_TOPICS, 7, 17, data) == response
    with pytest.raises(DecodeError):
        take_out_response(ApiKey.CREATE_TOPICS, 7, 18, data)


def test_what_cannot_be_read_has_kafkas_codes() -> None:
    good = enclose(context_of("::1"), REQUEST, 1)

    def changed(**values: Any) -> EnvelopeRequest:
        fields = {
            "request_data": good.request_data,
            "request_principal": good.request_principal,
            "client_host_address": good.client_host_address,
        }
        return EnvelopeRequest(**(fields | values))

    assert refusal_of(changed(client_host_address=b"\1\2\3")) is ErrorCode.INVALID_REQUEST
    failure = ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE
    assert refusal_of(changed(request_principal=None)) is failure
    assert refusal_of(changed(request_principal=b"\0\7")) is failure
    assert refusal_of(changed(request_data=b"\0")) is ErrorCode.UNSUPPORTED_VERSION
    cut = good.request_data[:-3]
    assert refusal_of(changed(request_data=cut)) is ErrorCode.UNSUPPORTED_VERSION
    unknown = b"\0\x13\0\x63" + good.request_data[4:]
    assert refusal_of(changed(request_data=unknown)) is ErrorCode.UNSUPPORTED_VERSION
    metadata = bytes(encode_request(MetadataRequest(topics=[]), 9, 1, "app")[4:])
    assert refusal_of(changed(request_data=metadata)) is ErrorCode.INVALID_REQUEST
    nested = bytes(encode_request(good, 0, 1, "app")[4:])
    assert refusal_of(changed(request_data=nested)) is ErrorCode.INVALID_REQUEST


def test_an_error_is_found_at_any_depth() -> None:
    response = CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name="a"),
            CreatableTopicResult(name="b", error_code=ErrorCode.NOT_CONTROLLER),
        ]
    )
    assert has_error(response, ErrorCode.NOT_CONTROLLER)
    assert not has_error(response, ErrorCode.STALE_BROKER_EPOCH)
