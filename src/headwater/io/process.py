"""This process: its identity and its environment.

What a parent opened must not be used in a forked child.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

T = TypeVar("T")

_process_id = os.getpid()
_watching: WeakKeyDictionary[Any, Callable[[Any], object]] = WeakKeyDictionary()


def process_id() -> int:
    """Returns the process id without a system call: clients ask at every call."""
    return _process_id


def environment_list(name: str) -> tuple[str, ...]:
    """Returns the items of a variable that has several, with commas."""
    items = os.environ.get(name, "").split(",")
    return tuple(item.strip() for item in items if item.strip())


@dataclass(frozen=True, slots=True)
class DiskUsage:
    """What this process has read from disks and written to them, not to the page cache."""

    read_bytes: int
    written_bytes: int


@dataclass(frozen=True, slots=True)
class ProcessUsage:
    """The resources that this process uses."""

    cpu_seconds: float
    resident_bytes: int
    virtual_bytes: int
    open_files: int
    open_files_max: int
    start_seconds: float  # since 1970
    disk: DiskUsage | None  # None where the kernel does not say


def process_usage() -> ProcessUsage:
    """Reads what the kernel says of this process. Blocks for a moment where the kernel is old and
    the process has many files."""
    with open("/proc/self/statm") as file:
        pages = [int(word) for word in file.read().split()]
    page = resource.getpagesize()
    return ProcessUsage(
        time.process_time(),
        pages[1] * page,
        pages[0] * page,
        # Since Linux 6.2 the size of the directory is the number of files.
        os.stat("/proc/self/fd").st_size or len(os.listdir("/proc/self/fd")),
        resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        _start_seconds(),
        _disk_usage(),
    )


def _disk_usage() -> DiskUsage | None:
    try:
        with open("/proc/self/io") as file:
            found = dict(line.split(": ") for line in file)
        return DiskUsage(int(found["read_bytes"]), int(found["write_bytes"]))
    except (OSError, KeyError, ValueError):  # a kernel without it, or a sandbox that hides it
        return None


def _start_seconds() -> float:
    with open("/proc/self/stat") as file:
        after_name = file.read().rpartition(")")[2].split()
    ticks = int(after_name[19])  # the 22nd field of all
    since_boot = ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + since_boot


def watch_forks(each: T, on_fork: Callable[[T], object]) -> None:
    """Has `on_fork(each)` called in every child process, as long as `each` is alive."""
    _watching[each] = on_fork


def _forked() -> None:
    global _process_id
    _process_id = os.getpid()
    for each, on_fork in list(_watching.items()):
        on_fork(each)


os.register_at_fork(after_in_child=_forked)
