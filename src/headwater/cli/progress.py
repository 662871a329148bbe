"""A progress bar on the terminal. Without a terminal it does nothing."""

from __future__ import annotations

import os
import sys
import time
from typing import Self

_WIDTH = 30
_TERMINAL_WIDTH = 80  # if the terminal does not tell
_EVERY_SECONDS = 0.1


class Progress:
    """`with Progress(total, "records") as progress: progress.add(10)`. Without a total it counts.
    The total may change meanwhile.

    It is drawn on standard error, only if that is a terminal and `shows` is set."""

    def __init__(self, total: int | None, unit: str, *, shows: bool = True) -> None:
        self.total = total
        self._unit = unit
        self._done = 0
        self._shows = shows and sys.stderr.isatty()
        self._began = self._drawn = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shows:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    @property
    def done(self) -> int:
        return self._done

    def add(self, count: int) -> None:
        self._done += count
        if self._shows:
            now = time.monotonic()
            if now - self._drawn >= _EVERY_SECONDS:
                self._drawn = now
                # A line that wraps could not be erased.
                width = os.get_terminal_size(sys.stderr.fileno()).columns or _TERMINAL_WIDTH
                line = self._line(now - self._began)[: width - 1]
                sys.stderr.write(f"\r\x1b[K{line}")
                sys.stderr.flush()

    def _line(self, seconds: float) -> str:
        rate = self._done / seconds if seconds else 0.0
        counted = f"{self._done:,} {self._unit}, {rate:,.0f}/s"
        if not self.total:
            return counted
        part = min(1.0, self._done / self.total)
        filled = int(part * _WIDTH)
        left = (self.total - self._done) / rate if rate else 0.0
        bar = "#" * filled + "." * (_WIDTH - filled)
        return f"[{bar}] {part:4.0%}  {counted}, {max(left, 0.0):,.0f} s left"
