"""The contents of a disk after a power cut.

Of all that was not synced, each piece survives or not by itself: pages of a file, a file's size,
names in a directory. The last page of a write may be torn. Three things hold, as on every file
system that people use: a move is done or not done; of the changes to one file's name the earlier
ones are kept if the later ones are; and names leave a directory in the order in which they were
taken out of it. Half of the crashes are as a journal makes them: all changes of names up to some
moment are kept, and none after.
"""

from __future__ import annotations

from random import Random

from headwater.testing.sim.disk import (
    NAME_BYTES,
    PAGE_BYTES,
    Change,
    Content,
    Directory,
    Inode,
    Node,
    SimDisk,
    apply_to_platter,
)

_SECTOR_BYTES = 512


def after_power_cut(disk: SimDisk, random: Random) -> SimDisk:
    """The disk that the machine finds when it starts again. The old one is dead."""
    for change in _kept(disk.changes, random):
        apply_to_platter(change)
    surviving = _successor(disk)
    # A generous reader would keep all or nothing; the mixture of both is where bugs live.
    keep_rate = random.choice((0.0, 0.5, 0.5, 0.9, 1.0))
    nodes: dict[int, Node] = {}
    surviving.root = _rebuild(disk.root, random, keep_rate, nodes, surviving)
    return surviving


def after_kill(disk: SimDisk) -> SimDisk:
    """The disk after the process alone was killed: the kernel still has every page."""
    surviving = _successor(disk)
    surviving.root = disk.root
    surviving.changes = disk.changes
    surviving.used_bytes = disk.used_bytes
    return surviving


def _successor(disk: SimDisk) -> SimDisk:
    disk.dead = True
    surviving = SimDisk(disk.clock, disk.random, disk.capacity_bytes)
    surviving.faults = disk.faults
    surviving.counts = disk.counts
    return surviving


def _kept(changes: list[Change], random: Random) -> list[Change]:
    if random.random() < 0.5:
        return changes[: random.randint(0, len(changes))]
    lost: set[int] = set()  # nodes, and directories that names no longer leave
    kept = []
    keep_rate = random.choice((0.2, 0.5, 0.9))
    for change in changes:
        bound = [id(change.node)]
        if change.removed is not None:
            bound.append(id(change.removed[0]))
        if lost.isdisjoint(bound) and random.random() < keep_rate:
            kept.append(change)
        else:
            lost.update(bound)
    return kept


def _rebuild(
    directory: Directory,
    random: Random,
    keep_rate: float,
    nodes: dict[int, Node],
    disk: SimDisk,
) -> Directory:
    fresh = Directory()
    nodes[id(directory)] = fresh
    for name in sorted(directory.durable):
        node = directory.durable[name]
        found = nodes.get(id(node))
        if found is not None:
            continue  # moved from one directory to another; the name that was seen first stays
        disk.used_bytes += NAME_BYTES
        if isinstance(node, Directory):
            found = _rebuild(node, random, keep_rate, nodes, disk)
        else:
            found = _after_crash(node, random, keep_rate)
            nodes[id(node)] = found
            disk.used_bytes += len(found.content)
        fresh.entries[name] = found
    fresh.durable = dict(fresh.entries)
    return fresh


def _after_crash(inode: Inode, random: Random, keep_rate: float) -> Inode:
    fresh = Inode(inode.modified_ms)
    old, new = inode.durable, inode.content
    size = _size_after_crash(len(old), len(new), random, keep_rate)
    start = inode.first_change()
    content = bytearray(old[:size].ljust(size, b"\0"))
    if start is not None:
        for page in range(start // PAGE_BYTES, -(-size // PAGE_BYTES)):
            if page in inode.lost_pages:
                continue
            at = page * PAGE_BYTES
            piece = new[at : min(at + PAGE_BYTES, size)]
            if piece != content[at : at + len(piece)] and random.random() < keep_rate:
                if random.random() < 0.25:
                    piece = piece[: _tear(len(piece), random)]
                content[at : at + len(piece)] = piece
    fresh.content = Content(content)
    fresh.durable = content
    return fresh


def _size_after_crash(old: int, new: int, random: Random, keep_rate: float) -> int:
    if old == new or keep_rate == 0.0:
        return old
    if keep_rate == 1.0 or random.random() < keep_rate:
        return new
    if new < old:
        return old
    return random.choice((old, random.randint(old, new)))


def _tear(length: int, random: Random) -> int:
    if length > _SECTOR_BYTES and random.random() < 0.5:
        return random.randrange(0, length, _SECTOR_BYTES)
    return random.randint(0, length)
