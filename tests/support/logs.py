"""Batches and logs for tests of storage."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import Any

from headwater import _core
from headwater.broker.partition import Partition
from headwater.config import TopicConfig, topic_config
from headwater.io import Disk
from headwater.io.memory import MemoryDisk
from headwater.metadata import PartitionState
from headwater.model import TopicPartition
from headwater.storage import UNGUARDED, Log

NOW = 1_750_000_000_000
TP = TopicPartition("orders", 3)
TOPIC_ID = bytes(range(16))
PATH = "/data/orders-3"


class TightDisk(MemoryDisk):
    """Has no room for the n-th new name, and then has again."""

    __slots__ = ("refused",)

    def __init__(self) -> None:
        super().__init__()
        self.refused = 0

    def rename(self, source: str, target: str) -> None:
        if self.refused:
            self.refused -= 1
            if not self.refused:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), target)
        super().rename(source, target)


def batch(
    *values: bytes, timestamp: int = NOW, key: bytes | None = b"key", **options: Any
) -> bytearray:
    """A batch of these values, as a producer sends it. What is not said is plain."""
    return records([(key, value, [], timestamp) for value in values], **options)


def records(
    rows: Sequence[tuple[bytes | None, bytes | None, list[Any], int]], **options: Any
) -> bytearray:
    return bytearray(_core.encode(rows, **options))


def sent(producer_id: int, sequence: int, count: int = 1, epoch: int = 0, **more: Any) -> bytearray:
    """A batch of an idempotent producer."""
    return batch(
        *(b"%d" % (sequence + i) for i in range(count)),
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        **more,
    )


def marker(
    producer_id: int,
    *,
    abort: bool,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    timestamp: int = NOW,
) -> bytearray:
    """The control batch that ends a transaction."""
    kind = 0 if abort else 1
    key = (0).to_bytes(2, "big") + kind.to_bytes(2, "big")
    value = (0).to_bytes(2, "big") + coordinator_epoch.to_bytes(4, "big")
    return bytearray(
        _core.encode(
            [(key, value, [], timestamp)],
            producer_id=producer_id,
            producer_epoch=epoch,
            transactional=True,
            control=True,
        )
    )


def settings(**overrides: object) -> TopicConfig:
    """Settings by Kafka's names, dots as underscores; sizes below Kafka's minimum are allowed."""
    plain = {key.replace("_", "."): str(value) for key, value in overrides.items()}
    if "segment.bytes" in plain:
        plain["internal.segment.bytes"] = plain.pop("segment.bytes")
    return topic_config(plain)


def open_log(disk: Disk | None = None, config: TopicConfig | None = None, **options: Any) -> Log:
    options.setdefault("now_ms", NOW)
    return Log.open(
        disk or MemoryDisk(),
        PATH,
        TP,
        topic_id=TOPIC_ID,
        config=config or topic_config(),
        **options,
    )


def reopen(disk: Disk, log: Log, *, clean: bool, **options: Any) -> Log:
    """The log as the next start finds it."""
    config = log.config
    options.setdefault("recovery_point", log.recovery_point)
    options.setdefault("start", log.start)
    log.close(clean=clean)
    return open_log(disk, config, clean=clean, **options)


def append(log: Log, data: bytearray, *, epoch: int = 0, now_ms: int = NOW, **options: Any) -> int:
    """Appends a batch; a transactional one without verification."""
    options.setdefault("guard", UNGUARDED)
    return log.append_as_leader(data, epoch=epoch, now_ms=now_ms, **options).base_offset


def flush(log: Log) -> None:
    job = log.flush_job()
    if job is not None:
        job.run()
        log.flushed(job)


def lead(
    partition: Partition,
    *,
    epoch: int,
    isr: tuple[int, ...],
    replicas: tuple[int, ...],
    partition_epoch: int | None = None,
    now: float = 0.0,
) -> None:
    """Makes node 1 the leader, or changes its replicas. All brokers are active, with their id as
    epoch."""
    newer = partition.partition_epoch + 1 if partition_epoch is None else partition_epoch
    state = PartitionState(replicas, (bytes(16),) * len(replicas), isr, 1, epoch, newer)
    partition.become_leader(
        state, node_id=1, lag_seconds_max=30.0, active_epoch=lambda broker: broker, now=now
    )


def contents(log: Log) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all records that a reader of everything gets."""
    found: list[tuple[int, bytes | None]] = []
    offset = log.start
    while offset < log.end:
        read = log.read(offset, bytes_max=1 << 20, upto=log.end)
        if read.slice is None:
            break
        for record in _core.decode(read.slice.read(), from_offset=offset):
            found.append((record.offset, record.value))
            offset = record.offset + 1
    return found
