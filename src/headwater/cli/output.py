"""The output of commands: tables for people, JSON for programs, records as bytes."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping, Sequence

from headwater.cli.stopping import Stopped, StopSignals

_LOOK_MS = 100  # how long a signal may wait while the reader of our output takes nothing
_FILE_STEP_BYTES = 1 << 20


class RecordOutput:
    """Standard output for records, as bytes. All of it is written, or an exception says why not."""

    def __init__(self, stop: StopSignals) -> None:
        self._stop = stop
        try:
            self._fd: int | None = sys.stdout.fileno()
        except (OSError, ValueError):  # there is none, as in a test that captures the output
            self._fd = None
            return
        is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)
        self._step_bytes = _FILE_STEP_BYTES if is_file else select.PIPE_BUF
        self._room, self._reader = select.poll(), select.poll()
        self._room.register(self._fd, select.POLLOUT)
        self._reader.register(self._fd, 0)

    def write(self, data: bytes) -> None:
        """Writes in steps that do not block, so that a signal can end the wait for a reader that
        takes nothing: of a write that is interrupted nobody knows how much was written."""
        if self._fd is None:
            sys.stdout.buffer.write(data)
            return
        left = memoryview(data)
        while left:
            if self._room.poll(_LOOK_MS):
                with contextlib.suppress(BlockingIOError):
                    left = left[os.write(self._fd, left[: self._step_bytes]) :]
            elif self._stop.number is not None:
                raise Stopped(self._stop.number)

    def is_reader_gone(self) -> bool:
        """Tells whether the other end of the pipe is closed, as after `| head` has ended: a command
        that waits for records would otherwise stay until it has one to write."""
        if self._fd is None:
            return False
        return any(event & select.POLLERR for _, event in self._reader.poll(0))


def add_output_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--output",
        choices=("text", "json"),
        default="text",
        help="text for people (default), json for programs",
    )


def print_json(value: object) -> None:
    import json

    print(json.dumps(value, indent=2))


def print_outcome(text: str, *, is_done: bool) -> None:
    """Prints one result of many. Failures go to standard error: they are for the person, not for
    the pipe."""
    print(text, file=sys.stdout if is_done else sys.stderr)


def print_fields(fields: Mapping[str, object], *, output: str) -> None:
    """Prints names and values, one a line."""
    if output == "json":
        print_json(dict(fields))
        return
    width = max(map(len, fields), default=0)
    for name, value in fields.items():
        print(f"{name:<{width}}  {value}")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, output: str) -> None:
    """Prints rows under their columns; numbers are aligned to the right, None is a dash, or null in
    JSON."""
    kept = [list(row) for row in rows]
    if output == "json":
        print_json([dict(zip(columns, row, strict=True)) for row in kept])
        return
    texts = [["-" if cell is None else str(cell) for cell in row] for row in kept]
    widths = [max(map(len, cells)) for cells in zip(columns, *texts, strict=True)]
    print("  ".join(f"{name:<{w}}" for name, w in zip(columns, widths, strict=True)).rstrip())
    for row, text in zip(kept, texts, strict=True):
        cells = [
            f"{cell:>{width}}" if isinstance(value, int) else f"{cell:<{width}}"
            for value, cell, width in zip(row, text, widths, strict=True)
        ]
        print("  ".join(cells).rstrip())


def size_text(count: int) -> str:
    """Bytes as a person reads them: 812 B, 1.4 kB, 28.5 MB, 3.2 TB."""
    size = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.95 or (unit == "B" and count < 1000):
            return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} TB"


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
