"""Checks batches before they are appended, and stamps them with offsets and epochs.

The order of the checks and the error codes are Kafka's: first the frame of the batch, then the
batch as a whole, then its records. A refused batch has changed nothing.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, NamedTuple

from headwater import _core
from headwater.config import TopicConfig
from headwater.errors import ApiError, ErrorCode
from headwater.model import NO_TIMESTAMP, TopicPartition
from headwater.storage.producer_state import ProducerStates, Verification, read_marker

if TYPE_CHECKING:
    from typing_extensions import Buffer


_CODECS = {"uncompressed": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1
_ERRORS_SHOWN = 3
_CRC, _ATTRIBUTES = 17, 21
_HEADER_BYTES = 61
_LENGTH_OVERHEAD = 12


class Origin(Enum):
    """The source of an append."""

    CLIENT = "client"
    REPLICATION = "replication"
    COORDINATOR = "coordinator"
    RAFT = "raft"


class Appended(NamedTuple):
    """The result of an append. For a duplicate: the result of the first one."""

    base_offset: int
    last_offset: int
    log_append_time: int  # -1 where records keep the time their producer gave them
    log_start: int
    duplicate: bool
    bytes: int


class RecordsRefused(ApiError):
    """Some records of a batch cannot be stored (KIP-467): all are refused, these are named."""

    def __init__(
        self, code: ErrorCode, message: str, record_errors: tuple[tuple[int, str | None], ...]
    ) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class AppendRules:
    """A topic's settings in the form that appends need, computed once for each change."""

    __slots__ = (
        "after_max_ms",
        "before_max_ms",
        "codec",
        "compact",
        "index_entries_max",
        "index_interval_bytes",
        "level",
        "log_append_time",
        "max_message_bytes",
        "preallocate_bytes",
        "segment_bytes",
        "segment_ms",
        "time_entries_max",
    )

    def __init__(self, config: TopicConfig, jitter_seed: int) -> None:
        self.compact = config.compact
        self.log_append_time = config.log_append_time
        self.before_max_ms = config.timestamp_before_max_ms
        self.after_max_ms = config.timestamp_after_max_ms
        self.codec = _CODECS.get(config.compression_type)  # None: as the producer sent it
        self.level = config.compression_level
        self.max_message_bytes = config.max_message_bytes
        self.segment_bytes = config.segment_bytes
        self.index_interval_bytes = config.index_interval_bytes
        self.index_entries_max = config.segment_index_bytes // 8
        self.time_entries_max = (
            config.segment_index_bytes // 12 - 1
        )  # one is for the last timestamp
        self.preallocate_bytes = config.segment_bytes if config.preallocate else 0
        jitter_max = min(config.segment_jitter_ms, config.segment_ms_max)
        # Spread over partitions, so that they do not all roll at once; the same at every start.
        self.segment_ms = config.segment_ms_max - (jitter_seed % jitter_max if jitter_max else 0)


def check_produced(
    data: Buffer, rules: AppendRules, tp: TopicPartition, *, now_ms: int, from_client: bool
) -> _core.Batch:
    """Returns the only batch in `data` if it may be appended. Raises ApiError."""
    try:
        if rules.log_append_time:
            batch = _core.validate(data, keys_required=rules.compact)
        else:
            earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
            batch = _core.validate(
                data,
                timestamp_min=max(_INT64_MIN, earliest),
                timestamp_max=min(_INT64_MAX, latest),
                keys_required=rules.compact,
            )
    except _core.CorruptBatch as corrupt:
        raise _refusal(data, rules, tp, corrupt, from_client=from_client) from None
    if batch.size > rules.max_message_bytes or (from_client and batch.base_offset):
        _check_frame(data, rules, tp, from_client=from_client)
    if from_client and (batch.is_control or (batch.producer_id >= 0 and batch.base_sequence < 0)):
        raise _not_for_clients(batch, tp)
    # Control records have keys of their own, and their times are the broker's.
    if not batch.is_control and (
        batch.keyless or batch.out_of_time or (batch.is_log_append_time and rules.log_append_time)
    ):
        raise _records_refusal(data, batch, rules, tp, now_ms)
    return batch


