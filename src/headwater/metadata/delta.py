"""What a batch of records changed: the note that goes to those who follow the image.

It names things; what they are now is in the image, and what is no longer there is kept here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headwater.metadata.model import BrokerRegistration, PartitionState, Resource, Topic


@dataclass(slots=True)
class Delta:
    topics_created: set[bytes] = field(default_factory=set)
    topics_deleted: dict[bytes, Topic] = field(default_factory=dict)  # as they last were
    # What each changed partition was before this batch; None if it is new.
    partitions: dict[tuple[bytes, int], PartitionState | None] = field(default_factory=dict)
    configs: set[Resource] = field(default_factory=set)
    brokers: dict[int, BrokerRegistration | None] = field(default_factory=dict)  # what they were
    controllers: set[int] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    client_quotas: set[tuple[tuple[str, str | None], ...]] = field(default_factory=set)
    acls: set[bytes] = field(default_factory=set)
    scram: set[tuple[str, int]] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    producer_ids: bool = False

    def __bool__(self) -> bool:
        return self.producer_ids or any(
            (
                self.topics_created,
                self.topics_deleted,
                self.partitions,
                self.configs,
                self.brokers,
                self.controllers,
                self.features,
                self.client_quotas,
                self.acls,
                self.scram,
                self.tokens,
            )
        )

    def topics_changed(self) -> set[bytes]:
        """Topics that are there and have a new or changed partition."""
        return {topic_id for topic_id, _ in self.partitions}
