"""What several handlers say about topics and brokers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headwater.metadata import Image, PartitionState
from headwater.metadata.model import DIRECTORY_LOST

if TYPE_CHECKING:
    from headwater.broker.broker import Broker, Endpoint


def offline_replicas(image: Image, state: PartitionState) -> list[int]:
    """Replicas whose broker is away, or whose directory has failed."""
    offline: list[int] = []
    for replica, directory in zip(state.replicas, state.directories, strict=True):
        broker = image.brokers.get(replica)
        if broker is None or broker.fenced or directory == DIRECTORY_LOST:
            offline.append(replica)
    return offline


def any_of(broker: Broker, endpoints: Sequence[Endpoint]) -> int:
    """The broker to name as controller: any that lives, and best the one that was asked."""
    node_id = broker.config.node_id
    if not endpoints or any(at.id == node_id for at in endpoints):
        return node_id if endpoints else -1
    return endpoints[0].id
