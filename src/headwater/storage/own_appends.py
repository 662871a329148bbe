"""What the broker itself appends: its coordinators' records and markers, the metadata log."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater import _core
from headwater.errors import ApiError, ErrorCode
from headwater.model import TopicPartition
from headwater.storage import appends
from headwater.storage.appends import AppendRules
from headwater.storage.producers import ProducerStates

if TYPE_CHECKING:
    from typing_extensions import Buffer


def whole_batches(data: Buffer, tp: TopicPartition) -> list[_core.Batch]:
    """The batches in `data`, their checksums checked. One that is cut short at the end is left
    out; anything else that is wrong is refused."""
    batches, _, reason = _core.scan(data)
    if reason is not None and reason != "truncated":
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{tp}: a batch is corrupt: {reason}")
    return batches


def _check_sizes(batches: list[_core.Batch], rules: AppendRules, tp: TopicPartition) -> None:
    if not batches:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{tp}: there is no batch to append")
    for batch in batches:
        if batch.size > rules.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{tp}: a batch has {batch.size} bytes, max.message.bytes is "
                f"{rules.max_message_bytes}",
            )


def check_raft(data: Buffer, rules: AppendRules, tp: TopicPartition, epoch: int) -> None:
    """Batches of the metadata log come with their offsets and must be of their leader's epoch."""
    batches = whole_batches(data, tp)
    _check_sizes(batches, rules, tp)
    for batch in batches:
        if batch.leader_epoch != epoch:
            raise ApiError(
                ErrorCode.INVALID_RECORD,
                f"{tp}: the batch at {batch.base_offset} has epoch {batch.leader_epoch}, "
                f"its leader {epoch}",
            )


def stamp_coordinators(
    data: Buffer,
    rules: AppendRules,
    tp: TopicPartition,
    producers: ProducerStates,
    *,
    base_offset: int,
    epoch: int,
    now_ms: int,
) -> bytearray:
    """A copy of a coordinator's batches, checked and stamped."""
    own = bytearray(data)
    batches = whole_batches(own, tp)
    _check_sizes(batches, rules, tp)
    offset = base_offset
    for batch in batches:
        view = memoryview(own)[batch.position : batch.position + batch.size]
        checked = appends.check_produced(view, rules, tp, now_ms=now_ms, from_client=False)
        _check_producer(checked, view, producers, offset)
        appends.stamp(view, checked, rules, base_offset=offset, epoch=epoch, now_ms=now_ms)
        offset += checked.last_offset_delta + 1
    return own


def _check_producer(
    batch: _core.Batch, view: memoryview, producers: ProducerStates, offset: int
) -> None:
    if batch.producer_id < 0:
        return
    if not batch.is_control:
        producers.check(batch, offset, sequenced=False)
        return
    found = appends.read_marker(view)
    if found is not None:
        producers.check_marker(batch, offset, found[0])
