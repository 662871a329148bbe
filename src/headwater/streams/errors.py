"""The error of a topology that cannot run: the operator, the problem, and how to solve it."""

from __future__ import annotations

import sys
from pathlib import Path

_OWN = str(Path(__file__).resolve().parent)


class TopologyError(Exception):
    """A topology cannot be built, planned or continued as it is.

    The message is one line: the operator, what is wrong, and what to do. `file` and `line` say
    where in the user's code the operator was declared, if that is known.
    """

    def __init__(
        self,
        operator: str,
        text: str,
        *,
        then: str | None = None,
        place: tuple[str, int] | None = None,
    ) -> None:
        self.operator = operator
        self.then = then
        self.place = place or declared_at()
        super().__init__(f"{operator}: {text}" + (f"; {then}" if then else ""))


def declared_at() -> tuple[str, int] | None:
    """Returns file and line of the user's code that is calling this package, if there is any."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_OWN, "<")):
        if frame.f_back is None:
            return None
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno) if frame is not None else None
