"""What a node is given of its host, in one object."""

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
    is_volatile: bool = False  # what is written ends with the process

    @classmethod
    def system(cls) -> Self:
        """The machine we run on."""
        return cls(SystemClock(), SystemRandom(), SystemDisk(), SocketNetwork(), ThreadWorkers())

    @classmethod
    def in_memory(cls, disk: MemoryDisk | None = None) -> Self:
        """The same, with files that live in memory and end with the process."""
        from headwater.io.memory import MemoryDisk

        disk = MemoryDisk() if disk is None else disk
        return cls(SystemClock(), SystemRandom(), disk, SocketNetwork(), ThreadWorkers(), True)

    def random_id(self) -> bytes:
        """A fresh id, shaped as a version 4 UUID as Kafka's are, whose text starts with no dash."""
        while True:
            raw = bytearray(self.random.randbytes(16))
            raw[6] = raw[6] & 0x0F | 0x40
            raw[8] = raw[8] & 0x3F | 0x80
            if raw[0] >> 2 != 62:  # a leading "-" would look like an option to command line tools
                return bytes(raw)
