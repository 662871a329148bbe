"""Files of the host.

A `Disk` lists and opens files, a `File` is an open file, a `Mapping` a memory-mapped file (the
indexes), a `FileSlice` a range of a file that is sent to a socket without being copied. All calls
may block; those that wait for the device (`sync`, `write_atomically`, reads of cold data) belong in
`Workers`, except at start and stop. Errors are Python's `OSError`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Protocol

from headwater import _core

if TYPE_CHECKING:
    from typing_extensions import Buffer

_PROBE_STRIDE_BYTES = 256 * 1024
# Of a file system that does not know RWF_NOWAIT.
_NO_NOWAIT = (errno.EOPNOTSUPP, errno.EINVAL)
_CLOSED = -1


class Mapping(Protocol):
    """A file as writable memory, usable with `struct.pack_into` and `unpack_from`."""

    def __len__(self) -> int: ...

    def __getitem__(self, key: slice) -> bytes | bytearray: ...

    def __setitem__(self, key: slice, value: bytes) -> None: ...

    def __buffer__(self, flags: int, /) -> memoryview: ...

    def flush(self) -> None: ...

    def close(self) -> None: ...


class File(Protocol):
    path: str

    def size(self) -> int: ...

    def append(self, *parts: Buffer) -> None:
        """Writes all parts at the end. After an error the size is unchanged."""

    def pwrite(self, data: Buffer, offset: int) -> None: ...

    def pread(self, count: int, offset: int) -> bytes:
        """Reads `count` bytes; fewer only at the end of the file."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def is_warm(self, offset: int, count: int) -> bool:
        """Returns whether the range can probably be read without waiting for the device."""

    def read_now(self, count: int, offset: int) -> Buffer | None:
        """Returns the range, None if that would have to wait for the device or fails."""

    def hold(self) -> None:
        """Keeps the file open for a reader: `close` takes effect with the last `release`."""

    def release(self) -> None: ...

    def close(self) -> None:
        """Closes the file when its last holder has released it."""


class FileSlice:
    """`count` bytes of a file from `position`. The file stays open until the slice is closed."""

    __slots__ = ("_is_open", "count", "file", "position")

    def __init__(self, file: File, position: int, count: int) -> None:
        self.file = file
        self.position = position
        self.count = count
        self._is_open = True
        file.hold()

    def __len__(self) -> int:
        return self.count

    def read(self) -> bytes:
        return self.file.pread(self.count, self.position)

    def close(self) -> None:
        """Releases the file. Code that sends or drops a slice must close it: an exception may keep
        the slice in its traceback, and a deleted file takes disk space while it is open."""
        if self._is_open:
            self._is_open = False
            self.file.release()

    __del__ = close


def close_slices(parts: Iterable[object]) -> None:
    """Closes the slices among the parts of a response that is not sent."""
    for part in parts:
        if isinstance(part, FileSlice):
            part.close()


