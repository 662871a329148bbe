"""Disk space reserved for what must go on when the disk is full: metadata, and a start.

The reserve is a file in the directory of the metadata log. When a write there finds no space, the
file is removed, and until it can be created again clients' records are refused: they would take the
space that is needed to delete topics, which is what frees space.
"""

from __future__ import annotations

from headwater.io import Disk
from headwater.storage.failures import Health, is_full

RESERVE_BYTES = 512 * 1024
# This much must be free besides before it is created again, or it would come and go.
_BESIDE_BYTES = 3 * RESERVE_BYTES
RESERVE = ".headwater-reserve"


class Reserve:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{RESERVE}"
        self._health: Health | None = None
        self.is_held = False

    def release_if_tight(self) -> None:
        """Releases the reserve before a start writes anything, if space is short."""
        if not self._disk.exists(self._path):
            return
        _, usable = self._disk.space(self._directory)
        if usable < RESERVE_BYTES:
            self._disk.remove(self._path)

    def watch(self, health: Health) -> None:
        """Creates the reserve; from here on the directory accepts appends only while there is
        one."""
        self._health = health
        self.hold()

    def hold(self) -> bool:
        """Creates the reserve if there is none and there is space; returns whether there is one."""
        health = self._health
        assert health is not None
        if not self._disk.exists(self._path):
            _, usable = self._disk.space(self._directory)
            if usable < RESERVE_BYTES + _BESIDE_BYTES or not self._make():
                health.set_low(True)
                return False
        self.is_held = True
        health.set_low(False)
        return True

    def _make(self) -> bool:
        file = self._disk.open(self._path, create=True)
        try:
            file.append(bytes(RESERVE_BYTES))
        except OSError as error:
            if not is_full(error):
                raise
            self._disk.remove(self._path)
            return False
        finally:
            file.close()
        return True

    def release(self) -> bool:
        """Releases the reserve to a write that found no space; returns whether there was one."""
        if self._health is not None:
            self._health.set_low(True)
        self.is_held = False
        if not self._disk.exists(self._path):
            return False
        self._disk.remove(self._path)
        return True