def stamp(
    data: Buffer,
    batch: _core.Batch,
    rules: AppendRules,
    *,
    base_offset: int,
    epoch: int,
    now_ms: int,
) -> int:
    """Writes offset, epoch and timestamps into the batch; returns its max timestamp."""
    if rules.log_append_time:
        _core.restamp(
            data,
            position=batch.position,
            base_offset=base_offset,
            leader_epoch=epoch,
            log_append_time=now_ms,
        )
        return now_ms
    max_timestamp = batch.found_max_timestamp
    if max_timestamp == batch.max_timestamp and not batch.is_log_append_time:
        _core.restamp(data, position=batch.position, base_offset=base_offset, leader_epoch=epoch)
        return max_timestamp
    _core.restamp(
        data,
        position=batch.position,
        base_offset=base_offset,
        leader_epoch=epoch,
        max_timestamp=max_timestamp,
    )
    return max_timestamp


def only_batch(data: Buffer, size: int, tp: TopicPartition) -> memoryview:
    """Returns the first batch of `data`. Raises ApiError if another one follows."""
    view = memoryview(data).cast("B")
    if _core.scan(view[size:], check_crc=False)[0]:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{tp}: expected one record batch, not several")
    return view[:size]


def recompress(
    data: Buffer, batch: _core.Batch, rules: AppendRules, tp: TopicPartition
) -> bytearray:
    """Returns the batch in the topic's codec."""
    assert rules.codec is not None
    changed = _core.recompress(data, position=batch.position, codec=rules.codec, level=rules.level)
    if len(changed) > rules.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{tp}: the batch has {len(changed)} bytes under the topic's codec, "
            f"max.message.bytes is {rules.max_message_bytes}",
        )
    return bytearray(changed)


def too_large_for_segment(size: int, rules: AppendRules, tp: TopicPartition) -> ApiError:
    return ApiError(
        ErrorCode.RECORD_LIST_TOO_LARGE,
        f"{tp}: the batch has {size} bytes, segment.bytes is {rules.segment_bytes}",
    )


def _batch_size(view: memoryview) -> int:
    return int.from_bytes(view[8:12], "big") + _LENGTH_OVERHEAD


def _check_frame(
    data: Buffer, rules: AppendRules, tp: TopicPartition, *, from_client: bool
) -> None:
    """Checks what must hold before the checksum is even computed."""
    view = memoryview(data).cast("B")
    base_offset = int.from_bytes(view[:8], "big", signed=True)
    if from_client and base_offset != 0:
        raise ApiError(
            ErrorCode.INVALID_RECORD,
            f"{tp}: a produced batch must begin at offset 0, this one at {base_offset}",
        )
    size = _batch_size(view)
    if size > rules.max_message_bytes:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"{tp}: the batch has {size} bytes, max.message.bytes is {rules.max_message_bytes}",
        )


def _refusal(
    data: Buffer,
    rules: AppendRules,
    tp: TopicPartition,
    corrupt: _core.CorruptBatch,
    *,
    from_client: bool,
) -> ApiError:
    """Returns the reason why bytes are not a valid batch."""
    view = memoryview(data).cast("B")
    if len(view) < _LENGTH_OVERHEAD or _batch_size(view) > len(view):
        return ApiError(ErrorCode.INVALID_RECORD, f"{tp}: expected one whole record batch")
    if _batch_size(view) < _HEADER_BYTES:
        return ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{tp}: the batch claims {_batch_size(view)} bytes, less than a header",
        )
    if view[16] > 2:
        return ApiError(
            ErrorCode.CORRUPT_MESSAGE, f"{tp}: the batch has magic {view[16]}; valid are 0, 1 and 2"
        )
    if view[16] != 2:
        return ApiError(
            ErrorCode.INVALID_RECORD,
            f"{tp}: expected a batch of magic 2, this one has {view[16]}",
        )
    try:
        _check_frame(data, rules, tp, from_client=from_client)
    except ApiError as refusal:
        return refusal
    stored = int.from_bytes(view[_CRC : _CRC + 4], "big")
    if stored != _core.crc32c(view[_ATTRIBUTES : _batch_size(view)]):
        return ApiError(
            ErrorCode.CORRUPT_MESSAGE,
            f"{tp}: the batch does not match its checksum {stored:#010x}",
        )
    return ApiError(
        ErrorCode.INVALID_RECORD,
        f"{tp}: the batch is broken at byte {corrupt.position}: {corrupt.reason}",
    )


