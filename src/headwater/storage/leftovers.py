"""The files in a partition's directory, once what a crash left half done is finished or gone."""

from __future__ import annotations

from headwater.io import Disk
from headwater.storage import names
from headwater.storage.segment import Segment

_CHECKPOINT_DELETED = ".checkpoint.deleted"  # snapshots of the metadata log are not ours


def tidy(disk: Disk, path: str) -> None:
    """Deleted files go, half-made compacted segments go, whole ones take over from the old."""
    cleaned: list[tuple[int, str]] = []
    swaps: list[tuple[int, str]] = []
    for name in disk.list(path):
        file, offset = f"{path}/{name}", names.offset_of(name)
        if name.endswith(names.DELETED) and not name.endswith(_CHECKPOINT_DELETED):
            disk.remove(file)
        elif name.endswith(names.CLEANED) and offset is not None:
            cleaned.append((offset, file))
        elif name.endswith(names.SWAP) and offset is not None:
            swaps.append((offset, file))
    # Segments that replace others are renamed from the highest offset down: a swap at or above a
    # `.cleaned` file is of a step that had not finished.
    unfinished = min((offset for offset, _ in cleaned), default=None)
    for offset, file in swaps.copy():
        if unfinished is not None and offset >= unfinished:
            disk.remove(file)
            swaps.remove((offset, file))
    for _, file in cleaned:
        disk.remove(file)
    if swaps:
        _swap(disk, path, swaps)


def _swap(disk: Disk, path: str, swaps: list[tuple[int, str]]) -> None:
    first, end = _range_of(disk, swaps)
    for name in disk.list(path):
        offset = names.offset_of(name)
        if offset is not None and not name.endswith(names.SWAP) and first <= offset < end:
            disk.remove(f"{path}/{name}")
    disk.sync_dir(path)  # or one of the old could come back beside the new one that has its offsets
    for _, file in swaps:
        disk.rename(file, file.removesuffix(names.SWAP))


def _range_of(disk: Disk, swaps: list[tuple[int, str]]) -> tuple[int, int]:
    """The offsets that the new segments stand for."""
    first, end = 2**63, -1
    for offset, file in swaps:
        if file.endswith(names.LOG + names.SWAP):
            segment = Segment.find(disk, file.rpartition("/")[0], offset, suffix=names.SWAP)
            first, end = min(first, offset), max(end, offset)
            for _, _, _, last, _ in segment.places(0):
                end = max(end, last + 1)
            segment.close()
    return first, end


def find(disk: Disk, path: str) -> tuple[list[Segment], list[int]]:
    """The segments and the offsets of producer snapshots, both in order. Indexes that belong to no
    segment go."""
    bases: list[int] = []
    snapshots: list[int] = []
    indexes: list[tuple[int | None, str]] = []
    for name in disk.list(path):
        offset = names.offset_of(name)
        if name.endswith((names.INDEX, names.TIME_INDEX, names.TXN_INDEX)):
            indexes.append((offset, name))
        elif offset is not None and name.endswith(names.LOG):
            bases.append(offset)
        elif offset is not None and name.endswith(names.SNAPSHOT):
            snapshots.append(offset)
    known = set(bases)
    for offset, name in indexes:
        if offset not in known:
            disk.remove(f"{path}/{name}")
    return [Segment.find(disk, path, base) for base in sorted(bases)], sorted(snapshots)
