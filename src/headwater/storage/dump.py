"""Prints and checks the files of a log: `headwater log dump` and `headwater log verify`.

Works on any directory in Kafka's format, ours or Kafka's, whether its node runs or not, and changes
nothing. A directory may be a partition's or a log directory with many of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from struct import Struct
from typing import Any, NamedTuple

from headwater import _core
from headwater.io import Disk
from headwater.metadata.shown import has_secret, shown_record
from headwater.model import METADATA_TOPIC, id_text
from headwater.storage import checkpoints, names
from headwater.storage.checkpoints import read_topic_id
from headwater.storage.producer_state import SnapshotCorrupt, read_snapshot
from headwater.storage.segment import Segment
from headwater.storage.txn_index import TransactionIndex

Row = dict[str, Any]

_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_METADATA_FOLDER = f"{METADATA_TOPIC}-0"
_OFFSET_ENTRY = Struct(">ii")
_TIME_ENTRY = Struct(">qi")


class Finding(NamedTuple):
    """A problem in a file."""

    path: str
    what: str


def dump(disk: Disk, path: str, *, records: bool = False, secrets: bool = False) -> Iterator[Row]:
    """Yields a row for every batch, index entry, transaction, producer and epoch, in the order of
    the files' names; with `records`, also one for every record, after its batch. The value of a
    metadata record is a dict of its fields; passwords and keys in it are shown with `secrets`."""
    for file in _files(disk, path):
        folder, _, name = file.rpartition("/")
        offset = names.offset_of(name)
        if name.endswith(names.LOG) and offset is not None:
            for found in _batches(Segment.find(disk, folder, offset), file, records=records):
                if "value" in found:
                    _show_metadata(found, folder, secrets=secrets)
                yield found
        elif name.endswith(names.INDEX) and offset is not None:
            for relative, position in _entries(disk, file, _OFFSET_ENTRY):
                yield {"file": file, "offset": offset + relative, "position": position}
        elif name.endswith(names.TIME_INDEX) and offset is not None:
            for timestamp, relative in _entries(disk, file, _TIME_ENTRY):
                yield {"file": file, "timestamp": timestamp, "offset": offset + relative}
        elif name.endswith(names.TXN_INDEX):
            for entry in TransactionIndex(disk, file).entries():
                yield {"file": file, **entry._asdict()}
        elif name.endswith(names.SNAPSHOT) and offset is not None:
            yield from _producers(disk, file)
        elif name == names.LEADER_EPOCHS:
            for row in checkpoints.parse(disk.read(file), path=file):
                epoch, start = map(int, row.split())
                yield {"file": file, "epoch": epoch, "start_offset": start}
        elif name == names.PARTITION_METADATA:
            topic_id = read_topic_id(disk, folder)
            yield {"file": file, "topic_id": id_text(topic_id) if topic_id else None}


def verify(disk: Disk, path: str) -> Iterator[Finding]:
    """Yields the problems of the files; none if all is well."""
    files = _files(disk, path)
    ends: dict[str, int] = {}
    for file in files:
        folder, _, name = file.rpartition("/")
        offset = names.offset_of(name)
        if name.endswith(names.LOG) and offset is not None:
            segment = Segment.find(disk, folder, offset)
            findings, end = _verify_segment(segment, file)
            yield from findings
            if offset < ends.get(folder, 0):
                yield Finding(file, f"begins below {ends[folder]}, where the one before ends")
            ends[folder] = end
            for index, problem in _verify_indexes(disk, segment):
                yield Finding(index, problem)
            segment.close()
        elif name.endswith(names.SNAPSHOT) and offset is not None:
            try:
                list(read_snapshot(disk.read(file)))
            except SnapshotCorrupt as corrupt:
                yield Finding(file, str(corrupt))
        elif name == names.LEADER_EPOCHS:
            yield from _verify_epochs(disk, file)
        elif name == names.PARTITION_METADATA and read_topic_id(disk, folder) is None:
            yield Finding(file, "has no topic id that can be read")


def has_log(disk: Disk, path: str) -> bool:
    """Returns whether there is a file that `dump` and `verify` can read: a mistyped path must not
    pass for one without problems. A log directory without a partition counts, too."""
    return any(_is_known(file.rpartition("/")[2]) for file in _files(disk, path))


def _is_known(name: str) -> bool:
    endings = (names.LOG, names.INDEX, names.TIME_INDEX, names.TXN_INDEX, names.SNAPSHOT)
    if name.endswith(endings):
        return names.offset_of(name) is not None
    return name in (names.LEADER_EPOCHS, names.PARTITION_METADATA, names.META_PROPERTIES)


def _files(disk: Disk, path: str) -> list[str]:
    """Yields the file itself, the files of a partition, or those of all partitions in a
    directory."""
    path = path.rstrip("/")
    if not disk.is_dir(path):
        return [path]
    files = []
    for name in disk.list(path):
        inside = f"{path}/{name}"
        if not disk.is_dir(inside):
            files.append(inside)
        elif names.parse_dir_name(name) is not None:
            files += [f"{inside}/{file}" for file in disk.list(inside)]
    return files


def _batches(segment: Segment, file: str, *, records: bool) -> Iterator[Row]:
    scan = segment.scan(check_crc=True)
    for position, batch, chunk in scan:
        yield {
            "file": file,
            "position": position,
            "size": batch.size,
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "count": batch.count,
            "leader_epoch": batch.leader_epoch,
            "codec": _CODECS[batch.codec],
            "timestamp_type": "LogAppendTime" if batch.is_log_append_time else "CreateTime",
            "max_timestamp": batch.max_timestamp,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "transactional": batch.is_transactional,
            "control": batch.is_control,
            "crc": batch.crc,
        }
        if records:
            data = memoryview(chunk)[batch.position : batch.position + batch.size]
            for record in _core.decode(data, check_crc=False):
                yield {
                    "file": file,
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": record.key,
                    "value": record.value,
                    "headers": record.headers,
                }
    segment.close()
    if scan.reason is not None:
        left = segment.size - scan.position
        yield {"file": file, "position": scan.position, "size": left, "problem": scan.reason}


def _show_metadata(row: Row, folder: str, *, secrets: bool) -> None:
    """Decodes the value of a metadata record; of one with a secret also in a file that was copied
    elsewhere. The records of control batches have keys, and nothing to hide."""
    value = row["value"]
    if value is None or row["key"] is not None:
        return
    if folder.endswith(_METADATA_FOLDER) or has_secret(value):
        row["value"] = shown_record(value, secrets=secrets)


def _entries(disk: Disk, file: str, entry: Struct) -> Iterator[tuple[int, ...]]:
    data = disk.read(file)
    for row in entry.iter_unpack(data[: len(data) - len(data) % entry.size]):
        if not any(row) and len(data) > entry.size:
            return  # the rest of a preallocated file
        yield row


def _producers(disk: Disk, file: str) -> Iterator[Row]:
    for producer in read_snapshot(disk.read(file)):
        yield {
            "file": file,
            "producer_id": producer.producer_id,
            "producer_epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "last_timestamp": producer.last_timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "txn_first_offset": producer.txn_first_offset,
        }


def _verify_segment(segment: Segment, file: str) -> tuple[list[Finding], int]:
    """Reads all batches and the records in them; returns the offset after the last good one."""
    findings = []
    end = segment.base
    scan = segment.scan(check_crc=True)
    for position, batch, chunk in scan:
        if batch.base_offset < end:
            text = f"offset {batch.base_offset} at byte {position}, {end} or more was expected"
            findings.append(Finding(file, text))
        end = max(end, batch.last_offset + 1)
        data = memoryview(chunk)[batch.position : batch.position + batch.size]
        try:
            _core.decode(data, check_crc=False)
        except _core.CorruptBatch as corrupt:
            text = f"batch at byte {position}: {corrupt.reason} at its byte {corrupt.position}"
            findings.append(Finding(file, text))
    if scan.reason is not None:
        left = segment.size - scan.position
        findings.append(
            Finding(file, f"{scan.reason} at byte {scan.position}; {left} bytes cannot be read")
        )
    return findings, end


def _verify_indexes(disk: Disk, segment: Segment) -> Iterator[tuple[str, str]]:
    index, time_index = segment.path(names.INDEX), segment.path(names.TIME_INDEX)
    for path, entry in ((index, _OFFSET_ENTRY), (time_index, _TIME_ENTRY)):
        if not disk.exists(path):
            if segment.size:  # Kafka makes the indexes of a new segment when it first needs them
                yield path, "is missing"
            return
        if disk.size(path) % entry.size:
            yield path, f"has {disk.size(path)} bytes, not a multiple of {entry.size}"
    places = {place[0]: place for place in segment.headers(0)}
    for relative, position in _entries(disk, index, _OFFSET_ENTRY):
        place = places.get(position)
        if place is None or place[3] != segment.base + relative:
            yield index, f"offset {segment.base + relative} is not at byte {position}"
    newest = {place[3]: place[4] for place in places.values()}
    for timestamp, relative in _entries(disk, time_index, _TIME_ENTRY):
        if newest.get(segment.base + relative) != timestamp:
            yield time_index, f"offset {segment.base + relative} has no timestamp {timestamp}"
    for transaction in segment.txn_index.entries():
        if not segment.base <= transaction.last_offset:
            yield segment.path(names.TXN_INDEX), f"{transaction} ends before its segment begins"


def _verify_epochs(disk: Disk, file: str) -> Iterator[Finding]:
    try:
        rows = [
            tuple(map(int, row.split())) for row in checkpoints.parse(disk.read(file), path=file)
        ]
    except ValueError as malformed:
        yield Finding(file, str(malformed))
        return
    for before, after in pairwise(rows):
        if after[0] <= before[0] or after[1] < before[1]:
            yield Finding(
                file, f"epoch {after[0]} at {after[1]} follows {before[0]} at {before[1]}"
            )