class DiskLock(Protocol):
    def release(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False, preallocate_bytes: int = 0) -> File:
        """Opens a file for reading and writing. With `preallocate_bytes` a new file reserves that
        space while its `size()` stays 0; `truncate(size())` before closing releases the rest."""

    def map(self, path: str, size: int | None = None) -> Mapping:
        """Maps the whole file; with `size`, creates it or sets it to that size first."""

    def read(self, path: str) -> bytes: ...

    def write_atomically(self, path: str, data: bytes) -> None:
        """Replaces the content of a file durably: after a crash it has the old or the new content.
        Writes a temporary file, syncs it, renames it and syncs the directory."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list(self, path: str) -> list[str]:
        """Returns the names in a directory, sorted."""

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None: ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def size(self, path: str) -> int: ...

    def truncate(self, path: str, size: int) -> None: ...

    def modified_ms(self, path: str) -> int: ...

    def sync_dir(self, path: str) -> None: ...

    def space(self, path: str) -> tuple[int, int]:
        """Returns the total and the usable bytes of the file system."""

    def lock(self, path: str, owner: str) -> DiskLock:
        """Locks a file; raises BlockingIOError with the name that its holder has written."""


class SyncFailed(OSError):
    """A sync failed. The content of the device is unknown, and a later sync that succeeds proves
    nothing. File systems with delayed allocation report a full disk here as well."""


def _sync(sync: Callable[[int], None], fd: int, path: str) -> None:
    try:
        sync(fd)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, path) from error


class SystemFile:
    """A file of the operating system. The descriptor is also closed with the last reference."""

    __slots__ = ("_fd", "_holders", "_is_closing", "_size", "path")

    def __init__(self, path: str, fd: int, size: int) -> None:
        self.path = path
        self._fd = fd
        self._size = size
        self._holders = 0
        self._is_closing = False

    def fileno(self) -> int:
        return self._fd

    def size(self) -> int:
        return self._size

    def append(self, *parts: Buffer) -> None:
        start = self._size
        try:
            written = os.pwritev(self._fd, parts, start)
            total = memoryview(parts[0]).nbytes
            for part in parts[1:]:
                total += memoryview(part).nbytes
            if written != total:
                _write_rest(self._fd, parts, start, written)
        except OSError:
            os.ftruncate(self._fd, start)
            raise
        self._size = start + total

    def pwrite(self, data: Buffer, offset: int) -> None:
        view = memoryview(data).cast("B")
        _write_rest(self._fd, (view,), offset, 0)
        self._size = max(self._size, offset + len(view))

    def pread(self, count: int, offset: int) -> bytes:
        count = max(0, min(count, self._size - offset))
        data = os.pread(self._fd, count, offset)
        while len(data) < count:
            more = os.pread(self._fd, count - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)
        self._size = size

    def sync(self) -> None:
        _sync(os.fdatasync, self._fd, self.path)

    def is_warm(self, offset: int, count: int) -> bool:
        probe = bytearray(1)
        last = offset + max(count, 1) - 1
        try:
            for position in range(offset, last, _PROBE_STRIDE_BYTES):
                os.preadv(self._fd, [probe], position, os.RWF_NOWAIT)
            os.preadv(self._fd, [probe], last, os.RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            # Where it is not supported, the file system is mostly one in memory. Any other error is
            # left to the read that follows, in a worker: its owner knows what to do about it.
            return error.errno in _NO_NOWAIT
        return True

    def read_now(self, count: int, offset: int) -> Buffer | None:
        data = memoryview(_core.unfilled(count))
        try:
            read = os.preadv(self._fd, [data], offset, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno not in _NO_NOWAIT:
                return None
            with contextlib.suppress(OSError):  # see `is_warm`
                return self.pread(count, offset)
            return None
        return data if read == count else None

    def hold(self) -> None:
        self._holders += 1

    def release(self) -> None:
        self._holders -= 1
        if self._is_closing and not self._holders:
            self._close_now()

    def close(self) -> None:
        self._is_closing = True
        if not self._holders:
            self._close_now()

    def _close_now(self) -> None:
        fd, self._fd = self._fd, _CLOSED
        if fd != _CLOSED:
            os.close(fd)

    # Python's file objects warn in that case, which fails tests that treat warnings as errors.
    __del__ = _close_now


def _write_rest(fd: int, parts: tuple[Buffer, ...], start: int, written: int) -> None:
    """Continues after a short write, which happens when the disk is nearly full."""
    offset = 0
    for part in parts:
        view = memoryview(part).cast("B")
        while offset + len(view) > written:
            count = os.pwrite(fd, view[max(0, written - offset) :], start + written)
            if count == 0:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            written += count
        offset += len(view)


class _EmptyMapping(bytearray):
    """The mapping of an empty file, which the kernel does not provide."""

    def flush(self) -> None: ...

    def close(self) -> None: ...


class _SystemLock:
    __slots__ = ("_fd",)

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def release(self) -> None:
        os.close(self._fd)


class SystemDisk:
    """The file systems of this host."""

    __slots__ = ()

    def open(self, path: str, *, create: bool = False, preallocate_bytes: int = 0) -> SystemFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        fd = os.open(path, flags, 0o644)
        file = SystemFile(path, fd, os.fstat(fd).st_size)
        if preallocate_bytes > file.size():
            os.posix_fallocate(fd, 0, preallocate_bytes)
        return file

    def map(self, path: str, size: int | None = None) -> Mapping:
        fd = os.open(
            path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if size is not None else 0), 0o644
        )
        try:
            if size is not None:
                os.ftruncate(fd, size)
            else:
                size = os.fstat(fd).st_size
            return mmap.mmap(fd, size) if size else _EmptyMapping()
        finally:
            os.close(fd)

    def read(self, path: str) -> bytes:
        with open(path, "rb") as file:
            return file.read()

    def write_atomically(self, path: str, data: bytes) -> None:
        temporary = f"{path}.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            _sync(os.fsync, file.fileno(), temporary)
        os.replace(temporary, path)
        self.sync_dir(os.path.dirname(path))

    def exists(self, path: str) -> bool:
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.rename(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        import shutil  # imports three compression libraries; most nodes never need it

        shutil.rmtree(path)

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def truncate(self, path: str, size: int) -> None:
        os.truncate(path, size)

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            _sync(os.fsync, fd, path)
        finally:
            os.close(fd)

    def space(self, path: str) -> tuple[int, int]:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize, usage.f_bavail * usage.f_frsize

    def lock(self, path: str, owner: str) -> DiskLock:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Apache Kafka takes a POSIX record lock on the same file. Hold both kinds, so that
            # neither system opens a directory that the other one has open.
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.read(fd, 200).decode("utf-8", "replace").strip()
            os.close(fd)
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                raise
            raise BlockingIOError(holder) from None
        with contextlib.suppress(OSError):  # the name is informative only; the disk may be full
            os.ftruncate(fd, 0)
            os.pwrite(fd, f"{owner} (process {os.getpid()})".encode(), 0)
        return _SystemLock(fd)
