"""Kafka's protocol: its messages as classes, and their bytes."""

from headwater.protocol.codec import decode, decoder, encode, encode_parts, encoder
from headwater.protocol.errors import DecodeError, EncodeError
from headwater.protocol.schema import Message

__all__ = [
    "DecodeError",
    "EncodeError",
    "Message",
    "decode",
    "decoder",
    "encode",
    "encode_parts",
    "encoder",
]
