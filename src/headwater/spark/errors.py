"""The errors of a query, and how they reach the user.

Spark shows the trace of the process that raised an error. A user wants the topic, the offset and
what to do; a trace of our code pushes that off the screen. So the methods that Spark calls raise
these errors without a trace.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import wraps
from typing import ParamSpec, TypeVar

from headwater.client.errors import BrokersUnavailable, ClientError, Disconnected, RequestTimedOut

_Given = ParamSpec("_Given")
_Answer = TypeVar("_Answer")


class OptionError(ValueError):
    """An option is missing, invalid, or in conflict with another one."""


class CheckpointError(Exception):
    """The checkpoint was written by another query, or by another kind of source."""


class BatchTooLong(Exception):
    """A micro-batch took longer than its transaction may be open."""


class TasksChanged(Exception):
    """A micro-batch that was written in part is repeated with other rows in its tasks."""


class DataLost(Exception):
    """Records were deleted before the query read them. Raised only with failOnDataLoss=true."""


class NotInFiles(Exception):
    """The files do not have this offset, or no longer; the read continues from the broker."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class FilesNotVisible(Exception):
    """This host cannot see the log directory."""


class CorruptSegment(Exception):
    """A file has bytes that are not a record batch."""


class BadValue(ValueError):
    """A value is not of its valueFormat."""


# Errors with a message for users. Any other is a bug of ours, and its trace is wanted.
PLAIN = (
    ClientError,
    OptionError,
    CheckpointError,
    BatchTooLong,
    TasksChanged,
    DataLost,
    FilesNotVisible,
    CorruptSegment,
    BadValue,
)


# Errors about brokers: the caller knows what it asked them for.
UNANSWERED = (BrokersUnavailable, RequestTimedOut, Disconnected)


def unanswered(error: ClientError, about: object) -> ClientError:
    """Returns one of the UNANSWERED errors with what it is about in front."""
    return type(error)(f"{about}: {error}", code=error.code)


_RUNTIME, _WORKER = "SPARK_PYTHON_RUNTIME", "PYTHON_WORKER"
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


def _bare(error: BaseException) -> BaseException:
    """Removes the trace. Spark puts a trace before the message of an error in one of its Python
    processes unless this variable is set; such a process ends with its first error, so that no
    other trace is lost."""
    if os.environ.get(_RUNTIME) == _WORKER:
        os.environ[_HIDE_TRACEBACK] = "1"
    return error.with_traceback(None)


def plainly(method: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """Decorates a method that Spark calls: its errors are one line."""

    @wraps(method)
    def called(*given: _Given.args, **named: _Given.kwargs) -> _Answer:
        try:
            return method(*given, **named)
        except PLAIN as error:
            raise _bare(error) from None

    return called


def plainly_each(rows: Iterator[_Answer]) -> Iterator[_Answer]:
    """Does the same for an iterator."""
    try:
        yield from rows
    except PLAIN as error:
        raise _bare(error) from None
