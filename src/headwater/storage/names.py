"""The names of a log's files and directories. All are Kafka's."""

from __future__ import annotations

from headwater.model import TopicPartition

LOG = ".log"
INDEX = ".index"
TIME_INDEX = ".timeindex"
TXN_INDEX = ".txnindex"
SNAPSHOT = ".snapshot"
DELETED = ".deleted"
CLEANED = ".cleaned"
SWAP = ".swap"

LEADER_EPOCHS = "leader-epoch-checkpoint"
PARTITION_METADATA = "partition.metadata"

LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"

DELETE_DIR = "-delete"
FUTURE_DIR = "-future"
STRAY_DIR = "-stray"

SEGMENT_SUFFIXES = (LOG, INDEX, TIME_INDEX, TXN_INDEX)
_NAME_LENGTH_MAX = 255


def offset_name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def offset_of(name: str) -> int | None:
    """Returns the offset at the start of a file name, None if there is none."""
    digits = name.split(".", 1)[0]
    return int(digits) if digits.isascii() and digits.isdigit() else None


def dir_name(tp: TopicPartition) -> str:
    return f"{tp.topic}-{tp.partition}"


def marked_dir_name(tp: TopicPartition, unique: bytes, mark: str) -> str:
    """Returns the name of a directory that is being removed (`-delete`, `-stray`) or copied
    (`-future`). The former are cut to the longest name that file systems take; the latter keep
    their topic."""
    tail = f"-{tp.partition}.{unique.hex()}{mark}"
    topic = tp.topic if mark == FUTURE_DIR else tp.topic[: _NAME_LENGTH_MAX - len(tail)]
    return topic + tail


def parse_dir_name(name: str) -> tuple[TopicPartition, str] | None:
    """Returns the partition and the mark of a directory ("" for a live one), None if it is not a
    log."""
    mark = ""
    for candidate in (DELETE_DIR, FUTURE_DIR, STRAY_DIR):
        if name.endswith(candidate):
            mark = candidate
            stem, dot, unique = name[: -len(candidate)].rpartition(".")
            if not dot or not unique:
                return None
            name = stem
            break
    topic, dash, partition = name.rpartition("-")
    if not dash or not topic or not (partition.isascii() and partition.isdigit()):
        return None
    return TopicPartition(topic, int(partition)), mark
