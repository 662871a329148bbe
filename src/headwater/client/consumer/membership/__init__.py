"""Being a member of a consumer group: both of Kafka's protocols behind one contract."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headwater.client.consumer.membership.contract import (
    Callbacks,
    Membership,
    Subscription,
)
from headwater.client.requests.offset_commit import CommitIdentity

if TYPE_CHECKING:
    from headwater.client.cluster import Cluster
    from headwater.client.config import ConsumerConfig
    from headwater.client.consumer.metrics import GroupMetrics
    from headwater.io import Host

__all__ = ["Callbacks", "CommitIdentity", "Membership", "Subscription", "make_membership"]


def make_membership(
    config: ConsumerConfig,
    cluster: Cluster,
    host: Host,
    subscription: Subscription,
    callbacks: Callbacks,
    metrics: GroupMetrics,
) -> Membership:
    """The membership that `group_protocol` asks for; ConfigError for an unknown assignor."""
    from headwater.client.consumer.membership.driver import GroupMembership
    from headwater.client.consumer.membership.settings import MembershipSettings
    from headwater.client.consumer.membership.signals import Signal

    settings = MembershipSettings.of(config)
    signal = Signal()
    if config.group_protocol == "consumer":
        from headwater.client.consumer.membership.consumer_protocol import ConsumerMember
        from headwater.client.consumer.membership.consumer_talk import ConsumerTalk

        member = ConsumerMember(settings, cluster.metadata.names.get)
        return GroupMembership(
            settings,
            member,
            ConsumerTalk(member, cluster, signal),
            cluster,
            subscription,
            callbacks,
            signal,
            metrics,
        )
    from headwater.client.consumer.membership.assignors import assignors_of
    from headwater.client.consumer.membership.classic import ClassicMember
    from headwater.client.consumer.membership.classic_talk import ClassicTalk

    classic = ClassicMember(settings, assignors_of(config.partition_assignment_strategy))
    return GroupMembership(
        settings,
        classic,
        ClassicTalk(classic, cluster, signal),
        cluster,
        subscription,
        callbacks,
        signal,
        metrics,
    )
