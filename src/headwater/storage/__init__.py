"""The logs of partitions on disk, in Kafka's format.

`LogDirs` has all logs of a node, `Log` is one of them. Nothing here waits for the device by itself:
what has to wait is returned as a job that a driver runs in a worker.
"""

from __future__ import annotations

from headwater.storage.failures import FullDiskWarnings, StorageFailed
from headwater.storage.flush import FlushJob, TruncationJob
from headwater.storage.log import Log
from headwater.storage.log_dirs import (
    CheckpointJob,
    DeleteJob,
    DirectoryRefused,
    LoadJob,
    LogDirectory,
    LogDirs,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from headwater.storage.producer_state import UNGUARDED, Verification
from headwater.storage.recovery import RecoveryReport
from headwater.storage.reserve import Reserve
from headwater.storage.retention import RetiredSegment
from headwater.storage.segments import LogSlice, TimestampedOffset
from headwater.storage.txn_index import AbortedTransaction
from headwater.storage.validation import Appended, Origin, RecordsRefused

__all__ = [
    "UNGUARDED",
    "AbortedTransaction",
    "Appended",
    "CheckpointJob",
    "DeleteJob",
    "DirectoryRefused",
    "FlushJob",
    "FullDiskWarnings",
    "LoadJob",
    "Log",
    "LogDirectory",
    "LogDirs",
    "LogSlice",
    "MetaProperties",
    "Origin",
    "RecordsRefused",
    "RecoveryReport",
    "Reserve",
    "RetiredSegment",
    "StorageFailed",
    "TimestampedOffset",
    "TruncationJob",
    "Verification",
    "read_meta_properties",
    "write_meta_properties",
]
