"""Offsets of partitions: the first, the last, and those of a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from headwater.client.admin.results import or_raise
from headwater.client.errors import ClientError
from headwater.client.requests import list_offsets as requests
from headwater.client.requests.list_offsets import OffsetAndTimestamp, OffsetSpec
from headwater.client.timestamps import Timestamp, to_milliseconds
from headwater.model import TopicPartition

if TYPE_CHECKING:
    from headwater.client.admin import Admin

Isolation = Literal["read_uncommitted", "read_committed"]
OffsetQuestion = OffsetSpec | Timestamp


@dataclass(frozen=True, slots=True)
class OffsetFound:
    """An offset; None if there is no such record. `timestamp` (milliseconds) is the record's, where
    the response is about a record."""

    offset: int | None
    timestamp: int | None = None
    leader_epoch: int | None = None


async def list_offsets(
    admin: Admin,
    partitions: Mapping[TopicPartition, OffsetQuestion],
    *,
    isolation: Isolation = "read_uncommitted",
    timeout_ms: int | None = None,
) -> dict[TopicPartition, OffsetFound | ClientError]:
    """Returns the offset in each partition for an `OffsetSpec` or a time: that of the first record
    at or after it. A time is a datetime (local time if it has no time zone) or milliseconds since
    1970."""
    if isolation not in ("read_uncommitted", "read_committed"):
        raise ValueError(f'isolation is "read_uncommitted" or "read_committed", not {isolation!r}')
    timestamps = {
        TopicPartition(*where): to_milliseconds(question) for where, question in partitions.items()
    }
    results = await requests.list_offsets(
        admin._router,
        timestamps,
        read_committed=isolation == "read_committed",
        timeout_ms=timeout_ms,
    )
    return {
        tp: each if isinstance(each, ClientError) else _found(each) for tp, each in results.items()
    }


def _found(each: OffsetAndTimestamp) -> OffsetFound:
    return OffsetFound(
        offset=None if each.offset < 0 else each.offset,
        timestamp=None if each.timestamp < 0 else each.timestamp,
        leader_epoch=None if each.leader_epoch < 0 else each.leader_epoch,
    )


async def topic_offsets(
    admin: Admin,
    topic: str,
    at: OffsetQuestion = OffsetSpec.LATEST,
    *,
    isolation: Isolation = "read_uncommitted",
    timeout_ms: int | None = None,
) -> dict[int, OffsetFound]:
    """Returns the same for every partition of a topic."""
    from headwater.client.admin.topics import describe_topic

    deadline = admin._router.deadline(timeout_ms)
    about = await describe_topic(admin, topic, timeout_ms=timeout_ms)
    found = or_raise(
        await list_offsets(
            admin,
            {TopicPartition(topic, each.index): at for each in about.partitions},
            isolation=isolation,
            timeout_ms=admin._router.left_ms(deadline),
        )
    )
    return {where.partition: each for where, each in found.items()}
