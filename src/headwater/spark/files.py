"""Reads the segments of a partition from the log directory, without the broker.

For hosts that see the log directory. The range was agreed with the broker before (never past the
high watermark), so all of it is in the files already. They belong to another process, which may
delete, compact or rename them meanwhile. An open file stays complete whatever happens to its name;
if a name is gone, the folder is listed again; for an offset that is not found, `NotInFiles` sends
the caller to the broker.

Files are read and not mapped: a mapped file that its owner truncates kills the reader.
"""

from __future__ import annotations

import os.path
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import BinaryIO

from headwater import _core
from headwater.client.ranges import Chunk
from headwater.io import Disk
from headwater.model import ZERO_ID, id_text
from headwater.spark.errors import CorruptSegment, FilesNotVisible, NotInFiles
from headwater.spark.ranges import OffsetRange
from headwater.storage.names import (
    INDEX,
    LOG,
    PARTITION_METADATA,
    TXN_INDEX,
    offset_name,
    offset_of,
)
from headwater.storage.txn_index import AbortedTransaction, TransactionIndex

_CHUNK_BYTES = 8 * 1024 * 1024
_LENGTH_PREFIX_BYTES = 12
_RELATIVE_MAX = 2**31 - 1
_TRIES = 10


def file_chunks(
    disk: Disk,
    log_dir: str,
    wanted: OffsetRange,
    *,
    read_committed: bool,
    log_start: Callable[[], int],
) -> Iterator[Chunk]:
    """Yields the batches of a range, as `RangeReader.chunks` does. The bytes of a chunk are valid
    until the next one. `log_start` asks the broker for the current log start."""
    folder = os.path.join(log_dir, f"{wanted.topic}-{wanted.partition}")
    if not disk.is_dir(folder):
        raise FilesNotVisible(
            f"{wanted}: the broker has it in {folder}, which is not on this host; run Spark where "
            "that directory is visible, or use read.from=broker"
        )
    _check_topic(disk, folder, wanted)
    offset = wanted.start
    while offset < wanted.end:
        before = offset
        base, following, file = _open_segment(disk, folder, offset)
        with file:
            aborted = _aborted(disk, folder, base, wanted) if read_committed else []
            for chunk in _segment_chunks(disk, file, folder, base, offset, wanted.end, aborted):
                offset = chunk.next_offset
                yield chunk
        if offset > before:
            continue
        # The segment ends here. Offsets before the next segment were compacted, unless retention
        # has deleted whole segments, which the broker knows.
        if following is None or log_start() > offset:
            raise NotInFiles(offset, f"{folder} does not have offset {offset}")
        offset = following


def _check_topic(disk: Disk, folder: str, wanted: OffsetRange) -> None:
    """Checks the topic id: a topic that was created again has the same directory."""
    try:
        text = disk.read(os.path.join(folder, PARTITION_METADATA)).decode()
    except OSError:
        return
    named = [line.partition(":")[2].strip() for line in text.splitlines() if "topic_id" in line]
    if wanted.topic_id != ZERO_ID and named and named[0] != id_text(wanted.topic_id):
        raise NotInFiles(wanted.start, f"{folder} belongs to another topic of that name")


def _open_segment(disk: Disk, folder: str, offset: int) -> tuple[int, int | None, BinaryIO]:
    """Opens the segment for an offset: returns its base, that of the next one, and the file. Names
    change while a log is cleaned, so it tries again."""
    for _ in range(_TRIES):
        try:
            names = disk.list(folder)
        except OSError:
            raise NotInFiles(offset, f"{folder} is gone") from None
        bases = sorted(_bases(names))
        at = bisect_right(bases, offset) - 1
        if at < 0:
            raise NotInFiles(offset, f"{folder} starts after offset {offset}")
        following = bases[at + 1] if at + 1 < len(bases) else None
        try:
            path = os.path.join(folder, offset_name(bases[at], LOG))
            return bases[at], following, open(path, "rb", buffering=0)
        except FileNotFoundError:
            continue
    raise NotInFiles(offset, f"the segments of {folder} keep changing")


def _bases(names: list[str]) -> Iterator[int]:
    for name in names:
        base = offset_of(name) if name.endswith(LOG) else None
        if base is not None:
            yield base


def _segment_chunks(
    disk: Disk,
    file: BinaryIO,
    folder: str,
    base: int,
    offset: int,
    end: int,
    aborted: list[AbortedTransaction],
) -> Iterator[Chunk]:
    position = _position_of(disk, folder, base, offset)
    size = _CHUNK_BYTES
    buffer = bytearray(size)
    while offset < end:
        file.seek(position)
        filled = _fill(file, buffer)
        view = memoryview(buffer)[:filled]
        try:
            whole, next_offset, types = _core.extent(view, from_offset=offset)
        except _core.CorruptBatch as error:
            before = _whole_before(view, error.position)
            if before is None:
                raise CorruptSegment(
                    f"{os.path.join(folder, offset_name(base, LOG))}: {error.reason} at byte "
                    f"{position + error.position}"
                ) from None
            view = view[:before]
            whole, next_offset, types = _core.extent(view, from_offset=offset)
        if whole == 0:
            if filled < size:
                return  # the end of the file
            size *= 2  # a batch that is larger than the buffer
            buffer = bytearray(size)
            continue
        position += whole
        if next_offset > offset:
            yield Chunk(
                view[:whole],
                offset,
                next_offset,
                types,
                [
                    (each.producer_id, each.first_offset)
                    for each in aborted
                    if each.last_offset >= offset
                ],
            )
            offset = next_offset


def _fill(file: BinaryIO, buffer: bytearray) -> int:
    view = memoryview(buffer)
    filled = 0
    while filled < len(view):
        count = file.readinto(view[filled:])  # type: ignore[attr-defined]  # of a raw file
        if not count:
            break
        filled += count
    return filled


def _whole_before(view: memoryview, at: int) -> int | None:
    """Returns where the batches end if the rest was preallocated; None if it was not."""
    rest = view[at : at + _LENGTH_PREFIX_BYTES]
    return at if not any(rest) else None


def _position_of(disk: Disk, folder: str, base: int, offset: int) -> int:
    """Returns a byte position at or before the offset, by the index if there is one. The index of
    the active segment may be missing or end in zeros."""
    relative = offset - base
    if not 0 < relative <= _RELATIVE_MAX:
        return 0
    try:
        data = disk.read(os.path.join(folder, offset_name(base, INDEX)))
    except OSError:
        return 0
    entries = array("i")
    entries.frombytes(data[: len(data) - len(data) % 8])
    entries.byteswap()
    offsets, positions = entries[0::2], entries[1::2]
    count = len(offsets)
    while count and offsets[count - 1] == 0 and positions[count - 1] == 0:
        count -= 1
    slot = bisect_right(offsets, relative, 0, count) - 1
    return positions[slot] if slot >= 0 else 0


def _aborted(disk: Disk, folder: str, base: int, wanted: OffsetRange) -> list[AbortedTransaction]:
    """Returns the aborted transactions that overlap the range, from the index of this segment and
    of later ones: a transaction is in the index of the segment in which it ends."""
    found = []
    for name in disk.list(folder):
        if name.endswith(TXN_INDEX) and (offset_of(name) or 0) >= base:
            entries = TransactionIndex(disk, os.path.join(folder, name)).entries()
            found += [each for each in entries if each.first_offset < wanted.end]
    return found
