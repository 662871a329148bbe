"""How a command ends when it cannot do what it was asked."""

from __future__ import annotations

FAILED = 1  # the world did not allow it: a port in use, a directory that another node holds
USAGE = 2  # the user asked for something that cannot be: an option, a setting


class CommandError(Exception):
    """Ends the command: what is wrong, what to do next, and the exit code."""

    def __init__(self, what: str, *, then: str | None = None, code: int = FAILED) -> None:
        super().__init__(what)
        self.what = what
        self.then = then
        self.code = code

    def __str__(self) -> str:
        return f"{self.what}\n  {self.then}" if self.then else self.what
