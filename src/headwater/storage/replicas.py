"""Compares the replicas of partitions in the directories of several nodes: `headwater log verify`.

All replicas of a partition are the same bytes up to the high watermark. Behind it they may differ:
a follower lags, and what an old leader wrote alone is cut when it follows the new one. Each node
keeps the high watermark that it knew last in `replication-offset-checkpoint`; the highest of a
partition is the best known. Segments need not begin at the same offsets, so batches are compared.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest

from headwater import _core
from headwater.io import Disk
from headwater.model import METADATA_TOPIC, TopicPartition, id_text
from headwater.storage import checkpoints, names
from headwater.storage.checkpoints import read_topic_id
from headwater.storage.dump import Finding
from headwater.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class Replica:
    """A partition in one directory."""

    path: str
    topic_id: bytes | None
    high_watermark: int | None  # as its node has noted it
    cleaned_to: int  # compaction may have removed records below
    # Its file of leader epochs has those that begin below. After a crash the next start reads the
    # others from the log. None if it has all of them.
    epochs_to: int | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome for a partition: up to where replicas were compared, what differs, and what is
    worth knowing although nothing is wrong."""

    partition: TopicPartition
    replicas: tuple[str, ...]
    compared_from: int = 0
    compared_to: int = 0
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()


def compare(disk: Disk, paths: Iterable[str]) -> Iterator[Comparison]:
    """Compares each partition that is in more than one of the directories, in order."""
    found: dict[TopicPartition, list[Replica]] = {}
    for path in dict.fromkeys(path.rstrip("/") for path in paths):
        for partition, replica in _replicas(disk, path):
            found.setdefault(partition, []).append(replica)
    for partition, replicas in sorted(found.items()):
        if len(replicas) > 1:
            yield _compare(disk, partition, replicas)


def _replicas(disk: Disk, path: str) -> Iterator[tuple[TopicPartition, Replica]]:
    """Yields the replicas in a log directory, or the one whose directory this is."""
    above, _, last = path.rpartition("/")
    own = names.parse_dir_name(last)
    if own is not None and disk.is_dir(path) and not disk.exists(f"{path}/{names.META_PROPERTIES}"):
        folders = [(above or ".", last)]
    elif disk.is_dir(path):
        folders = [(path, name) for name in disk.list(path)]
    else:
        return
    parent = folders[0][0] if folders else path
    marks = checkpoints.read_offsets(disk, f"{parent}/{names.HIGH_WATERMARKS}")
    cleaned = checkpoints.read_offsets(disk, f"{parent}/{names.CLEANER_OFFSETS}")
    durable = checkpoints.read_offsets(disk, f"{parent}/{names.RECOVERY_POINTS}")
    is_clean = disk.exists(f"{parent}/{names.CLEAN_SHUTDOWN}")
    for _, name in folders:
        parsed = names.parse_dir_name(name)
        folder = f"{parent}/{name}"
        if parsed is None or parsed[1] or not disk.is_dir(folder):
            continue
        partition = parsed[0]
        if partition.topic == METADATA_TOPIC:
            continue  # its high watermark is in no file
        yield (
            partition,
            Replica(
                folder,
                read_topic_id(disk, folder),
                marks.get(partition),
                cleaned.get(partition, 0),
                None if is_clean else durable.get(partition, 0),
            ),
        )


def _compare(disk: Disk, partition: TopicPartition, replicas: list[Replica]) -> Comparison:
    paths = tuple(each.path for each in replicas)
    ids = {each.topic_id for each in replicas if each.topic_id is not None}
    if len(ids) > 1:
        shown = ", ".join(sorted(map(id_text, ids)))
        different = Finding(
            paths[0], f"not the same topic as in the other directories: ids {shown}"
        )
        return Comparison(partition, paths, findings=(different,))
    known = [each.high_watermark for each in replicas if each.high_watermark is not None]
    if not known:
        note = "no node has noted a high watermark, so nothing can be compared"
        return Comparison(partition, paths, notes=(note,))
    high_watermark = max(known)
    logs = [_Log(disk, each.path) for each in replicas]
    notes = []
    start = max((log.start for log in logs), default=0)
    cleaned_to = max(each.cleaned_to for each in replicas)
    if cleaned_to > start:
        start = cleaned_to
        notes.append(
            f"compacted up to {cleaned_to}, which nodes do by themselves: compared from there"
        )
    for replica, log in zip(replicas, logs, strict=True):
        if log.end < high_watermark:
            notes.append(
                f"{replica.path} ends at {log.end}, the high watermark is {high_watermark}: it was "
                "not in sync, or has lost its end"
            )
    findings: list[Finding] = []
    longest = max(range(len(logs)), key=lambda index: logs[index].end)
    for index, log in enumerate(logs):
        if index != longest:
            end = min(high_watermark, log.end)
            findings += _differences(logs[longest], log, start, end)
            durable = (replicas[longest].epochs_to, replicas[index].epochs_to)
            end = min([end, *(to for to in durable if to is not None)])
            findings += _epoch_differences(disk, logs[longest], log, start, end)
    end = min([high_watermark, *(log.end for log in logs)])
    return Comparison(partition, paths, start, max(start, end), tuple(findings), tuple(notes))


