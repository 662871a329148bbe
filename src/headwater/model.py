"""The words that all other modules use. Imports nothing of ours.

Ids of topics, directories and clusters are 16 plain bytes inside and base64 text outside, as
Kafka prints them. An end (`log_end`, `high_watermark`) is always exclusive.
"""

from __future__ import annotations

import base64
import binascii
from typing import NamedTuple

ZERO_ID = bytes(16)
METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID = bytes(15) + b"\x01"

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1
NO_OFFSET = -1
NO_EPOCH = -1
NO_TIMESTAMP = -1
NO_NODE = -1


class TopicPartition(NamedTuple):
    """A partition of a topic; where the clients take one, a plain pair does as well."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndEpoch(NamedTuple):
    offset: int
    epoch: int


def id_text(raw: bytes) -> str:
    """An id as Kafka prints it: 22 characters of url-safe base64."""
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode("ascii")


def id_from_text(text: str) -> bytes:
    """The 16 bytes of an id, or ValueError that says what is wrong with the text."""
    try:
        raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"id {text!r} is not url-safe base64") from error
    if len(raw) != 16:
        raise ValueError(f"id {text!r} has {len(raw)} bytes, expected 16")
    return raw
