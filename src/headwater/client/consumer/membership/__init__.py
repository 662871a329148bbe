"""Membership in a consumer group: both of Kafka's protocols behind one interface."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.client.consumer.membership.driver import (
    Callbacks,
    GroupMembership,
    Membership,
    Signal,
    Subscription,
)
from headwater.client.consumer.membership.member import MembershipSettings

if TYPE_CHECKING:
    from headwater.client.cluster import Cluster
    from headwater.client.config import ConsumerConfig
    from headwater.client.consumer.membership.driver import GroupRequests
    from headwater.client.consumer.membership.member import Member
    from headwater.client.consumer.metrics import GroupMetrics

__all__ = ["Callbacks", "Membership", "Subscription", "make_membership"]


def make_membership(
    config: ConsumerConfig,
    cluster: Cluster,
    subscription: Subscription,
    callbacks: Callbacks,
    metrics: GroupMetrics,
) -> Membership:
    """Returns the membership for `group_protocol`; ConfigError for an unknown assignor."""
    from headwater.client.consumer.membership.assignors import assignors_of
    from headwater.client.consumer.membership.classic_member import ClassicMember
    from headwater.client.consumer.membership.consumer_member import ConsumerMember
    from headwater.client.consumer.membership.group_requests import (
        ClassicRequests,
        ConsumerRequests,
    )

    settings = MembershipSettings.of(config)
    signal = Signal()
    member: Member
    requests: GroupRequests
    if config.group_protocol == "consumer":
        member = consumer = ConsumerMember(settings, cluster.metadata.names.get)
        requests = ConsumerRequests(consumer, cluster, signal)
    else:
        member = classic = ClassicMember(
            settings, assignors_of(config.partition_assignment_strategy)
        )
        requests = ClassicRequests(classic, cluster, signal)
    return GroupMembership(
        settings, member, requests, cluster, subscription, callbacks, signal, metrics
    )
