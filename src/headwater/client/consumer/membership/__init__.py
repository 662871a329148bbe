"""Being a member of a consumer group: both of Kafka's protocols behind one contract."""

from __future__ import annotations

from headwater.client.consumer.membership.contract import (
    Callbacks,
    CommitIdentity,
    Membership,
    Subscription,
)

__all__ = ["Callbacks", "CommitIdentity", "Membership", "Subscription"]
