"""Files that exist only in memory, for `headwater start --memory`.

Each file is an anonymous file of the kernel (memfd), so positional reads, mappings and `sendfile`
work as usual.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import resource
import time

from headwater.io.disk import DiskLock, Mapping, SystemFile, _EmptyMapping

_TOTAL_BYTES = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


class _NoLock:
    def release(self) -> None: ...


class MemoryDisk:
    """A tree of names over anonymous files."""

    __slots__ = ("_dirs", "_files", "_modified")

    def __init__(self) -> None:
        self._files: dict[str, SystemFile] = {}
        self._dirs: set[str] = {"/"}
        self._modified: dict[str, int] = {}
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft < hard:  # every file here is an open descriptor
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def _find(self, path: str) -> SystemFile:
        try:
            return self._files[path]
        except KeyError:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from None

    def open(self, path: str, *, create: bool = False, preallocate_bytes: int = 0) -> SystemFile:
        if create and path not in self._files:
            fd = os.memfd_create(os.path.basename(path)[:200], os.MFD_CLOEXEC)
            self._files[path] = SystemFile(path, fd, 0)
            self._modified[path] = time.time_ns() // 1_000_000
        file = self._find(path)
        handle = os.dup(file.fileno())
        return SystemFile(path, handle, os.fstat(handle).st_size)

    def map(self, path: str, size: int | None = None) -> Mapping:
        file = self.open(path, create=size is not None)
        if size is not None:
            file.truncate(size)
        length = file.size()
        mapping = mmap.mmap(file.fileno(), length) if length else _EmptyMapping()
        file.close()
        return mapping

    def read(self, path: str) -> bytes:
        return os.pread(self._find(path).fileno(), self.size(path), 0)

    def write_atomically(self, path: str, data: bytes) -> None:
        self._files.pop(path, None)
        file = self.open(path, create=True)
        file.append(data)
        file.close()

    def exists(self, path: str) -> bool:
        return path in self._files or path in self._dirs

    def is_dir(self, path: str) -> bool:
        return path in self._dirs

    def list(self, path: str) -> list[str]:
        prefix = path.rstrip("/") + "/"
        names = {
            name[len(prefix) :].split("/", 1)[0]
            for name in (*self._files, *self._dirs)
            if name.startswith(prefix) and name != prefix
        }
        return sorted(names)

    def make_dirs(self, path: str) -> None:
        while path and path not in self._dirs:
            self._dirs.add(path)
            path = os.path.dirname(path)

    def rename(self, source: str, target: str) -> None:
        if source in self._files:
            self._files[target] = self._files.pop(source)
            self._modified[target] = self._modified.pop(source)
            return
        if source not in self._dirs:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), source)
        inside = source + "/"
        for name in [name for name in self._files if name.startswith(inside)]:
            self.rename(name, target + name[len(source) :])
        moved = {name for name in self._dirs if name == source or name.startswith(inside)}
        self._dirs -= moved
        self._dirs |= {target + name[len(source) :] for name in moved}

    def remove(self, path: str) -> None:
        self._find(path)
        del self._files[path]
        del self._modified[path]

    def remove_tree(self, path: str) -> None:
        inside = path + "/"
        for name in [name for name in self._files if name.startswith(inside)]:
            self.remove(name)
        self._dirs = {n for n in self._dirs if n != path and not n.startswith(inside)}

    def size(self, path: str) -> int:
        return os.fstat(self._find(path).fileno()).st_size

    def truncate(self, path: str, size: int) -> None:
        os.ftruncate(self._find(path).fileno(), size)

    def modified_ms(self, path: str) -> int:
        self._find(path)
        return self._modified[path]

    def sync_dir(self, path: str) -> None: ...

    def space(self, path: str) -> tuple[int, int]:
        used = sum(os.fstat(file.fileno()).st_blocks * 512 for file in self._files.values())
        return _TOTAL_BYTES, max(0, _TOTAL_BYTES - used)

    def lock(self, path: str, owner: str) -> DiskLock:
        return _NoLock()

    def clear(self) -> None:
        """Deletes all files and closes their descriptors at once."""
        for file in self._files.values():
            file.close()
        self._files.clear()
        self._modified.clear()
        self._dirs = {"/"}
