"""Explains why a query failed, in one line, from what Spark throws.

An error that is raised in a worker reaches the driver as text: a line behind Spark's own words, or
a Python traceback, in a Java stack trace, in the message of an exception, above a plan of many
lines. The line that says what was wrong, with which topic or in which line of the user's file, is
somewhere in there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum, auto

from headwater.client import errors

_OURS = re.compile(r"(?:^\s*|: )(?P<name>headwater(?:\.\w+)+): (?P<text>.+)$", re.MULTILINE)
_TRACEBACK = "Traceback (most recent call last):"
_CHAINED = ("During handling of the above", "The above exception was the direct cause")
_FRAME = re.compile(r'^\s+File "(?P<file>[^"]+)", line (?P<line>\d+)')
_RAISED = re.compile(r"(?P<name>[A-Za-z_][\w.]*)(?:: (?P<text>.+))?$")
_STREAM_FAILED = re.compile(r"^(?:\[STREAM_FAILED\] )?Query \[.*?\] terminated with exception: ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+")
# The part of the SQL text that an error at run time is about; Spark counts both from 1.
_FRAGMENT = re.compile(
    r"^== SQL \(line (?P<line>\d+), position (?P<position>\d+)\) ==", re.MULTILINE
)
_POSITION = re.compile(r"[;\s]*\(?line (?P<line>\d+),? pos (?P<position>\d+)\)?;?\s*$")
# The checkpoint was written by another version of the query, or by another one.
_OTHER_CHECKPOINT = re.compile(
    r"STATE_STORE_\w*(?:SCHEMA|ROW_FORMAT|INVALID_CONFIG|VARIABLE_TYPE|LOCATION_NOT_EMPTY)"
    r"|STREAMING_STATEFUL_OPERATOR|STREAMING_CHECKPOINT_MISSING_METADATA|STREAMING_QUERY_EVOLUTION"
    r"|STREAM_STREAM_JOIN_INCO|sources in the checkpoint offsets and now there are"
)
# Spark waits ten seconds for a process that it starts, which on a busy host is not always enough.
_HOST_IS_BUSY = "Python worker failed to connect back"


class Cause(Enum):
    TRANSIENT = auto()  # the same query may succeed if it is started again
    CHECKPOINT = auto()  # the checkpoint does not belong to the query as it is now
    DATA_LOST = auto()
    USER_CODE = auto()
    OTHER = auto()


@dataclass(frozen=True, slots=True)
class Failure:
    text: str
    cause: Cause = Cause.OTHER
    place: tuple[int, int] | None = None  # in the SQL text: a line from 1, a position from 0

    def __str__(self) -> str:
        return self.text


def failure_of(error: BaseException, *, folder: str | None = None) -> Failure:
    """Finds the line that matters. `folder` has the user's code: for an error in there the text
    begins with file and line."""
    text = f"{error}\n{getattr(error, '_stackTrace', None) or ''}"
    if ours := _OURS.search(text):
        return _our_failure(ours["name"].rpartition(".")[2], ours["text"].strip())
    if raised := _raised(text, folder):
        return Failure(raised, Cause.USER_CODE)
    message, _ = spark_message(error)
    if _HOST_IS_BUSY in text:
        return Failure(message, Cause.TRANSIENT)
    if _OTHER_CHECKPOINT.search(text):
        return Failure(message, Cause.CHECKPOINT)
    if fragment := _FRAGMENT.search(text):
        place = int(fragment["line"]), int(fragment["position"]) - 1
        return Failure(message, Cause.USER_CODE, place)
    return Failure(message)


def _our_failure(name: str, text: str) -> Failure:
    kind = getattr(errors, name, None)
    # What a transaction has to be aborted for may not happen in the next one.
    passes = (errors.RetriableError, errors.AbortableError)
    if isinstance(kind, type) and issubclass(kind, passes):
        return Failure(text, Cause.TRANSIENT)
    causes = {
        "CheckpointError": Cause.CHECKPOINT,
        "DataLost": Cause.DATA_LOST,
        "TaskRepeated": Cause.TRANSIENT,
    }
    return Failure(text, causes.get(name, Cause.OTHER))


def spark_message(error: BaseException) -> tuple[str, tuple[int, int] | None]:
    """Returns the first line of Spark's message, and the place in the SQL text that it is about:
    a line from 1 and a position in it from 0."""
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), repr(error))
    text = _STREAM_FAILED.sub("", first)
    place = None
    if found := _POSITION.search(text):
        place = int(found["line"]), int(found["position"])
        text = text[: found.start()]
    return _SQLSTATE.sub("", text).strip("; "), place


def place_in(folder: str, frames: Iterable[tuple[str, int]]) -> tuple[str, int] | None:
    """Returns file and line of the innermost of these frames that is the user's own code."""
    inside = folder.rstrip("/") + "/"
    found = None
    for file, line in frames:
        if file.startswith(inside) and "site-packages" not in file.removeprefix(inside):
            found = file, line
    return found


def frames_of(error: BaseException) -> Iterator[tuple[str, int]]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
        trace = trace.tb_next


def _raised(text: str, folder: str | None) -> str | None:
    """Reads the first Python traceback in the text: the exception, and where it was raised if that
    is in the user's code. Of exceptions that follow from each other the last one counts."""
    _, found, rest = text.partition(_TRACEBACK)
    if not found:
        return None
    frames: list[tuple[str, int]] = []
    raised: re.Match[str] | None = None
    for line in rest.splitlines():
        if frame := _FRAME.match(line):
            frames.append((frame["file"], int(frame["line"])))
        elif not line.strip() or line.startswith((" ", "\t", *_CHAINED)) or line == _TRACEBACK:
            if line == _TRACEBACK:
                frames, raised = [], None
        elif raised is None:
            raised = _RAISED.match(line.strip())
            if raised is None:
                return None
        else:
            break
    if raised is None:
        return None
    name = raised["name"].rpartition(".")[2]
    what = name if raised["text"] is None else f"{name}: {raised['text'].strip()}"
    place = None if folder is None else place_in(folder, frames)
    return what if place is None else f"{place[0]}, line {place[1]}: {what}"
