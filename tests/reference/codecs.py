"""The codecs of record batches with other people's compressors: zlib and pyarrow.

Only the framing is written here. Everything that goes wrong is a ValueError.
"""

from __future__ import annotations

import struct
import zlib

import pyarrow as pa

from tests.reference.checksums import xxh32

NONE, GZIP, SNAPPY, LZ4, ZSTD = range(5)
XERIAL = b"\x82SNAPPY\x00"
XERIAL_HEADER = XERIAL + struct.pack(">ii", 1, 1)
LZ4_MAGIC = b"\x04\x22\x4d\x18"
STORED = 1 << 31


def compress(codec: int, data: bytes) -> bytes:
    encoders = {NONE: _same, GZIP: _gzip, SNAPPY: _snappy, LZ4: _lz4, ZSTD: _zstd}
    return encoders[codec](data)


def decompress(codec: int, data: bytes) -> bytes:
    decoders = {NONE: _same, GZIP: _ungzip, SNAPPY: _unsnappy, LZ4: _unlz4, ZSTD: _unzstd}
    if codec not in decoders:
        raise ValueError(f"codec {codec}")
    try:
        return decoders[codec](data)
    except (zlib.error, OSError, IndexError, struct.error) as error:
        raise ValueError(str(error)) from error


def _same(data: bytes) -> bytes:
    return data


def _gzip(plain: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(plain) + compressor.flush()


def _ungzip(data: bytes) -> bytes:
    plain = b""
    while True:
        member = zlib.decompressobj(wbits=31)
        plain += member.decompress(data)
        if not member.eof:
            raise ValueError("cut short")
        data = member.unused_data
        if not data:
            return plain


def _blocks(plain: bytes, size: int) -> list[bytes]:
    return [plain[start : start + size] for start in range(0, len(plain), size)]


def _snappy(plain: bytes) -> bytes:
    blocks = [bytes(pa.Codec("snappy").compress(block)) for block in _blocks(plain, 32 * 1024)]
    return XERIAL_HEADER + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def _unsnappy(data: bytes) -> bytes:
    if not data.startswith(XERIAL):
        return _unsnappy_block(data)
    plain = b""
    at = 0
    while at < len(data):
        if data.startswith(XERIAL, at):
            at += len(XERIAL_HEADER)
            if at > len(data):
                raise ValueError("cut short")
            continue
        (length,) = struct.unpack_from(">I", data, at)
        block = data[at + 4 : at + 4 + length]
        if len(block) != length:
            raise ValueError("cut short")
        plain += _unsnappy_block(block)
        at += 4 + length
    return plain


def _unsnappy_block(block: bytes) -> bytes:
    size = 0
    for index in range(5):
        size |= (block[index] & 0x7F) << (7 * index)
        if block[index] < 0x80:
            break
    else:
        raise ValueError("length too long")
    if size > 64 * len(block):
        raise ValueError("more than Snappy can say in so few bytes")
    return bytes(pa.Codec("snappy").decompress(block, decompressed_size=size))


def _lz4(plain: bytes) -> bytes:
    descriptor = b"\x60\x40"
    framed = LZ4_MAGIC + descriptor + bytes([xxh32(descriptor) >> 8 & 0xFF])
    for block in _blocks(plain, 64 * 1024):
        shorter = bytes(pa.Codec("lz4_raw").compress(block))
        if len(shorter) < len(block):
            framed += struct.pack("<I", len(shorter)) + shorter
        else:
            framed += struct.pack("<I", len(block) | STORED) + block
    return framed + bytes(4)


def _unlz4(data: bytes) -> bytes:
    """Frames that Java clients can read have independent blocks, so no other is taken."""
    flags, descriptor = data[4], data[5]
    length = 10 if flags & 0x08 else 2
    if (
        data[:4] != LZ4_MAGIC
        or flags >> 6 != 1
        or flags & 0x03
        or not flags & 0x20
        or descriptor & 0x8F
        or not 4 <= descriptor >> 4 <= 7
        or data[4 + length] != xxh32(data[4 : 4 + length]) >> 8 & 0xFF
    ):
        raise ValueError("frame header")
    block_bytes_max = 1 << (8 + 2 * (descriptor >> 4))
    at = 5 + length
    plain = b""
    while True:
        (word,) = struct.unpack_from("<I", data, at)
        at += 4
        if word == 0:
            break
        size = word & ~STORED
        block = data[at : at + size]
        if size > block_bytes_max or len(block) != size:
            raise ValueError("block size")
        at += size
        if flags & 0x10:
            if struct.unpack_from("<I", data, at)[0] != xxh32(block):
                raise ValueError("block checksum")
            at += 4
        plain += block if word & STORED else _unlz4_block(block, block_bytes_max)
    if flags & 0x04:
        if struct.unpack_from("<I", data, at)[0] != xxh32(plain):
            raise ValueError("content checksum")
        at += 4
    if at != len(data):
        raise ValueError("trailing bytes")
    return plain


def _unlz4_block(block: bytes, block_bytes_max: int) -> bytes:
    """Slow and plain, for pyarrow cannot decompress a block whose size is not known."""
    plain = bytearray()
    at = 0

    def length(nibble: int) -> int:
        nonlocal at
        total = nibble
        while nibble == 15:
            total += block[at]
            at += 1
            if block[at - 1] != 255:
                break
        return total

    while True:
        token = block[at]
        at += 1
        literals = length(token >> 4)
        if at + literals > len(block):
            raise ValueError("literals cut short")
        plain += block[at : at + literals]
        at += literals
        if at == len(block):
            break
        distance = struct.unpack_from("<H", block, at)[0]
        at += 2
        if distance == 0 or distance > len(plain):
            raise ValueError("match distance")
        for _ in range(length(token & 15) + 4):
            plain.append(plain[-distance])
        if len(plain) > block_bytes_max:
            raise ValueError("block too large")
    if len(plain) > block_bytes_max:
        raise ValueError("block too large")
    return bytes(plain)


def _zstd(plain: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(plain))


def _unzstd(data: bytes) -> bytes:
    if not data:
        raise ValueError("empty")
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read())
