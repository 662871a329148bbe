"""The blocking `Admin`: the same calls, for scripts and threads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from headwater._blocking.client import BlockingClient, there, waiting
from headwater.client.admin import Admin as AsyncAdmin

if TYPE_CHECKING:
    from typing import Unpack

    from headwater.client.config import Bootstrap
    from headwater.client.settings import AdminSettings


class Admin(BlockingClient):
    """Manages a cluster; see `headwater.Admin`. Threads may share one client."""

    _asynchronous: AsyncAdmin

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        super().__init__("headwater-admin")
        self._asynchronous = AsyncAdmin(bootstrap, config=config, **settings)

    def close(self) -> None:
        """See `headwater.Admin.close`."""
        self._end(self._asynchronous.close)

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if "_asynchronous" in vars(self):  # else its settings were refused
            self._asynchronous._warn_unclosed("with")

    metrics = there(AsyncAdmin.metrics)

    create_topic = waiting(AsyncAdmin.create_topic)
    create_topics = waiting(AsyncAdmin.create_topics)
    delete_topic = waiting(AsyncAdmin.delete_topic)
    delete_topics = waiting(AsyncAdmin.delete_topics)
    list_topics = waiting(AsyncAdmin.list_topics)
    describe_topic = waiting(AsyncAdmin.describe_topic)
    describe_topics = waiting(AsyncAdmin.describe_topics)
    create_partitions = waiting(AsyncAdmin.create_partitions)

    list_offsets = waiting(AsyncAdmin.list_offsets)
    topic_offsets = waiting(AsyncAdmin.topic_offsets)
    delete_records = waiting(AsyncAdmin.delete_records)

    describe_config = waiting(AsyncAdmin.describe_config)
    describe_configs = waiting(AsyncAdmin.describe_configs)
    alter_config = waiting(AsyncAdmin.alter_config)
    alter_configs = waiting(AsyncAdmin.alter_configs)
    list_config_resources = waiting(AsyncAdmin.list_config_resources)

    list_groups = waiting(AsyncAdmin.list_groups)
    describe_group = waiting(AsyncAdmin.describe_group)
    describe_groups = waiting(AsyncAdmin.describe_groups)
    delete_group = waiting(AsyncAdmin.delete_group)
    delete_groups = waiting(AsyncAdmin.delete_groups)
    remove_members = waiting(AsyncAdmin.remove_members)
    group_offsets = waiting(AsyncAdmin.group_offsets)
    group_lag = waiting(AsyncAdmin.group_lag)
    list_group_offsets = waiting(AsyncAdmin.list_group_offsets)
    alter_group_offsets = waiting(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = waiting(AsyncAdmin.delete_group_offsets)
    list_share_group_offsets = waiting(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = waiting(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = waiting(AsyncAdmin.delete_share_group_offsets)

    describe_cluster = waiting(AsyncAdmin.describe_cluster)
    unregister_broker = waiting(AsyncAdmin.unregister_broker)
    describe_log_dirs = waiting(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = waiting(AsyncAdmin.alter_replica_log_dirs)
    describe_quorum = waiting(AsyncAdmin.describe_quorum)
    add_voter = waiting(AsyncAdmin.add_voter)
    remove_voter = waiting(AsyncAdmin.remove_voter)
    describe_features = waiting(AsyncAdmin.describe_features)
    update_features = waiting(AsyncAdmin.update_features)
    elect_leaders = waiting(AsyncAdmin.elect_leaders)
    reassign_partitions = waiting(AsyncAdmin.reassign_partitions)
    list_reassignments = waiting(AsyncAdmin.list_reassignments)

    describe_producers = waiting(AsyncAdmin.describe_producers)
    fence_producers = waiting(AsyncAdmin.fence_producers)
    list_transactions = waiting(AsyncAdmin.list_transactions)
    describe_transaction = waiting(AsyncAdmin.describe_transaction)
    describe_transactions = waiting(AsyncAdmin.describe_transactions)
    abort_transaction = waiting(AsyncAdmin.abort_transaction)

    create_acls = waiting(AsyncAdmin.create_acls)
    describe_acls = waiting(AsyncAdmin.describe_acls)
    delete_acls = waiting(AsyncAdmin.delete_acls)
    describe_quotas = waiting(AsyncAdmin.describe_quotas)
    alter_quotas = waiting(AsyncAdmin.alter_quotas)
    describe_scram = waiting(AsyncAdmin.describe_scram)
    set_scram = waiting(AsyncAdmin.set_scram)
    delete_scram = waiting(AsyncAdmin.delete_scram)
    create_token = waiting(AsyncAdmin.create_token)
    renew_token = waiting(AsyncAdmin.renew_token)
    expire_token = waiting(AsyncAdmin.expire_token)
    describe_tokens = waiting(AsyncAdmin.describe_tokens)
