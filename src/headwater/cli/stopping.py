"""The orderly end of a command on Ctrl-C, SIGTERM or SIGHUP.

A command that has something to finish (offsets to commit, records to flush) finishes it and then
dies of the signal itself, so that shells and service managers see why it ended.
"""

from __future__ import annotations

import os
import signal
from typing import Self

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Stopped(KeyboardInterrupt):
    """Ends a command because of a signal."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number


class StopSignals:
    """Notes the first signal in `number`, so that a loop can end where nothing is half done.

    While `raises` is set, around a call that may block, the signal raises `Stopped` instead. A
    second signal always does: someone is in a hurry.
    """

    def __init__(self) -> None:
        self.number: int | None = None
        self.raises = True
        self._before: dict[int, object] = {}

    def __enter__(self) -> Self:
        for number in _SIGNALS:
            # `nohup`, and a shell that starts a background job, ignore some of them on purpose.
            if signal.getsignal(number) != signal.SIG_IGN:
                self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from there

    def _on_signal(self, number: int, _: object) -> None:
        is_first = self.number is None
        self.number = number if is_first else self.number
        if self.raises or not is_first:
            raise Stopped(number)


def die_of(number: int) -> int:
    """Ends this process by the signal, as if it had never been caught."""
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    return 128 + number  # what a shell says, should the signal be blocked
