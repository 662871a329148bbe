"""The cluster's image and the records it is made of."""

from headwater.metadata.delta import Delta
from headwater.metadata.image import Image
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
from headwater.metadata.replay import Replay

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
