"""The interface to the host: clock, randomness, files, sockets and worker threads.

No other package calls the operating system. Code that needs the host gets a `Host`; the simulator
provides simulated twins instead, so that a whole node runs in one thread from one seed.
"""

from headwater.io.clock import Clock
from headwater.io.disk import Disk, File, FileSlice, Mapping, SyncFailed, close_slices
from headwater.io.host import Host
from headwater.io.network import (
    SYSTEM_SOCKETS,
    Address,
    Listener,
    Network,
    Receiver,
    SocketOptions,
    Stream,
)
from headwater.io.process import (
    ProcessUsage,
    environment_list,
    process_id,
    process_usage,
    watch_forks,
)
from headwater.io.workers import Workers, write_lock

__all__ = [
    "SYSTEM_SOCKETS",
    "Address",
    "Clock",
    "Disk",
    "File",
    "FileSlice",
    "Host",
    "Listener",
    "Mapping",
    "Network",
    "ProcessUsage",
    "Receiver",
    "SocketOptions",
    "Stream",
    "SyncFailed",
    "Workers",
    "close_slices",
    "environment_list",
    "process_id",
    "process_usage",
    "watch_forks",
    "write_lock",
]
