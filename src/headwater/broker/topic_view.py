"""What several handlers say about topics."""

from __future__ import annotations

from headwater.metadata import Image, PartitionState
from headwater.metadata.model import DIRECTORY_LOST


def offline_replicas(image: Image, state: PartitionState) -> list[int]:
    """Replicas whose broker is away, or whose directory has failed."""
    offline: list[int] = []
    for replica, directory in zip(state.replicas, state.directories, strict=True):
        broker = image.brokers.get(replica)
        if broker is None or broker.fenced or directory == DIRECTORY_LOST:
            offline.append(replica)
    return offline
