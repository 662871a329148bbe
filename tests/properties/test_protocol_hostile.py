"""Whatever comes in, a decoder gives a message or a `DecodeError`, soon and without much memory.

`HOSTILE_FRAMES` says how many frames to throw (a million takes some minutes), `HOSTILE_SEED` which.
"""

from __future__ import annotations

import os
from random import Random
from typing import Any

import pytest

from headwater.protocol import DecodeError, Message, decoder, encode
from headwater.protocol.apis import APIS, request_class
from headwater.protocol.frame import read_request_header, request_prefix
from headwater.protocol.schema import fields_of
from tests.properties.protocol_values import (
    every_class_and_version,
    is_flexible,
    random_message,
)

FRAMES = int(os.environ.get("HOSTILE_FRAMES", "50000"))
SEED = int(os.environ.get("HOSTILE_SEED", "1"))

# Lengths that look innocent in the wrong place: null, the largest, negative, overlong varints.
TROUBLE = (
    b"\x00",
    b"\xff",
    b"\x7f",
    b"\x80",
    b"\x80\x80\x80\x80\x80\x80\x00",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x07",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xfe",
    b"\xc3\x28",
    b"\xed\xa0\x80",
)


def spoil(random: Random, data: bytes) -> bytes:
    """The bytes of a good message, with something wrong in them."""
    spoiled = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at = random.randrange(len(spoiled) + 1)
        match random.randrange(6):
            case 0 if at < len(spoiled):
                spoiled[at] ^= 1 << random.randrange(8)
            case 1:
                trouble = random.choice(TROUBLE)
                spoiled[at : at + len(trouble)] = trouble
            case 2:
                spoiled[at:at] = random.choice(TROUBLE)
            case 3:
                del spoiled[at : at + random.choice((1, 2, 4, 9))]
            case 4:
                del spoiled[at:]
            case _:
                spoiled[at:at] = random.randbytes(random.randrange(12))
    return bytes(spoiled)


def elements(message: Message) -> int:
    """Counts the values in a message, all the way down."""
    count = 1
    for field in fields_of(type(message)):
        value: Any = getattr(message, field.name)
        if isinstance(value, Message):
            count += elements(value)
        elif field.struct is not None and value:
            count += sum(elements(one) for one in value)
        elif field.is_array and value:
            count += len(value)
    return count


def test_no_bytes_harm_a_decoder() -> None:
    random = Random(SEED)
    every = every_class_and_version()
    refused = accepted = 0
    for number in range(FRAMES):
        if number % 20 == 0:
            cls, version = every[(number // 20) % len(every)]
            flexible = is_flexible(cls, version)
            good = encode(random_message(random, cls, version, flexible=flexible), version)
            read = decoder(cls, version)
        if number % 20 == 19:
            data = random.randbytes(random.choice((0, 1, 5, 50, 500)))
        else:
            data = spoil(random, good)
        try:
            message, end = read(memoryview(data) if number % 2 else data, 0)
        except DecodeError:
            refused += 1
            continue
        accepted += 1
        assert 0 <= end <= len(data), (cls, version, data.hex())
        assert elements(message) <= 20 * (len(data) + 1), (cls, version, data.hex())
        # What can be read can be written again.
        encode(message, version)
    assert refused > FRAMES // 10
    assert accepted > FRAMES // 100


def test_no_frame_harms_whoever_reads_requests() -> None:
    random = Random(SEED + 1)
    served = [api for api in APIS.values() if api.versions is not None]
    for _ in range(FRAMES // 10):
        api = random.choice(served)
        assert api.versions is not None
        version = random.randint(*api.versions)
        cls = request_class(api.key)
        body = encode(
            random_message(random, cls, version, flexible=is_flexible(cls, version)), version
        )
        client_id = random.choice((None, "", "client", "x" * 200))
        frame = bytes(request_prefix(api, version, 7, client_id)[4:]) + body
        try:
            header, position = read_request_header(spoil(random, frame))
            if header.api.has(header.version):
                decoder(request_class(header.api.key), header.version)(frame, position)
        except DecodeError:
            pass


@pytest.mark.parametrize(("cls", "version"), [every_class_and_version()[0]])
def test_a_length_that_lies_makes_no_long_list(cls: type[Message], version: int) -> None:
    # transactional id, acks, timeout, then two thousand million topics
    data = b"\xff\xff" + b"\x00\x01" + b"\x00\x00\x00\x01" + b"\x7f\xff\xff\xff" + bytes(64)
    with pytest.raises(DecodeError, match="topic_data has length 2147483647"):
        decoder(cls, version)(data, 0)
