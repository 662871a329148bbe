"""Frames: the size and the header around a message.

A frame is a four-byte size, a header and a body. Functions here that build a frame leave room for
the size and fill it in; functions that read one start behind it.
"""

from __future__ import annotations

from struct import Struct, error
from typing import TYPE_CHECKING, NamedTuple

from headwater.protocol.apis import APIS, Api
from headwater.protocol.codec import encoder
from headwater.protocol.decoding import read_unknown_tags
from headwater.protocol.errors import DecodeError

if TYPE_CHECKING:
    from headwater.protocol.codec import Buffer
    from headwater.protocol.schema import Message

_REQUEST_START = Struct(">hhih")
_CORRELATION = Struct(">i")
_SIZE = Struct(">i")


class RequestHeader(NamedTuple):
    """The start of a request. A client that does not name itself has the empty name."""

    api: Api
    version: int
    correlation_id: int
    client_id: str


def read_request_header(data: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header of a request, and where its body starts.

    The version may be one that we do not serve: only ApiVersions is answered then, which
    the dispatcher decides. An unknown key raises `DecodeError`.
    """
    try:
        key, version, correlation_id, size = _REQUEST_START.unpack_from(data, position)
        api = APIS.get(key)
        if api is None or api.versions is None:
            raise DecodeError(f"request for unknown API key {key}")
        position += 10
        client_id = ""
        if size > 0:
            end = position + size
            if end > len(data):
                raise DecodeError(f"client id of {size} bytes, {len(data) - position} left")
            client_id = str(data[position:end], "utf-8", "replace")
            position = end
        flexible = api.flexible
        if flexible is not None and version >= flexible:
            # No tag of a request header is known yet.
            position = position + 1 if data[position] == 0 else skip_tags(data, position)
    except (error, IndexError, UnicodeDecodeError) as problem:
        raise DecodeError(f"request header: {problem}") from None
    return RequestHeader(api, version, correlation_id, client_id), position


def is_flexible(key: int, version: int) -> bool:
    """Returns whether this version of the API has compact lengths and tagged fields."""
    flexible = APIS[key].flexible
    return flexible is not None and version >= flexible


def response_header_is_flexible(key: int, version: int) -> bool:
    return APIS[key].response_header_version(version) == 1


def skip_tags(data: Buffer, position: int) -> int:
    """The position after a tag section, which is skipped."""
    try:
        return read_unknown_tags(memoryview(data), position + 1, data[position])[1]
    except IndexError:
        raise DecodeError("tag section ends too early") from None


def request_prefix(api: Api, version: int, correlation_id: int, client_id: str | None) -> bytearray:
    """The header of a request, behind four bytes for the size."""
    name = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(name)
    out = bytearray(_SIZE.size)
    out += _REQUEST_START.pack(api.key, version, correlation_id, length)
    out += name
    if api.flexible is not None and version >= api.flexible:
        out.append(0)
    return out


def encode_request(
    request: Message, version: int, correlation_id: int, client_id: str | None
) -> bytearray:
    """A whole request, ready to be sent."""
    cls = type(request)
    assert cls.API is not None, f"{cls.__name__} is not a request"
    out = request_prefix(APIS[cls.API], version, correlation_id, client_id)
    encoder(cls, version)(request, out)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def response_prefix(api: Api, version: int, correlation_id: int) -> bytearray:
    """The header of a response, behind four bytes for the size."""
    out = bytearray(_SIZE.size)
    out += _CORRELATION.pack(correlation_id)
    if api.response_header_version(version):
        out.append(0)
    return out


def encode_response(response: Message, version: int, correlation_id: int) -> bytearray:
    """A whole response, ready to be sent."""
    cls = type(response)
    assert cls.API is not None, f"{cls.__name__} is not a response"
    out = response_prefix(APIS[cls.API], version, correlation_id)
    encoder(cls, version)(response, out)
    _SIZE.pack_into(out, 0, len(out) - 4)
    return out


def read_response_header(
    api: Api, version: int, data: Buffer, position: int = 0
) -> tuple[int, int]:
    """The correlation id of a response, and where its body starts."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(data, position)
        position += 4
        if api.response_header_version(version):
            position = position + 1 if data[position] == 0 else skip_tags(data, position)
    except (error, IndexError) as problem:
        raise DecodeError(f"response header: {problem}") from None
    return correlation_id, position