def _not_for_clients(batch: _core.Batch, tp: TopicPartition) -> ApiError:
    if batch.is_control:
        text = f"{tp}: only brokers write control records"
    else:
        text = (
            f"{tp}: producer {batch.producer_id} sent sequence {batch.base_sequence}, "
            "expected 0 or more"
        )
    return ApiError(ErrorCode.INVALID_RECORD, text)


def _records_refusal(
    data: Buffer, batch: _core.Batch, rules: AppendRules, tp: TopicPartition, now_ms: int
) -> RecordsRefused:
    """Returns a refusal that names the invalid records, each with its first fault."""
    view = memoryview(data).cast("B")[batch.position : batch.position + batch.size]
    errors: list[tuple[int, str]] = []
    invalid_timestamp = False
    earliest, latest = now_ms - rules.before_max_ms, now_ms + rules.after_max_ms
    for index, record in enumerate(_core.decode(view, check_crc=False)):
        has_time = record.timestamp != NO_TIMESTAMP
        if rules.compact and record.key is None:
            text = f"{tp} is compacted: every record needs a key"
            errors.append((index, text))
        elif not rules.log_append_time and has_time:
            if not earliest <= record.timestamp <= latest:
                invalid_timestamp = True
                text = (
                    f"timestamp {record.timestamp} of record {record.offset}, allowed are "
                    f"{earliest} to {latest}"
                )
                errors.append((index, text))
        elif batch.is_log_append_time:
            invalid_timestamp = True
            errors.append((index, "only the broker sets the time of the append"))
    if invalid_timestamp:
        message = f"{tp}: {len(errors)} records have invalid timestamps"
        return RecordsRefused(ErrorCode.INVALID_TIMESTAMP, message, tuple(errors))
    shown = ", ".join(f"record {index}: {text}" for index, text in errors[:_ERRORS_SHOWN])
    message = f"{tp}: {len(errors)} records are refused ({shown})"
    return RecordsRefused(ErrorCode.INVALID_RECORD, message, tuple(errors))


def whole_batches(data: Buffer, tp: TopicPartition) -> list[_core.Batch]:
    """Returns the batches in `data` after checking their checksums. One that is cut short at the
    end is left out; anything else that is wrong is refused."""
    batches, _, reason = _core.scan(data)
    if reason is not None and reason != "truncated":
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{tp}: a batch is corrupt: {reason}")
    return batches


def _check_sizes(batches: list[_core.Batch], rules: AppendRules, tp: TopicPartition) -> None:
    if not batches:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{tp}: no batch to append")
    for batch in batches:
        if batch.size > rules.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"{tp}: a batch has {batch.size} bytes, max.message.bytes is "
                f"{rules.max_message_bytes}",
            )


def check_raft(data: Buffer, rules: AppendRules, tp: TopicPartition, epoch: int) -> None:
    """Checks batches of the metadata log, which come with their offsets and must have their
    leader's epoch."""
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
    guard: Verification | None,
) -> bytearray:
    """Returns a copy of a coordinator's batches, checked and stamped."""
    own = bytearray(data)
    batches = whole_batches(own, tp)
    _check_sizes(batches, rules, tp)
    offset = base_offset
    for batch in batches:
        view = memoryview(own)[batch.position : batch.position + batch.size]
        checked = check_produced(view, rules, tp, now_ms=now_ms, from_client=False)
        _check_producer(checked, view, producers, guard)
        stamp(view, checked, rules, base_offset=offset, epoch=epoch, now_ms=now_ms)
        offset += checked.last_offset_delta + 1
    return own


def _check_producer(
    batch: _core.Batch, view: memoryview, producers: ProducerStates, guard: Verification | None
) -> None:
    if batch.producer_id < 0:
        return
    if not batch.is_control:
        if batch.is_transactional:
            producers.check_verified(batch.producer_id, batch.producer_epoch, guard)
        producers.check(batch, sequenced=False)
        return
    found = read_marker(view)
    if found is not None:
        producers.check_marker(
            batch.producer_id, batch.producer_epoch, found[0], transaction_version=0
        )
