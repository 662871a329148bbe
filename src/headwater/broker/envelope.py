"""Envelopes: requests that a broker hands on to the active controller for its clients (KIP-590).

An envelope has the client's request with its header, its principal and its address. The response
comes back in the same way, so that a controller can serve versions that the broker does not decode.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import NamedTuple

from headwater.broker.context import Context, Origin
from headwater.errors import ApiError, ErrorCode
from headwater.protocol import DecodeError, Message, decode
from headwater.protocol.apis import APIS, ApiKey, request_class, response_class
from headwater.protocol.frame import (
    RequestHeader,
    encode_request,
    encode_response,
    read_request_header,
    read_response_header,
)
from headwater.protocol.messages.envelope import EnvelopeRequest
from headwater.security.acls import host_text
from headwater.security.principal import decode_principal, encode_principal

_SIZE_BYTES = 4


class Enclosed(NamedTuple):
    """A client's request as the controller takes it out of its envelope."""

    header: RequestHeader
    request: Message
    origin: Origin


def enclose(context: Context, request: Message, correlation_id: int) -> EnvelopeRequest:
    """Puts a client's request into an envelope, in the version the client used."""
    frame = encode_request(request, context.version, correlation_id, context.client_id)
    return EnvelopeRequest(
        request_data=bytes(frame[_SIZE_BYTES:]),
        request_principal=encode_principal(context.principal),
        client_host_address=_packed(context.client_host),
    )


def _packed(host: str) -> bytes:
    address, _, _ = host.partition("%")  # the scope of a link-local address means nothing elsewhere
    return ip_address(address).packed


def take_out(request: EnvelopeRequest) -> Enclosed:
    """Returns what is in an envelope; raises ApiError with Kafka's codes if it is not valid."""
    try:
        host = host_text(ip_address(request.client_host_address))
    except ValueError:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"client address of {len(request.client_host_address)} bytes, expected 4 or 16",
        ) from None
    try:
        principal = decode_principal(request.request_principal or b"")
    except DecodeError as error:
        raise ApiError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from None
    try:
        header, position = read_request_header(request.request_data)
    except DecodeError as error:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, str(error)) from None
    api = header.api
    if not api.forwardable:
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{api.name} is not forwarded in envelopes")
    # A structural error inside has another code than one of the envelope: the sender then knows
    # that its client speaks what this controller does not.
    if not api.has(header.version):
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name} version {header.version}")
    try:
        body = decode(request_class(api.key), request.request_data, header.version, position)
    except DecodeError as error:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"{api.name}: {error}") from None
    return Enclosed(header, body, Origin(principal, host))


def enclose_response(header: RequestHeader, response: Message) -> bytes:
    return bytes(encode_response(response, header.version, header.correlation_id)[_SIZE_BYTES:])


def take_out_response(key: int, version: int, correlation_id: int, data: bytes) -> Message:
    """Returns the response to a forwarded request; raises DecodeError if it is another one's."""
    found, position = read_response_header(APIS[key], version, data)
    if found != correlation_id:
        raise DecodeError(f"correlation id {found}, expected {correlation_id}")
    return decode(response_class(ApiKey(key)), data, version, position)


def has_error(message: Message, code: ErrorCode) -> bool:
    """Returns whether a response has this error code anywhere."""
    for name in type(message).__annotations__:
        value = getattr(message, name)
        if name == "error_code":
            if value == code:
                return True
        elif isinstance(value, list):
            for each in value:
                if isinstance(each, Message) and has_error(each, code):
                    return True
    return False
