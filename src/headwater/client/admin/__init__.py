"""The admin client: topics, configs, groups, ACLs, quotas and the cluster itself.

    async with Admin("localhost:9092") as admin:
        await admin.create_topic("orders", partitions=3)
        for topic in await admin.list_topics():
            print(topic.name, topic.partitions)

A call about one thing returns its result or raises. A call about many returns a dict with the
result or the error of each; `or_raise` returns the results, or raises the first error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Self
from weakref import ref

from headwater.client.admin import (
    acls,
    cluster,
    committed,
    configs,
    elections,
    features,
    groups,
    lag,
    log_dirs,
    offsets,
    producers,
    quorum,
    quotas,
    reassignments,
    records,
    scram,
    share_offsets,
    tokens,
    topics,
    traces,
    transactions,
)
from headwater.client.admin.acls import Acl, AclFilter, AclPattern, AclPermission, AclResource
from headwater.client.admin.cluster import ClusterDescription, Node
from headwater.client.admin.committed import CommittedOffset
from headwater.client.admin.configs import (
    Append,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    ConfigSynonym,
    ResourceType,
    Subtract,
    broker_config,
    client_metrics_config,
    group_config,
    topic_config,
)
from headwater.client.admin.features import Features, FeatureUpdate, Levels, UpgradeType
from headwater.client.admin.groups import Group, GroupListed, Member
from headwater.client.admin.lag import PartitionLag
from headwater.client.admin.log_dirs import Replica
from headwater.client.admin.offsets import OffsetFound
from headwater.client.admin.producers import ActiveProducer, ProducerFence
from headwater.client.admin.quorum import Quorum, QuorumReplica
from headwater.client.admin.quotas import QUOTA_ANY, QUOTA_DEFAULT, QuotaEntity, QuotaFilter
from headwater.client.admin.reassignments import Reassignment
from headwater.client.admin.records import HIGH_WATERMARK
from headwater.client.admin.results import or_raise
from headwater.client.admin.scram import ScramCredential
from headwater.client.admin.share_offsets import ShareOffset
from headwater.client.admin.tokens import DelegationToken
from headwater.client.admin.topics import (
    NewPartitions,
    NewTopic,
    Partition,
    Topic,
    TopicCreated,
    TopicListed,
)
from headwater.client.admin.traces import MissedRequests, TracedRequest
from headwater.client.admin.transactions import (
    HangingTransaction,
    Transaction,
    TransactionListed,
)
from headwater.client.cluster import Cluster
from headwater.client.config import AdminConfig, Bootstrap
from headwater.client.requests.describe_log_dirs import LogDir, ReplicaLog
from headwater.client.requests.list_offsets import OffsetSpec
from headwater.client.requests.routing import Router
from headwater.client.telemetry import DOMAIN, Telemetry
from headwater.io import Host
from headwater.security.operations import Operation

if TYPE_CHECKING:
    from typing import Unpack

    from headwater.client.settings import AdminSettings

__all__ = [
    "HIGH_WATERMARK",
    "QUOTA_ANY",
    "QUOTA_DEFAULT",
    "Acl",
    "AclFilter",
    "AclPattern",
    "AclPermission",
    "AclResource",
    "ActiveProducer",
    "Admin",
    "Append",
    "ClusterDescription",
    "CommittedOffset",
    "ConfigEntry",
    "ConfigResource",
    "ConfigSource",
    "ConfigSynonym",
    "DelegationToken",
    "FeatureUpdate",
    "Features",
    "Group",
    "GroupListed",
    "HangingTransaction",
    "Levels",
    "LogDir",
    "Member",
    "MissedRequests",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetFound",
    "OffsetSpec",
    "Operation",
    "Partition",
    "PartitionLag",
    "ProducerFence",
    "Quorum",
    "QuorumReplica",
    "QuotaEntity",
    "QuotaFilter",
    "Reassignment",
    "Replica",
    "ReplicaLog",
    "ResourceType",
    "ScramCredential",
    "ShareOffset",
    "Subtract",
    "Topic",
    "TopicCreated",
    "TopicListed",
    "TracedRequest",
    "Transaction",
    "TransactionListed",
    "UpgradeType",
    "broker_config",
    "client_metrics_config",
    "group_config",
    "or_raise",
    "topic_config",
]


class Admin:
    """Manages a cluster. For asyncio; `headwater.blocking.Admin` is for threads.

    Every call takes `timeout_ms`, by default `default_api_timeout_ms`. Within it the call retries,
    so controllers, leaders and coordinators may move without the caller noticing.
    """

    _is_started = False

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        host: Host | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        self._config = AdminConfig.build(bootstrap, config=config, **settings)
        self._cluster = Cluster(self._config, host or Host.system())
        # The calls below are modules, one for each family of APIs; they use this.
        self._telemetry = _telemetry_of(self)
        self._router = Router(self._cluster, default_timeout_ms=self._config.default_api_timeout_ms)

    @property
    def config(self) -> AdminConfig:
        """All settings, with their defaults."""
        return self._config

    async def start(self) -> Self:
        """Connects to the cluster; `async with` calls it. Raises BrokersUnavailable if no broker
        answers within start_timeout_ms."""
        await self._cluster.start()
        self._is_started = True
        self._telemetry.start()
        return self

    async def close(self) -> None:
        """Disconnects. Calls that are still running raise ClientClosed."""
        open_here = self._cluster.is_open_here
        await self._telemetry.close(self._cluster.measured() if open_here else None)
        await self._cluster.close()

    def _warn_unclosed(self, block: str) -> None:
        if self._is_started:
            self._cluster.warn_unclosed(self, "an admin client", block=block)

    def __del__(self) -> None:
        self._warn_unclosed("async with")

    def metrics(self) -> dict[str, float]:
        """Returns metrics of connections, requests and latencies, under Kafka's names."""
        self._cluster.check()
        return self._cluster.measured()

    async def client_instance_id(self, timeout_ms: int | None = None) -> str:
        """Returns the id under which brokers know the metrics that this client pushes (KIP-714), as
        soon as one has given it. Raises RequestTimedOut at the timeout, for instance where brokers
        take no metrics."""
        self._cluster.check()
        if timeout_ms is None:
            timeout_ms = self._config.default_api_timeout_ms
        return await self._telemetry.instance_id(timeout_ms)

    def register_metric(self, name: str, read: Callable[[], float]) -> None:
        """Has a metric of yours pushed together with the client's (KIP-1076), as
        `org.apache.kafka.NAME` with dots for dashes. `read` returns its value; it is called on the
        event loop before each push. A name that ends in `-total` is a count that only grows."""
        self._telemetry.register(name, read)

    def unregister_metric(self, name: str) -> None:
        """Ends what `register_metric` began."""
        self._telemetry.unregister(name)

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    create_topic = topics.create_topic
    create_topics = topics.create_topics
    delete_topic = topics.delete_topic
    delete_topics = topics.delete_topics
    list_topics = topics.list_topics
    describe_topic = topics.describe_topic
    describe_topics = topics.describe_topics
    create_partitions = topics.create_partitions

    list_offsets = offsets.list_offsets
    topic_offsets = offsets.topic_offsets
    delete_records = records.delete_records

    describe_config = configs.describe_config
    describe_configs = configs.describe_configs
    alter_config = configs.alter_config
    alter_configs = configs.alter_configs
    list_config_resources = configs.list_config_resources

    list_groups = groups.list_groups
    describe_group = groups.describe_group
    describe_groups = groups.describe_groups
    delete_group = groups.delete_group
    delete_groups = groups.delete_groups
    remove_members = groups.remove_members
    group_offsets = committed.group_offsets
    group_lag = lag.group_lag
    list_group_offsets = committed.list_group_offsets
    alter_group_offsets = committed.alter_group_offsets
    delete_group_offsets = committed.delete_group_offsets
    list_share_group_offsets = share_offsets.list_share_group_offsets
    alter_share_group_offsets = share_offsets.alter_share_group_offsets
    delete_share_group_offsets = share_offsets.delete_share_group_offsets

    describe_cluster = cluster.describe_cluster
    unregister_broker = cluster.unregister_broker
    trace_requests = traces.trace_requests
    describe_log_dirs = log_dirs.describe_log_dirs
    alter_replica_log_dirs = log_dirs.alter_replica_log_dirs
    describe_quorum = quorum.describe_quorum
    add_voter = quorum.add_voter
    remove_voter = quorum.remove_voter
    describe_features = features.describe_features
    update_features = features.update_features
    elect_leaders = elections.elect_leaders
    reassign_partitions = reassignments.reassign_partitions
    list_reassignments = reassignments.list_reassignments

    describe_producers = producers.describe_producers
    fence_producers = producers.fence_producers
    list_transactions = transactions.list_transactions
    describe_transaction = transactions.describe_transaction
    describe_transactions = transactions.describe_transactions
    abort_transaction = transactions.abort_transaction
    force_terminate_transaction = transactions.force_terminate_transaction
    find_hanging_transactions = transactions.find_hanging_transactions

    create_acls = acls.create_acls
    describe_acls = acls.describe_acls
    delete_acls = acls.delete_acls
    describe_quotas = quotas.describe_quotas
    alter_quotas = quotas.alter_quotas
    describe_scram = scram.describe_scram
    set_scram = scram.set_scram
    delete_scram = scram.delete_scram
    create_token = tokens.create_token
    renew_token = tokens.renew_token
    expire_token = tokens.expire_token
    describe_tokens = tokens.describe_tokens


def _telemetry_of(admin: Admin) -> Telemetry:
    known = ref(admin)  # the pushes do not keep a client that nobody closed

    def measured() -> dict[str, float] | None:
        found = known()
        return None if found is None else found._cluster.measured()

    prefix = f"{DOMAIN}.admin.client."
    return Telemetry(admin._cluster, measured=measured, prefix_of=lambda name: prefix, labels=dict)
