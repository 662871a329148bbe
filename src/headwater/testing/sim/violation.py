"""A promise that was not kept."""

from __future__ import annotations

_SHOWN = 25


class Violation(AssertionError):
    """A broken promise: what went wrong, on which seed, after which events."""

    def __init__(self, what: str, seed: int | str, events: list[str]) -> None:
        self.what = what
        self.seed = seed
        self.events = events
        super().__init__(f"seed {seed}: {what}\n  " + "\n  ".join(events[-_SHOWN:]))
