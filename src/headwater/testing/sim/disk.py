"""Files of a simulated machine: what was not synced may be gone after a crash.

Each file has two contents: what readers see, and what is known to be on the platter. `sync` copies
the first to the second. A directory likewise: names made, moved or removed are on the platter
after `sync_dir`. What a crash makes of the difference is drawn in `crash.py`.

Files fail when they are told to (`DiskFaults`): a full disk, an input/output error, a slow sync.
A sync that failed is not to be trusted again: as Linux does, the pages count as clean afterwards
and are never written.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from headwater.io import SyncFailed
from headwater.testing.sim.clock import SimClock

if TYPE_CHECKING:
    from typing_extensions import Buffer

PAGE_BYTES = 4096
NAME_BYTES = 256  # what a file costs beyond its content


class Content(bytearray):
    """The bytes of a file, which are their own mapping: Python 3.11 gives the buffer protocol to
    nothing but its own types."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


class Inode:
    """A file behind its names."""

    __slots__ = ("changed_from", "content", "durable", "lost_pages", "mapped", "modified_ms")

    def __init__(self, now_ms: int) -> None:
        self.content = Content()
        self.durable = bytearray()
        self.changed_from: int | None = None  # below this both contents are the same; None: all
        self.mapped = False
        self.lost_pages: set[int] = set()  # a sync failed on these; only a write can save them
        self.modified_ms = now_ms

    def wrote(self, position: int, size: int) -> None:
        """Takes note of a write: the next sync has the whole of each page that it touched."""
        if not size:
            return
        self.changes(position)
        if not self.lost_pages:
            return
        first, last = position // PAGE_BYTES, (position + size - 1) // PAGE_BYTES
        found = self.lost_pages.intersection(range(first, last + 1))
        if found:
            self.lost_pages -= found
            self.changes(first * PAGE_BYTES)

    def changes(self, position: int) -> None:
        if self.changed_from is None or position < self.changed_from:
            self.changed_from = position

    def resizable(self) -> Content:
        """The content, free of those who have mapped it: a mapping keeps its size."""
        if self.mapped:
            self.content = Content(self.content)
            self.mapped = False
            self.changes(0)
        return self.content

    def first_change(self) -> int | None:
        return 0 if self.mapped else self.changed_from

    def sync(self) -> None:
        start = self.first_change()
        if start is None:
            return
        durable = self.durable
        lost = [(page * PAGE_BYTES, (page + 1) * PAGE_BYTES) for page in sorted(self.lost_pages)]
        saved = [bytes(durable[at:end]) for at, end in lost]
        # Only what has changed is copied: a log is synced after each append.
        with memoryview(self.content) as content:
            durable[start:] = content[start:]
        for (at, end), old in zip(lost, saved, strict=True):
            size = max(0, min(end, len(durable)) - at)
            durable[at : at + size] = old[:size].ljust(size, b"\0")
        self.changed_from = None

    def fail_sync(self) -> None:
        start = self.first_change()
        if start is None:
            return
        for at in range(start // PAGE_BYTES * PAGE_BYTES, len(self.content), PAGE_BYTES):
            if self.content[at : at + PAGE_BYTES] != self.durable[at : at + PAGE_BYTES]:
                self.lost_pages.add(at // PAGE_BYTES)


class Directory:
    """Names, as seen and as on the platter, and what was done between the two."""

    __slots__ = ("durable", "entries")

    def __init__(self) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}


Node = Inode | Directory


@dataclass(frozen=True, slots=True)
class Change:
    """One change of names that is not known to be on the platter. A move is one change."""

    node: Node
    removed: tuple[Directory, str] | None
    added: tuple[Directory, str] | None


@dataclass(slots=True)
class DiskFaults:
    """The faults of a disk and their frequency; none at first."""

    error_rate: dict[str, float] = field(default_factory=dict)  # by "read", "write", "sync"
    error_on_call: dict[str, int] = field(default_factory=dict)  # the nth from now fails
    sync_seconds_max: float = 0.0
    cold_rate: float = 0.0

    def clear(self) -> None:
        self.error_rate.clear()
        self.error_on_call.clear()
        self.sync_seconds_max = 0.0
        self.cold_rate = 0.0


class SimFile:
    __slots__ = ("_closed", "_disk", "_holders", "_is_closing", "inode", "path")

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self.path = path
        self.inode = inode
        self._holders = 0
        self._is_closing = False
        self._closed = False

    def _enter(self, kind: str) -> None:
        if self._closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        self._disk.enter(kind, self.path)

    def size(self) -> int:
        return len(self.inode.content)

    def append(self, *parts: Buffer) -> None:
        self._enter("write")
        inode = self.inode
        size = len(inode.content)
        self._disk.take(sum(memoryview(part).nbytes for part in parts), self.path)
        content = inode.resizable()
        inode.changes(size)
        for part in parts:
            content += memoryview(part).cast("B")
        inode.wrote(size, len(content) - size)
        inode.modified_ms = self._disk.clock.wall_ms()

    def pwrite(self, data: Buffer, offset: int) -> None:
        self._enter("write")
        view = memoryview(data).cast("B")
        inode = self.inode
        growth = offset + len(view) - len(inode.content)
        if growth > 0:
            self._disk.take(growth, self.path)
            inode.changes(len(inode.content))
            inode.resizable().extend(bytes(growth))
        inode.wrote(offset, len(view))
        inode.content[offset : offset + len(view)] = view
        inode.modified_ms = self._disk.clock.wall_ms()

    def pread(self, count: int, offset: int) -> bytes:
        self._enter("read")
        return bytes(memoryview(self.inode.content)[offset : max(offset, offset + count)])

    def truncate(self, size: int) -> None:
        self._enter("write")
        self._disk.resize(self.inode, size, self.path)

    def sync(self) -> None:
        disk = self._disk
        try:
            self._enter("sync")
        except SyncFailed:
            self.inode.fail_sync()
            raise
        self.inode.sync()
        disk.wait()

    def is_warm(self, offset: int, count: int) -> bool:
        disk = self._disk
        return disk.random.random() >= disk.faults.cold_rate

    def read_now(self, count: int, offset: int) -> bytes | None:
        if self.is_warm(offset, count):
            with contextlib.suppress(OSError):  # the worker that reads it again reports that
                return self.pread(count, offset)
        return None

    def hold(self) -> None:
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        self._closed = self._is_closing and not self._holders

    def close(self) -> None:
        self._is_closing = True
        self._closed = not self._holders


class _SimLock:
    __slots__ = ("_disk", "_path")

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.pop(self._path, None)


class SimDisk:
    """A tree of files with a bound, from a machine's start to its crash."""

    def __init__(self, clock: SimClock, random: Random, capacity_bytes: int) -> None:
        self.clock = clock
        self.random = random
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.faults = DiskFaults()
        self.dead = False  # the machine has crashed; only ghosts still hold this
        self.waited_seconds = 0.0  # what the job that runs now has spent waiting for the device
        self.locks: dict[str, str] = {}
        self.root = Directory()
        self.changes: list[Change] = []
        self.counts: dict[str, int] = {}

    # Failing

    def enter(self, kind: str, path: str) -> None:
        if self.dead:
            raise OSError(errno.EIO, "the machine has crashed", path)
        self.counts[kind] = self.counts.get(kind, 0) + 1
        faults = self.faults
        countdown = faults.error_on_call.get(kind)
        if countdown is not None:
            if countdown <= 1:
                del faults.error_on_call[kind]
                self._fail(kind, path)
            faults.error_on_call[kind] = countdown - 1
        rate = faults.error_rate.get(kind)
        if rate and self.random.random() < rate:
            self._fail(kind, path)

    def _fail(self, kind: str, path: str) -> None:
        self.counts[f"{kind} error"] = self.counts.get(f"{kind} error", 0) + 1
        if kind == "sync":
            # Some file systems look for room only now.
            code = self.random.choice((errno.EIO, errno.EIO, errno.ENOSPC))
            raise SyncFailed(code, os.strerror(code), path)
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    def take(self, count: int, path: str) -> None:
        if count > 0 and self.used_bytes + count > self.capacity_bytes:
            self.counts["full"] = self.counts.get("full", 0) + 1
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)
        self.used_bytes += count

    @contextlib.contextmanager
    def without_faults(self) -> Iterator[None]:
        """For those who only look: what they read neither fails nor counts."""
        faults, self.faults = self.faults, DiskFaults()
        counts, self.counts = self.counts, {}
        try:
            yield
        finally:
            self.faults, self.counts = faults, counts

    @property
    def is_tight(self) -> bool:
        """Returns whether there is too little room to work with."""
        return self.capacity_bytes - self.used_bytes < 100_000

    def wait(self) -> None:
        if self.faults.sync_seconds_max:
            self.waited_seconds += self.random.random() * self.faults.sync_seconds_max

    # Names

    def _walk(self, path: str) -> Node | None:
        node: Node = self.root
        for name in path.split("/"):
            if not name or name == ".":
                continue
            if not isinstance(node, Directory):
                return None
            found = node.entries.get(name)
            if found is None:
                return None
            node = found
        return node

    def _directory(self, path: str) -> Directory:
        node = self._walk(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return node

    def _parent(self, path: str) -> tuple[Directory, str]:
        above, _, name = path.rstrip("/").rpartition("/")
        return self._directory(above), name

    def _inode(self, path: str) -> Inode:
        node = self._walk(path)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        if not isinstance(node, Inode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
        return node

    def _add(self, directory: Directory, name: str, node: Node) -> None:
        self.take(NAME_BYTES, name)
        directory.entries[name] = node
        self.changes.append(Change(node, None, (directory, name)))

    def _give_back(self, node: Node) -> None:
        self.used_bytes -= NAME_BYTES
        if isinstance(node, Inode):
            self.used_bytes -= len(node.content)

    # Files

    def open(self, path: str, *, create: bool = False, preallocate_bytes: int = 0) -> SimFile:
        self.enter("open", path)
        directory, name = self._parent(path)
        if create and name not in directory.entries:
            self.enter("write", path)
            self._add(directory, name, Inode(self.clock.wall_ms()))
        return SimFile(self, path, self._inode(path))

    def map(self, path: str, size: int | None = None) -> Content:
        file = self.open(path, create=size is not None)
        if size is not None:
            file.truncate(size)
        file.inode.mapped = True
        return file.inode.content

    def read(self, path: str) -> bytes:
        self.enter("read", path)
        return bytes(self._inode(path).content)

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.append(data)
        file.sync()
        file.close()
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        self.enter("look", path)
        return self._walk(path) is not None

    def is_dir(self, path: str) -> bool:
        self.enter("look", path)
        return isinstance(self._walk(path), Directory)

    def list(self, path: str) -> list[str]:
        self.enter("look", path)
        return sorted(self._directory(path).entries)

    def make_dirs(self, path: str) -> None:
        self.enter("write", path)
        directory = self.root
        for name in path.split("/"):
            if not name or name == ".":
                continue
            node = directory.entries.get(name)
            if node is None:
                node = Directory()
                self._add(directory, name, node)
            if not isinstance(node, Directory):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
            directory = node

    def rename(self, source: str, target: str) -> None:
        self.enter("write", source)
        from_directory, from_name = self._parent(source)
        to_directory, to_name = self._parent(target)
        node = from_directory.entries.get(from_name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        replaced = to_directory.entries.get(to_name)
        if replaced is not None and replaced is not node:
            if isinstance(replaced, Directory):
                if replaced.entries or not isinstance(node, Directory):
                    raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), target)
            elif isinstance(node, Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), target)
            self._give_back(replaced)
        del from_directory.entries[from_name]
        to_directory.entries[to_name] = node
        self.changes.append(Change(node, (from_directory, from_name), (to_directory, to_name)))

    def remove(self, path: str) -> None:
        self.enter("write", path)
        node = self._inode(path)
        directory, name = self._parent(path)
        self._unlink(directory, name, node)

    def _unlink(self, directory: Directory, name: str, node: Node) -> None:
        del directory.entries[name]
        self._give_back(node)
        self.changes.append(Change(node, (directory, name), None))

    def remove_tree(self, path: str) -> None:
        self.enter("write", path)
        directory = self._directory(path)
        for name, node in list(directory.entries.items()):
            if isinstance(node, Directory):
                self.remove_tree(f"{path}/{name}")
            else:
                self._unlink(directory, name, node)
        above, name = self._parent(path)
        self._unlink(above, name, directory)

    def size(self, path: str) -> int:
        self.enter("look", path)
        return len(self._inode(path).content)

    def truncate(self, path: str, size: int) -> None:
        self.enter("write", path)
        self.resize(self._inode(path), size, path)

    def resize(self, inode: Inode, size: int, path: str) -> None:
        before = len(inode.content)
        self.take(size - before, path)
        content = inode.resizable()
        inode.changes(min(size, before))
        if size < before:
            del content[size:]
        else:
            content.extend(bytes(size - before))
        inode.modified_ms = self.clock.wall_ms()

    def modified_ms(self, path: str) -> int:
        self.enter("look", path)
        return self._inode(path).modified_ms

    def sync_dir(self, path: str) -> None:
        directory = self._directory(path)
        self.enter("sync", path)
        # A move between two directories is on the platter with the first of them that is synced.
        done = [change for change in self.changes if _touches(change, directory)]
        for change in done:
            apply_to_platter(change)
        self.changes = [change for change in self.changes if not _touches(change, directory)]
        self.wait()

    def space(self, path: str) -> tuple[int, int]:
        self.enter("look", path)
        return self.capacity_bytes, max(0, self.capacity_bytes - self.used_bytes)

    def lock(self, path: str, owner: str) -> _SimLock:
        file = self.open(path, create=True)
        if path in self.locks:
            raise BlockingIOError(self.locks[path])
        with contextlib.suppress(OSError):
            file.truncate(0)
            file.pwrite(owner.encode(), 0)
        self.locks[path] = owner
        return _SimLock(self, path)


def _touches(change: Change, directory: Directory) -> bool:
    return any(end is not None and end[0] is directory for end in (change.removed, change.added))


def apply_to_platter(change: Change) -> None:
    if change.removed is not None:
        directory, name = change.removed
        # Another node may have taken the name since; it keeps it.
        if directory.durable.get(name) is change.node:
            del directory.durable[name]
    if change.added is not None:
        directory, name = change.added
        directory.durable[name] = change.node
