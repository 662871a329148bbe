"""Log lines: one line an event, quiet when all is well.

A line is `TIME LEVEL message`. Text that came from a peer goes through `printable` first: a client
id with a line break in it must not be able to write log lines of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.io import Clock

LEVELS = ("debug", "info", "warn", "error")


def printable(text: str, length_max: int = 200) -> str:
    """The text with everything that is no plain character escaped, and cut if it is long."""
    if len(text) > length_max:
        text = text[:length_max] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Log:
    """Writes lines at or above a level to a sink."""

    __slots__ = ("_clock", "_level", "_sink")

    def __init__(self, clock: Clock, sink: Callable[[str], object], level: str = "info") -> None:
        self._clock = clock
        self._sink = sink
        self._level = LEVELS.index(level)

    @property
    def level(self) -> str:
        return LEVELS[self._level]

    @level.setter
    def level(self, level: str) -> None:
        self._level = LEVELS.index(level)

    def _write(self, level: str, message: str) -> None:
        if LEVELS.index(level) >= self._level:
            from datetime import UTC, datetime  # when all is well no line is written

            moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
            stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = message.replace("\n", "\\n")
            self._sink(f"{stamp} {level.upper():5} {line}\n")

    def debug(self, message: str) -> None:
        self._write("debug", message)

    def info(self, message: str) -> None:
        self._write("info", message)

    def warn(self, message: str) -> None:
        self._write("warn", message)

    def error(self, message: str) -> None:
        self._write("error", message)

    def failure(self, what: str, error: BaseException) -> None:
        """Something that must not happen: the line says where, for whoever mends it."""
        import traceback  # needed only when something is wrong

        frame = traceback.extract_tb(error.__traceback__)[-1:]
        where = f" at {frame[0].filename.rpartition('/')[2]}:{frame[0].lineno}" if frame else ""
        self._write("error", f"{what}: {type(error).__name__}: {printable(str(error))}{where}")
