"""What a query can fail with, said first: Spark shows the trace of the process that raised.

Whoever reads it wants the topic, the offset and what to do; where in our code that was found out
only pushes it off the screen. So the methods that Spark calls raise these without a trace.
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
    """An option is missing, has no such value, or does not go with another one."""


class CheckpointError(Exception):
    """The checkpoint was written by another query, or by another kind of source."""


class DataLost(Exception):
    """Records that the query has not read are gone. Raised only with failOnDataLoss=true."""


class NotInFiles(Exception):
    """The files do not have this offset (any more); the broker is asked from there on."""

    def __init__(self, offset: int, reason: str) -> None:
        super().__init__(reason)
        self.offset = offset


class FilesNotVisible(Exception):
    """This host does not see the log directory at all."""


class CorruptSegment(Exception):
    """Bytes in a file that are no record batch."""


class BadValue(ValueError):
    """A value is not what valueFormat says."""


# What has a message for people. Anything else is a fault of ours, and its trace is wanted.
PLAIN = (
    ClientError,
    OptionError,
    CheckpointError,
    DataLost,
    FilesNotVisible,
    CorruptSegment,
    BadValue,
)


# They are about brokers; what was wanted of these is known to who asked.
UNANSWERED = (BrokersUnavailable, RequestTimedOut, Disconnected)


def unanswered(error: ClientError, about: object) -> ClientError:
    """One of the UNANSWERED that says first what it is about."""
    return type(error)(f"{about}: {error}", code=error.code)


_RUNTIME, _WORKER = "SPARK_PYTHON_RUNTIME", "PYTHON_WORKER"
_HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"


def _bare(error: BaseException) -> BaseException:
    """The error without the way it took. Spark puts a trace before the message of whatever comes
    out of a process of its own, unless this variable is set; such a process ends with its first
    error, so that no trace of anybody else's is lost."""
    if os.environ.get(_RUNTIME) == _WORKER:
        os.environ[_HIDE_TRACEBACK] = "1"
    return error.with_traceback(None)


def plainly(method: Callable[_Given, _Answer]) -> Callable[_Given, _Answer]:
    """A method that Spark calls: its errors come as one line."""

    @wraps(method)
    def called(*given: _Given.args, **named: _Given.kwargs) -> _Answer:
        try:
            return method(*given, **named)
        except PLAIN as error:
            raise _bare(error) from None

    return called


def plainly_each(rows: Iterator[_Answer]) -> Iterator[_Answer]:
    """The same for what a method yields."""
    try:
        yield from rows
    except PLAIN as error:
        raise _bare(error) from None
