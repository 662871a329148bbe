"""Log lines: one line for each event, and few of them while all is well.

A line is `TIME LEVEL message` as text, or one JSON object. What a peer has sent cannot write lines
of its own, nor colours: everything but plain characters is escaped where a line is written, and
`printable` also cuts what is long. Lines that peers can cause go through `Log.bounded`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headwater.io import Clock

if TYPE_CHECKING:
    from collections.abc import Mapping

LEVELS = ("debug", "info", "warn", "error")
FORMATS = ("text", "json")
ROOT = "root"
LINE_LENGTH_MAX = 16 * 1024

# What peers can have a node write: this many lines at once, then this many in a second.
_BURST = 500
_PER_SECOND = 50.0


def printable(text: str, length_max: int = 200) -> str:
    """Returns the text with everything but plain characters escaped, cut if it is long."""
    if len(text) > length_max:
        text = text[:length_max] + "…"
    return _escaped(text)


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def _quoted(value: object) -> str:
    """Returns a value of a field. One that could be taken for several fields is in quotes."""
    text = printable(str(value))
    if text and not any(c in text for c in ' "\\'):
        return text
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


class _Writer:
    """State shared by all loggers of a node."""

    __slots__ = ("always", "clock", "is_json", "sink")

    def __init__(self, clock: Clock, sink: Callable[[str], object]) -> None:
        self.clock = clock
        self.sink = sink
        self.is_json = False
        self.always: dict[str, object] = {}  # fields of each line in JSON

    def write(self, level: str, logger: str, message: str, fields: Mapping[str, object]) -> None:
        from datetime import UTC, datetime  # slow to import, and seldom needed

        moment = datetime.fromtimestamp(self.clock.wall_ms() / 1000, UTC)
        stamp = moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        if self.is_json:
            line = _json_line(stamp, level, logger, message, {**self.always, **fields})
        else:
            if fields:
                message += ": " + " ".join(f"{key}={_quoted(v)}" for key, v in fields.items())
            if level == "debug":
                message = f"{logger}: {message}"
            line = f"{stamp} {level.upper():5} {printable(message, LINE_LENGTH_MAX)}\n"
        self.sink(line)


def _json_line(
    stamp: str, level: str, logger: str, message: str, fields: Mapping[str, object]
) -> str:
    from json import dumps

    shown = {
        key: each if isinstance(each, int | float) else str(each)[:LINE_LENGTH_MAX]
        for key, each in fields.items()
    }
    text = message[:LINE_LENGTH_MAX]
    # In ASCII: control characters are escaped, and so is what a terminal could not show.
    line = {"time": stamp, "level": level, "logger": logger, "message": text, **shown}
    return dumps(line) + "\n"


class Log:
    """A logger: writes lines at or above its level to a sink.

    `named` gives loggers for parts of a node. They share the sink and follow the level of the one
    they came from until they get a level of their own.
    """

    __slots__ = ("_bounded", "_level", "_named", "_own_level", "_writer", "is_debug", "name")

    def __init__(
        self,
        clock: Clock,
        sink: Callable[[str], object],
        level: str = "info",
        *,
        name: str = ROOT,
        writer: _Writer | None = None,
    ) -> None:
        self.name = name
        self._writer = _Writer(clock, sink) if writer is None else writer
        self._bounded: BoundedLog | None = None
        self._own_level = True
        self._named: dict[str, Log] = {}
        self._apply(LEVELS.index(level))

    def write_as(self, style: str, **always: object) -> None:
        """Has all lines written as `text` or as `json`; `always` are fields of each in JSON."""
        assert style in FORMATS, style
        self._writer.is_json = style == "json"
        self._writer.always = always

    def named(self, name: str) -> Log:
        """Returns the logger of that name; made when it is first asked for."""
        found = self._named.get(name)
        if found is None:
            writer = self._writer
            found = Log(writer.clock, writer.sink, self.level, name=name, writer=writer)
            found._own_level = False
            self._named[name] = found
        return found

    @property
    def bounded(self) -> BoundedLog:
        """This logger, for lines that peers can cause."""
        if self._bounded is None:
            self._bounded = BoundedLog(self, self._writer.clock)
        return self._bounded

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

    def writes(self, level: str) -> bool:
        return LEVELS.index(level) >= self._level

    def debug(self, message: str, **fields: object) -> None:
        if self.is_debug:
            self._writer.write("debug", self.name, message, fields)

    def info(self, message: str, **fields: object) -> None:
        if self._level <= 1:
            self._writer.write("info", self.name, message, fields)

    def warn(self, message: str, **fields: object) -> None:
        if self._level <= 2:
            self._writer.write("warn", self.name, message, fields)

    def error(self, message: str, **fields: object) -> None:
        self._writer.write("error", self.name, message, fields)

    def failure(self, what: str, error: BaseException) -> None:
        """Reports a bug: the line says where it happened."""
        import traceback  # needed only when something is wrong

        frame = traceback.extract_tb(error.__traceback__)[-1:]
        where = f" at {frame[0].filename.rpartition('/')[2]}:{frame[0].lineno}" if frame else ""
        self.error(f"{what}: {type(error).__name__}: {printable(str(error))}{where}")


class BoundedLog:
    """A logger for lines that peers can cause: a flood of them fills no disk. What was left out is
    counted, and told with the next line that is written."""

    __slots__ = ("_at", "_clock", "_left", "_left_out", "_log")

    def __init__(self, log: Log, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._left = float(_BURST)
        self._at = clock.monotonic()
        self._left_out = 0

    def info(self, message: str, **fields: object) -> None:
        if self._log.writes("info") and self._takes_one():
            self._log.info(message, **fields)

    def warn(self, message: str, **fields: object) -> None:
        if self._log.writes("warn") and self._takes_one():
            self._log.warn(message, **fields)

    def failure(self, what: str, error: BaseException) -> None:
        if self._takes_one():
            self._log.failure(what, error)

    def _takes_one(self) -> bool:
        now = self._clock.monotonic()
        self._left = min(_BURST, self._left + (now - self._at) * _PER_SECOND)
        self._at = now
        if self._left < 1:
            self._left_out += 1
            return False
        self._left -= 1
        if self._left_out:
            count, self._left_out = self._left_out, 0
            self._log.warn(f"{count} lines of {self._log.name} were left out: there were too many")
        return True
