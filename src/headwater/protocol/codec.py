"""Messages to bytes and back: the hot path of every request.

For each class and version an encoder and a decoder are written as Python source on first use, then
kept. `decoding.py` and `encoding.py` write them; this module runs them and holds what they call.

Whatever comes in, a decoder either returns an object or raises `DecodeError`; it never reads past
the buffer and never makes a list longer than what is left of the buffer could fill.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from headwater.protocol.errors import DecodeError, EncodeError
from headwater.protocol.schema import Message

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview

M = TypeVar("M", bound=Message)


def decode(cls: type[M], data: Buffer, version: int, position: int = 0) -> M:
    """The message that starts at `position`. What follows it is ignored, as Kafka does."""
    read = cls._decoders.get(version) or _compile(cls, version, "decoding")
    message: M = read(data, position)[0]
    return message


def encode(obj: Message, version: int) -> bytes:
    cls = type(obj)
    out = bytearray()
    (cls._encoders.get(version) or _compile(cls, version, "encoding"))(obj, out)
    return bytes(out)


def encode_parts(
    obj: Message, version: int, prefix: bytes | bytearray = b""
) -> list[bytes | bytearray | memoryview | object]:
    """Encode without touching the records: they stand by themselves between the other bytes.

    Records may be anything with a length; a slice of a file stays one, to be sent by sendfile.
    """
    cls = type(obj)
    parts: list[bytes | bytearray | memoryview | object] = []
    write = cls._part_encoders.get(version) or _compile(cls, version, "part_encoding")
    write(obj, bytearray(prefix), parts)
    return parts


def decoder(cls: type[M], version: int) -> Callable[[Buffer, int], tuple[M, int]]:
    """Reads one message at a position; returns it and the position behind it."""
    read: Callable[[Buffer, int], tuple[M, int]]
    read = cls._decoders.get(version) or _compile(cls, version, "decoding")
    return read


def encoder(cls: type[M], version: int) -> Callable[[M, bytearray], None]:
    """Appends one message to a buffer."""
    write: Callable[[M, bytearray], None]
    write = cls._encoders.get(version) or _compile(cls, version, "encoding")
    return write


def _compile(cls: type[Message], version: int, what: str) -> Any:
    first, last = cls.VERSIONS
    if not first <= version <= last:
        error = DecodeError if what == "decoding" else EncodeError
        raise error(f"{cls.__name__} has versions {first} to {last}, not {version}")
    # The writers are loaded here: a process that only asks for the classes does not need them.
    compiled: Any
    if what == "decoding":
        from headwater.protocol.decoding import compile_decoder

        cls._decoders[version] = compiled = compile_decoder(cls, version)
    else:
        from headwater.protocol.encoding import compile_encoder

        parts = what == "part_encoding"
        compiled = compile_encoder(cls, version, parts=parts)
        (cls._part_encoders if parts else cls._encoders)[version] = compiled
    return compiled
