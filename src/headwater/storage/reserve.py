"""Room that is kept on the disk for what must go on when it is full: metadata, and a start.

A file of some size lies in the directory of the metadata log. When a write there finds no room the
file is given up, and until it can be made again clients' records are refused: they would take the
room that deleting topics needs, which is what makes room again.
"""

from __future__ import annotations

from headwater.io import Disk
from headwater.storage.failures import Health, is_full

RESERVE_BYTES = 512 * 1024
# There must be this much beside it before it is made again, or it would come and go.
_BESIDE_BYTES = 3 * RESERVE_BYTES
_NAME = ".headwater-reserve"


class Reserve:
    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._path = f"{directory}/{_NAME}"
        self._health: Health | None = None
        self.is_held = False

    def give_if_tight(self) -> None:
        """Before a start writes anything."""
        if not self._disk.exists(self._path):
            return
        _, usable = self._disk.space(self._directory)
        if usable < RESERVE_BYTES:
            self._disk.remove(self._path)

    def watch(self, health: Health) -> None:
        """From here on the directory's appends depend on the reserve being there."""
        self._health = health
        self.hold()

    def hold(self) -> bool:
        """Makes the reserve if it is not there and there is room; whether it is there."""
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

    def give(self) -> bool:
        """Gives the room to whoever found none; whether there was any to give."""
        if self._health is not None:
            self._health.set_low(True)
        self.is_held = False
        if not self._disk.exists(self._path):
            return False
        self._disk.remove(self._path)
        return True
