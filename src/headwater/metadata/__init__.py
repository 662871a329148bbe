"""The cluster's image and the records it is made of."""

from headwater.metadata.image import Delta, Image, Replay
from headwater.metadata.model import (
    CLUSTER_DEFAULT,
    NO_LEADER,
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    PartitionState,
    Resource,
    ResourceType,
    Topic,
)

__all__ = [
    "CLUSTER_DEFAULT",
    "NO_LEADER",
    "BrokerRegistration",
    "ControllerRegistration",
    "Delta",
    "Endpoint",
    "Image",
    "PartitionState",
    "Replay",
    "Resource",
    "ResourceType",
    "Topic",
]
