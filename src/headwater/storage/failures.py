"""What becomes of an error of the operating system.

A full disk refuses the write that hit it and nothing else: reads, deletions and administration go
on, and they are what makes room again. Any other failure takes the whole directory offline, for a
device that failed once cannot be believed (a second fsync may succeed without the data).
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
    """Whether it is the write that found no room. A sync that finds none has lost what was written
    before."""
    return error.errno in _FULL and not isinstance(error, SyncFailed)


class StorageFailed(ApiError):
    """A log directory is no longer usable."""

    def __init__(self, directory: str, reason: str) -> None:
        super().__init__(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {directory}: {reason}")
        self.directory = directory
        self.reason = reason


class Health:
    """Whether a log directory is online. Shared by all logs in it."""

    __slots__ = ("failure", "is_low", "names", "names_synced", "no_room", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self.failure: str | None = None
        self.no_room = 0  # how often a write was refused for want of room
        self.is_low = False  # so little room is left that clients' records are refused
        self.names = 0  # how often a log was made or moved here in this run
        self.names_synced = -1  # what of that is durable; at first, not even what was found

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
        """Takes note of a log that was created or moved, whose name is not durable yet."""
        self.names += 1

    def sync_names(self, disk: Disk, names: int) -> None:
        """Makes so many changes of names durable; others may have done it. Blocks on the device."""
        if self.names_synced < names:
            names = self.names
            disk.sync_dir(self.path)
            self.names_synced = names

    def refusal(self, error: OSError) -> ApiError:
        """The error to raise for what the system said; takes the directory offline if it must."""
        if is_full(error):
            self.no_room += 1
            return ApiError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is full")
        self.fail(str(error))
        return StorageFailed(self.path, str(error))

    def refuse_clients(self) -> ApiError:
        self.no_room += 1
        return ApiError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"log directory {self.path} is full; what is left is kept for administration",
        )

    def check(self) -> None:
        if self.failure is not None:
            raise StorageFailed(self.path, self.failure)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Around everything that touches the directory."""
        self.check()
        try:
            yield
        except OSError as error:
            raise self.refusal(error) from error


class FullNotes:
    """What is to be said of full directories: a line when writes are refused, and not another one
    for a while, however many are."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[int, float]] = {}

    def due(self, healths: Iterable[Health], now: float) -> list[str]:
        lines = []
        for health in healths:
            count, at = self._said.get(health.path, (0, -inf))
            if health.no_room > count and now - at >= _SAY_FULL_SECONDS:
                self._said[health.path] = (health.no_room, now)
                lines.append(
                    f"log directory {health.path} is full: {health.no_room - count} writes were "
                    "refused; delete topics or records, or make room"
                )
        return lines
