"""The blocking `Admin`: the same calls, for scripts and threads."""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from headwater._blocking.client import BlockingClient, blocking_call, loop_call
from headwater.client.admin import Admin as AsyncAdmin
from headwater.client.admin import MissedRequests, TracedRequest
from headwater.client.errors import ClientClosed

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
        if self._thread is not None:
            self._asynchronous._warn_unclosed("with")

    metrics = loop_call(AsyncAdmin.metrics)
    client_instance_id = blocking_call(AsyncAdmin.client_instance_id)
    register_metric = loop_call(AsyncAdmin.register_metric)
    unregister_metric = loop_call(AsyncAdmin.unregister_metric)

    create_topic = blocking_call(AsyncAdmin.create_topic)
    create_topics = blocking_call(AsyncAdmin.create_topics)
    delete_topic = blocking_call(AsyncAdmin.delete_topic)
    delete_topics = blocking_call(AsyncAdmin.delete_topics)
    list_topics = blocking_call(AsyncAdmin.list_topics)
    describe_topic = blocking_call(AsyncAdmin.describe_topic)
    describe_topics = blocking_call(AsyncAdmin.describe_topics)
    create_partitions = blocking_call(AsyncAdmin.create_partitions)

    list_offsets = blocking_call(AsyncAdmin.list_offsets)
    topic_offsets = blocking_call(AsyncAdmin.topic_offsets)
    delete_records = blocking_call(AsyncAdmin.delete_records)

    describe_config = blocking_call(AsyncAdmin.describe_config)
    describe_configs = blocking_call(AsyncAdmin.describe_configs)
    alter_config = blocking_call(AsyncAdmin.alter_config)
    alter_configs = blocking_call(AsyncAdmin.alter_configs)
    list_config_resources = blocking_call(AsyncAdmin.list_config_resources)

    list_groups = blocking_call(AsyncAdmin.list_groups)
    describe_group = blocking_call(AsyncAdmin.describe_group)
    describe_groups = blocking_call(AsyncAdmin.describe_groups)
    delete_group = blocking_call(AsyncAdmin.delete_group)
    delete_groups = blocking_call(AsyncAdmin.delete_groups)
    remove_members = blocking_call(AsyncAdmin.remove_members)
    group_offsets = blocking_call(AsyncAdmin.group_offsets)
    group_lag = blocking_call(AsyncAdmin.group_lag)
    list_group_offsets = blocking_call(AsyncAdmin.list_group_offsets)
    alter_group_offsets = blocking_call(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = blocking_call(AsyncAdmin.delete_group_offsets)
    list_share_group_offsets = blocking_call(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = blocking_call(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = blocking_call(AsyncAdmin.delete_share_group_offsets)

    describe_cluster = blocking_call(AsyncAdmin.describe_cluster)
    unregister_broker = blocking_call(AsyncAdmin.unregister_broker)
    describe_log_dirs = blocking_call(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = blocking_call(AsyncAdmin.alter_replica_log_dirs)
    describe_quorum = blocking_call(AsyncAdmin.describe_quorum)
    add_voter = blocking_call(AsyncAdmin.add_voter)
    remove_voter = blocking_call(AsyncAdmin.remove_voter)
    describe_features = blocking_call(AsyncAdmin.describe_features)
    update_features = blocking_call(AsyncAdmin.update_features)
    elect_leaders = blocking_call(AsyncAdmin.elect_leaders)
    reassign_partitions = blocking_call(AsyncAdmin.reassign_partitions)
    list_reassignments = blocking_call(AsyncAdmin.list_reassignments)

    describe_producers = blocking_call(AsyncAdmin.describe_producers)
    fence_producers = blocking_call(AsyncAdmin.fence_producers)
    list_transactions = blocking_call(AsyncAdmin.list_transactions)
    describe_transaction = blocking_call(AsyncAdmin.describe_transaction)
    describe_transactions = blocking_call(AsyncAdmin.describe_transactions)
    abort_transaction = blocking_call(AsyncAdmin.abort_transaction)
    force_terminate_transaction = blocking_call(AsyncAdmin.force_terminate_transaction)
    find_hanging_transactions = blocking_call(AsyncAdmin.find_hanging_transactions)

    create_acls = blocking_call(AsyncAdmin.create_acls)
    describe_acls = blocking_call(AsyncAdmin.describe_acls)
    delete_acls = blocking_call(AsyncAdmin.delete_acls)
    describe_quotas = blocking_call(AsyncAdmin.describe_quotas)
    alter_quotas = blocking_call(AsyncAdmin.alter_quotas)
    describe_scram = blocking_call(AsyncAdmin.describe_scram)
    set_scram = blocking_call(AsyncAdmin.set_scram)
    delete_scram = blocking_call(AsyncAdmin.delete_scram)
    create_token = blocking_call(AsyncAdmin.create_token)
    renew_token = blocking_call(AsyncAdmin.renew_token)
    expire_token = blocking_call(AsyncAdmin.expire_token)
    describe_tokens = blocking_call(AsyncAdmin.describe_tokens)

    def trace_requests(
        self,
        *,
        client_id: str | None = None,
        api: str | None = None,
        principal: str | None = None,
        topic: str | None = None,
        nodes: frozenset[int] | None = None,
    ) -> Generator[TracedRequest | MissedRequests, None, None]:
        """See `headwater.Admin.trace_requests`."""
        found = self._asynchronous.trace_requests(
            client_id=client_id, api=api, principal=principal, topic=topic, nodes=nodes
        )

        taking: asyncio.Future[TracedRequest | MissedRequests | None] | None = None

        async def step() -> TracedRequest | MissedRequests | None:
            nonlocal taking
            taking = asyncio.ensure_future(anext(found, None))
            return await taking

        async def end() -> None:
            if taking is not None:  # an interrupt ends the wait in this thread only
                taking.cancel()
                await asyncio.gather(taking, return_exceptions=True)
            await found.aclose()

        try:
            while (each := self._run(step)) is not None:
                yield each
        finally:
            with suppress(ClientClosed):  # which has ended it
                self._run(end)
