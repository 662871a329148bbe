"""Who wants to know when partitions come and go."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from headwater.model import TopicPartition


@runtime_checkable
class RebalanceListener(Protocol):
    """Methods may be plain or `async`, and any of them may be missing. They run inside `poll`, or
    between two records of a loop over the consumer, never beside them."""

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> Any:
        """These are new; `seek` may be called here."""

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> Any:
        """These go to somebody else when this returns; `commit` may be called here."""

    def on_lost(self, partitions: Sequence[TopicPartition]) -> Any:
        """These went to somebody else already. Without it, `on_revoked` is called."""


async def tell(listener: object | None, event: str, partitions: list[TopicPartition]) -> None:
    """Calls `on_assigned`, `on_revoked` or `on_lost` and waits for it if it is asynchronous."""
    method = getattr(listener, event, None)
    if method is None and event == "on_lost":
        method = getattr(listener, "on_revoked", None)
    if method is None:
        return
    outcome = method(partitions)
    if inspect.isawaitable(outcome):
        await outcome
