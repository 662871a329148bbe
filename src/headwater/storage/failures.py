"""Errors of the operating system, and what follows from them.

A full disk refuses the write that hit it and nothing else: reads, deletions and administration go
on, and they are what frees space. Any other failure takes the whole directory offline: a device
that failed once cannot be trusted (a second fsync may succeed without the data).
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import inf

from headwater.errors import ApiError, ErrorCode
from headwater.io import Disk, SyncFailed

_FULL = (errno.ENOSPC, errno.EDQUOT)
_SAY_FULL_SECONDS = 60.0


def is_full(error: OSError) -> bool:
    """Returns whether a write failed for lack of space. A sync that fails for this has lost earlier
    writes, and does not count."""
    return error.errno in _FULL and not isinstance(error, SyncFailed)


class StorageFailed(ApiError):
    """A log directory is offline."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {directory}: {reason}")
        self.directory = directory
        self.reason = reason


class Health:
    """The state of a log directory: online, full or failed. Shared by all logs in it."""

    __slots__ = ("failure", "is_low", "names", "names_synced", "path", "writes_refused")

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None
        self.writes_refused = 0  # writes that were refused for lack of space
        self.is_low = False  # so little space is left that clients' records are refused
        self.names = 0  # logs that were created or moved here in this run
        self.names_synced = -1  # how many of them are durable; at first, not even those found

    @property
    def is_online(self) -> bool:
        return self.failure is None

    def fail(self, reason: str) -> None:
        """Takes the directory offline. The first reason stays."""
        if self.failure is None:
            self.failure = reason

    def set_low(self, is_low: bool) -> None:
        self.is_low = is_low

    def add_name(self) -> None:
        """Counts a log that was created or moved, and whose name is not durable yet."""
        self.names += 1

    def sync_names(self, disk: Disk, names: int) -> None:
        """Makes this many new names durable, unless another flush has. Blocks on the device."""
        if self.names_synced < names:
            names = self.names
            disk.sync_dir(self.path)
            self.names_synced = names

    def refusal(self, error: OSError) -> ApiError:
        """Returns the error to raise; takes the directory offline unless it is only full."""
        if is_full(error):
            self.writes_refused += 1
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is full")
        self.fail(str(error))
        return StorageFailed(self.path, str(error))

    def refuse_clients(self) -> ApiError:
        self.writes_refused += 1
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"log directory {self.path} is full; the rest is reserved for administration",
        )

    def check(self) -> None:
        if self.failure is not None:
            raise StorageFailed(self.path, self.failure)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """A context for everything that touches the directory: turns OSError into a refusal."""
        self.check()
        try:
            yield
        except OSError as error:
            raise self.refusal(error) from error


class FullDiskWarnings:
    """Log lines about full directories: one when writes are refused, and then none for a while."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[int, float]] = {}

    def due(self, healths: Iterable[Health], now: float) -> list[str]:
        lines = []
        for health in healths:
            count, at = self._said.get(health.path, (0, -inf))
            if health.writes_refused > count and now - at >= _SAY_FULL_SECONDS:
                self._said[health.path] = (health.writes_refused, now)
                lines.append(
                    f"log directory {health.path} is full: {health.writes_refused - count} writes "
                    "were refused; delete topics or records, or free space"
                )
        return lines
