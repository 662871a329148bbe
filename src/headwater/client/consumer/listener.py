"""Telling a user's listener that partitions come and go."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable
from typing import Literal

from headwater.model import TopicPartition


class RebalanceListener:
    """Base class of listeners: override the methods you need, plain or `async`.

    The methods run inside `poll`, or between two records of a loop over the consumer, never
    concurrently with your code. An exception that one of them raises comes out there.
    """

    def on_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called with the partitions that were added; `seek` may be called here."""
        return None

    def on_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called before partitions go to another member; `commit` may be called here."""
        return None

    def on_lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """Called when other members may have the partitions already: nothing can be committed for
        them any more. Calls `on_revoked` unless it is overridden."""
        return self.on_revoked(partitions)


Event = Literal["on_assigned", "on_revoked", "on_lost"]
EVENTS: tuple[Event, ...] = ("on_assigned", "on_revoked", "on_lost")


def is_listener(listener: object) -> bool:
    """Returns whether any of its methods would ever do something."""
    if isinstance(listener, RebalanceListener):
        kind = type(listener)
        return any(getattr(kind, each) is not getattr(RebalanceListener, each) for each in EVENTS)
    return any(callable(getattr(listener, each, None)) for each in EVENTS)


async def tell(listener: object | None, event: Event, partitions: list[TopicPartition]) -> None:
    """Calls one method of a listener, and awaits it if it is asynchronous. A listener that does
    not inherit from `RebalanceListener` may lack methods."""
    method = getattr(listener, event, None)
    if method is None and event == "on_lost":
        method = getattr(listener, "on_revoked", None)
    if method is None:
        return
    outcome = method(partitions)
    if inspect.isawaitable(outcome):
        await outcome