@dataclass(frozen=True, slots=True)
class _Held:
    """A batch, and its bytes."""

    batch: _core.Batch
    data: memoryview

    @property
    def offsets(self) -> tuple[int, int]:
        return self.batch.base_offset, self.batch.last_offset


class _Log:
    """The segments of a replica, for reading."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self._bases = sorted(
            base
            for name in disk.list(path)
            if name.endswith(names.LOG) and (base := names.offset_of(name)) is not None
        )
        self.start = self._bases[0] if self._bases else 0
        self.end = self._end()

    def _end(self) -> int:
        end = self._bases[-1] if self._bases else 0
        for held in self.batches(end, None):
            end = held.batch.last_offset + 1
        return end

    def batches(self, start: int, end: int | None) -> Iterator[_Held]:
        """Yields the whole batches in a range of offsets, up to the first that is damaged, which
        `verify` reports."""
        for index, base in enumerate(self._bases):
            following = self._bases[index + 1] if index + 1 < len(self._bases) else None
            if following is not None and following <= start:
                continue
            segment = Segment.find(self._disk, self.path, base)
            try:
                for _, batch, chunk in segment.scan(check_crc=False):
                    if end is not None and batch.last_offset >= end:
                        return
                    if batch.base_offset >= start:
                        data = memoryview(chunk)[batch.position : batch.position + batch.size]
                        yield _Held(batch, data)
            finally:
                segment.close()


def _differences(longest: _Log, other: _Log, start: int, end: int) -> list[Finding]:
    """Returns the first difference: those behind it follow from it."""
    for mine, its in zip_longest(longest.batches(start, end), other.batches(start, end)):
        if mine is None or its is None:
            held, lacking = (its, longest) if mine is None else (mine, other)
            first, last = held.offsets
            return [
                Finding(
                    lacking.path,
                    f"lacks offsets {first} to {last}, which are below the high watermark",
                )
            ]
        if mine.offsets != its.offsets:
            return [
                Finding(
                    other.path,
                    f"has a batch with offsets {_span(its)} where {longest.path} has {_span(mine)}"
                    f"{_epochs(mine, its)}",
                )
            ]
        if mine.data != its.data:
            what = f"offsets {_span(its)} are not the bytes that {longest.path} has"
            return [Finding(other.path, what + (_epochs(mine, its) or _crc(mine, its)))]
    return []


def _span(held: _Held) -> str:
    first, last = held.offsets
    return f"{first} to {last}"


def _epochs(mine: _Held, its: _Held) -> str:
    one, other = its.batch.leader_epoch, mine.batch.leader_epoch
    if one == other:
        return ""
    return (
        f": they are of leader epoch {one}, the others of {other}; records that another leader "
        "replaced were kept"
    )


def _crc(mine: _Held, its: _Held) -> str:
    is_damaged = []
    for held in (its, mine):
        _, _, reason = _core.scan(held.data, check_crc=True)
        is_damaged.append(reason is not None)
    match is_damaged:
        case [True, False]:
            return ": its checksum is wrong, the other's is right; the file is damaged"
        case [False, True]:
            return ": its checksum is right, the other's is wrong; the other file is damaged"
        case _:
            return (
                ", though the leader epoch is the same: one of them was changed outside the cluster"
            )


def _epoch_differences(
    disk: Disk, longest: _Log, other: _Log, start: int, end: int
) -> list[Finding]:
    """Compares where leader epochs begin, as far as both have these offsets."""
    mine, its = (_epoch_starts(disk, log.path, start, end) for log in (longest, other))
    if mine == its:
        return []
    shown = [", ".join(f"{epoch} at {at}" for epoch, at in each) or "none" for each in (its, mine)]
    return [
        Finding(
            f"{other.path}/{names.LEADER_EPOCHS}",
            f"leader epochs begin elsewhere than in {longest.path}: {shown[0]}; there {shown[1]}",
        )
    ]


def _epoch_starts(disk: Disk, path: str, start: int, end: int) -> list[tuple[int, int]]:
    file = f"{path}/{names.LEADER_EPOCHS}"
    if not disk.exists(file):
        return []
    try:
        rows = [row.split() for row in checkpoints.parse(disk.read(file), path=file)]
    except ValueError:
        return []  # `verify` reports it
    return [(int(epoch), int(at)) for epoch, at in rows if start < int(at) < end]
