"""The one seam to the host: clock, chance, files, sockets and worker threads.

Nothing outside this package calls the operating system. Everything that needs the host is given a
`Host`; the simulator gives the same code a `Host` made of twins, and a whole node runs in one
thread on one seed.
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
from headwater.io.process import process_id, watch_forks
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
    "Receiver",
    "SocketOptions",
    "Stream",
    "SyncFailed",
    "Workers",
    "close_slices",
    "process_id",
    "watch_forks",
    "write_lock",
]
