"""Why a query failed, in one line, out of what Spark throws.

What our code raises in a worker comes to the driver as text: a line behind Spark's own words, or a
Python traceback, in a Java stack trace, in the message of an exception, under a plan of many lines.
The line that says which topic and what was wrong is in there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from headwater.client import errors

_OURS = re.compile(r"(?:^\s*|: )(?P<name>headwater(?:\.\w+)+): (?P<text>.+)$", re.MULTILINE)
_TRACEBACK = re.compile(r"Traceback \(most recent call last\):$", re.MULTILINE)
_RAISED = re.compile(r"^(?P<name>[A-Za-z_][\w.]*): (?P<text>.+)$", re.MULTILINE)
_SPARKS = re.compile(r"^(?:\[STREAM_FAILED\] )?Query \[.*?\] terminated with exception: ")
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+$")


@dataclass(frozen=True, slots=True)
class Reason:
    text: str
    may_pass: bool = False  # the same query may succeed if it is started again

    def __str__(self) -> str:
        return self.text


def reason_of(error: BaseException) -> Reason:
    """The line that matters."""
    text = f"{error}\n{getattr(error, '_stackTrace', None) or ''}"
    if ours := _OURS.search(text):
        kind = getattr(errors, ours["name"].rpartition(".")[2], None)
        may_pass = isinstance(kind, type) and issubclass(kind, errors.RetriableError)
        return Reason(ours["text"].strip(), may_pass)
    traceback = _TRACEBACK.search(text)
    if traceback and (raised := _RAISED.search(text, traceback.end())):
        name = raised["name"].rpartition(".")[2]
        return Reason(f"{name}: {raised['text'].strip()}")
    first = next((line for line in str(error).splitlines() if line.strip()), repr(error))
    return Reason(_SQLSTATE.sub("", _SPARKS.sub("", first.strip())))
