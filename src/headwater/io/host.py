"""The host of a node: everything that it uses of the operating system, in one object."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random, SystemRandom
from typing import TYPE_CHECKING, Self

from headwater.io.clock import Clock, SystemClock
from headwater.io.disk import Disk, SystemDisk
from headwater.io.network import Network
from headwater.io.sockets import SocketNetwork
from headwater.io.workers import ThreadWorkers, Workers

if TYPE_CHECKING:
    from headwater.io.memory import MemoryDisk


@dataclass(frozen=True, slots=True)
class Host:
    clock: Clock
    random: Random
    disk: Disk
    network: Network
    workers: Workers
    is_volatile: bool = False  # files do not outlive the process

    @classmethod
    def system(cls) -> Self:
        """Returns the host of this process."""
        return cls(SystemClock(), SystemRandom(), SystemDisk(), SocketNetwork(), ThreadWorkers())

    @classmethod
    def in_memory(cls, disk: MemoryDisk | None = None) -> Self:
        """Returns the host of this process with files that are kept in memory."""
        from headwater.io.memory import MemoryDisk

        disk = MemoryDisk() if disk is None else disk
        return cls(SystemClock(), SystemRandom(), disk, SocketNetwork(), ThreadWorkers(), True)

    def random_id(self) -> bytes:
        """Returns a random version 4 UUID, like Kafka's, whose text does not begin with a dash."""
        while True:
            raw = bytearray(self.random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if raw[0] >> 2 != 62:  # a leading "-" would look like an option to command line tools
                return bytes(raw)
