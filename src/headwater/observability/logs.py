"""Log lines: one line for each event, and few of them while all is well.

A line is `TIME LEVEL message`. Text that came from a peer goes through `printable` first: a client
id with a line break in it must not be able to write log lines of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from headwater.io import Clock

LEVELS = ("debug", "info", "warn", "error")
ROOT = "root"


def printable(text: str, length_max: int = 200) -> str:
    """Returns the text with everything but plain characters escaped, cut if it is long."""
    if len(text) > length_max:
        text = text[:length_max] + "…"
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Log:
    """A logger: writes lines at or above its level to a sink.

    `named` gives loggers for parts of a node. They share the sink and follow the level of the one
    they came from until they get a level of their own.
    """

    __slots__ = ("_clock", "_level", "_named", "_own_level", "_sink", "is_debug", "name")

    def __init__(
        self,
        clock: Clock,
        sink: Callable[[str], object],
        level: str = "info",
        *,
        name: str = ROOT,
    ) -> None:
        self.name = name
        self._clock = clock
        self._sink = sink
        self._own_level = True
        self._named: dict[str, Log] = {}
        self._apply(LEVELS.index(level))

    def named(self, name: str) -> Log:
        """Returns the logger of that name; made when it is first asked for."""
        found = self._named.get(name)
        if found is None:
            found = self._named[name] = Log(self._clock, self._sink, self.level, name=name)
            found._own_level = False
        return found

    @property
    def level(self) -> str:
        return LEVELS[self._level]

    @level.setter
    def level(self, level: str) -> None:
        self._own_level = True
        self._apply(LEVELS.index(level))

    def loggers(self) -> dict[str, Log]:
        """Returns this logger and those that came from it, by name."""
        return {self.name: self, **dict(sorted(self._named.items()))}

    def follow(self, root: Log) -> None:
        """Gives up a level of its own for that of `root`."""
        self._own_level = False
        self._apply(root._level)

    def _apply(self, level: int) -> None:
        self._level = level
        self.is_debug = level == 0  # for callers that would only build a line to throw it away
        for each in self._named.values():
            if not each._own_level:
                each._apply(level)

    def _write(self, level: str, message: str) -> None:
        if LEVELS.index(level) >= self._level:
            from datetime import UTC, datetime  # slow to import, and seldom needed

            moment = datetime.fromtimestamp(self._clock.wall_ms() / 1000, UTC)
            stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
            line = message.replace("\n", "\\n")
            self._sink(f"{stamp} {level.upper():5} {line}\n")

    def debug(self, message: str) -> None:
        if self.is_debug:
            self._write("debug", f"{self.name}: {message}")

    def info(self, message: str) -> None:
        self._write("info", message)

    def warn(self, message: str) -> None:
        self._write("warn", message)

    def error(self, message: str) -> None:
        self._write("error", message)

    def failure(self, what: str, error: BaseException) -> None:
        """Reports a bug: the line says where it happened."""
        import traceback  # needed only when something is wrong

        frame = traceback.extract_tb(error.__traceback__)[-1:]
        where = f" at {frame[0].filename.rpartition('/')[2]}:{frame[0].lineno}" if frame else ""
        self._write("error", f"{what}: {type(error).__name__}: {printable(str(error))}{where}")
