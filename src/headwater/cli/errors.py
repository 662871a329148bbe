"""The error that ends a command, and the exit codes."""

from __future__ import annotations

FAILED = 1  # it could not be done: a port in use, a directory locked by another node
USAGE = 2  # invalid usage: an unknown option, an invalid value


class CommandError(Exception):
    """Ends the command. Says what is wrong, what to do next, and the exit code."""

    def __init__(self, what: str, *, then: str | None = None, code: int = FAILED) -> None:
        super().__init__(what)
        self.what = what
        self.then = then
        self.code = code

    def __str__(self) -> str:
        return f"{self.what}\n  {self.then}" if self.then else self.what
