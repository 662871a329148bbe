"""CRC-32C, murmur2 and xxHash-32 in plain Python: the judges of the Rust core's."""

from __future__ import annotations


def _castagnoli_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (0x82F63B78 if value & 1 else 0)
        table.append(value)
    return table


_CASTAGNOLI = _castagnoli_table()


def crc32c(data: bytes, value: int = 0) -> int:
    value ^= 0xFFFFFFFF
    for byte in data:
        value = _CASTAGNOLI[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    mix = 0x5BD1E995
    hashed = 0x9747B28C ^ len(data)
    whole = len(data) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * mix & 0xFFFFFFFF
        word = (word ^ word >> 24) * mix & 0xFFFFFFFF
        hashed = (hashed * mix & 0xFFFFFFFF) ^ word
    if data[whole:]:
        hashed = (hashed ^ int.from_bytes(data[whole:], "little")) * mix & 0xFFFFFFFF
    hashed = (hashed ^ hashed >> 13) * mix & 0xFFFFFFFF
    hashed ^= hashed >> 15
    return hashed - 2**32 if hashed >= 2**31 else hashed


def xxh32(data: bytes) -> int:
    primes = (2654435761, 2246822519, 3266489917, 668265263, 374761393)

    def rotate(value: int, bits: int) -> int:
        value &= 0xFFFFFFFF
        return (value << bits | value >> (32 - bits)) & 0xFFFFFFFF

    def word(at: int) -> int:
        return int.from_bytes(data[at : at + 4], "little")

    at = 0
    if len(data) >= 16:
        lanes = [primes[0] + primes[1], primes[1], 0, -primes[0]]
        while at + 16 <= len(data):
            for lane in range(4):
                mixed = lanes[lane] + word(at + 4 * lane) * primes[1]
                lanes[lane] = rotate(mixed, 13) * primes[0] & 0xFFFFFFFF
            at += 16
        value = sum(rotate(lanes[n], bits) for n, bits in enumerate((1, 7, 12, 18)))
    else:
        value = primes[4]
    value += len(data)
    while at + 4 <= len(data):
        value = rotate(value + word(at) * primes[2], 17) * primes[3]
        at += 4
    for byte in data[at:]:
        value = rotate(value + byte * primes[4], 11) * primes[0]
    value &= 0xFFFFFFFF
    value = (value ^ value >> 15) * primes[1] & 0xFFFFFFFF
    value = (value ^ value >> 13) * primes[2] & 0xFFFFFFFF
    return value ^ value >> 16
