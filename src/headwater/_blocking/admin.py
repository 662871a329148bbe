"""The blocking face of `Admin`: the same calls, for scripts and threads."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from threading import Lock
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar

from headwater._blocking.loop import LoopThread
from headwater.client.admin import Admin as AsyncAdmin
from headwater.client.errors import ClientClosed

if TYPE_CHECKING:
    from typing import Unpack

    from headwater.client.config import Bootstrap
    from headwater.client.settings import AdminSettings

P = ParamSpec("P")
R = TypeVar("R")


def _blocking(
    method: Callable[Concatenate[AsyncAdmin, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Admin, P], R]:
    """The same call, which waits. It has the arguments and the words of the other."""

    @wraps(method)
    def call(self: Admin, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(lambda: method(self.asynchronous, *args, **kwargs))

    return call


class Admin:
    """A client for those who run a cluster; see `headwater.Admin`. Threads may share one."""

    def __init__(
        self,
        bootstrap: Bootstrap | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        **settings: Unpack[AdminSettings],
    ) -> None:
        self.asynchronous = AsyncAdmin(bootstrap, config=config, **settings)
        self._thread: LoopThread | None = None
        self._starting = Lock()
        self._is_closed = False

    def start(self) -> Self:
        """Finds a first broker; `with` does it, and so does the first call."""
        self._started()
        return self

    def close(self) -> None:
        with self._starting:
            self._is_closed = True
            if self._thread is not None:
                self._thread.close(self.asynchronous.close)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def run(self, make: Callable[[], Coroutine[Any, Any, R]]) -> R:
        """Has a coroutine run where the client lives, and waits for it."""
        return self._started().call(make)

    def _started(self) -> LoopThread:
        with self._starting:
            if self._is_closed:
                raise ClientClosed("the client was closed; make a new one")
            if self._thread is None:
                self._thread = LoopThread("headwater-admin")
                try:
                    self._thread.call(self.asynchronous.start)
                except BaseException:
                    self._thread.close()
                    raise
            return self._thread

    create_topic = _blocking(AsyncAdmin.create_topic)
    create_topics = _blocking(AsyncAdmin.create_topics)
    delete_topic = _blocking(AsyncAdmin.delete_topic)
    delete_topics = _blocking(AsyncAdmin.delete_topics)
    list_topics = _blocking(AsyncAdmin.list_topics)
    describe_topic = _blocking(AsyncAdmin.describe_topic)
    describe_topics = _blocking(AsyncAdmin.describe_topics)
    create_partitions = _blocking(AsyncAdmin.create_partitions)

    list_offsets = _blocking(AsyncAdmin.list_offsets)
    topic_offsets = _blocking(AsyncAdmin.topic_offsets)
    delete_records = _blocking(AsyncAdmin.delete_records)

    describe_config = _blocking(AsyncAdmin.describe_config)
    describe_configs = _blocking(AsyncAdmin.describe_configs)
    alter_config = _blocking(AsyncAdmin.alter_config)
    alter_configs = _blocking(AsyncAdmin.alter_configs)
    list_config_resources = _blocking(AsyncAdmin.list_config_resources)

    list_groups = _blocking(AsyncAdmin.list_groups)
    describe_group = _blocking(AsyncAdmin.describe_group)
    describe_groups = _blocking(AsyncAdmin.describe_groups)
    delete_group = _blocking(AsyncAdmin.delete_group)
    delete_groups = _blocking(AsyncAdmin.delete_groups)
    remove_members = _blocking(AsyncAdmin.remove_members)
    group_offsets = _blocking(AsyncAdmin.group_offsets)
    list_group_offsets = _blocking(AsyncAdmin.list_group_offsets)
    alter_group_offsets = _blocking(AsyncAdmin.alter_group_offsets)
    delete_group_offsets = _blocking(AsyncAdmin.delete_group_offsets)
    list_share_group_offsets = _blocking(AsyncAdmin.list_share_group_offsets)
    alter_share_group_offsets = _blocking(AsyncAdmin.alter_share_group_offsets)
    delete_share_group_offsets = _blocking(AsyncAdmin.delete_share_group_offsets)

    describe_cluster = _blocking(AsyncAdmin.describe_cluster)
    unregister_broker = _blocking(AsyncAdmin.unregister_broker)
    describe_log_dirs = _blocking(AsyncAdmin.describe_log_dirs)
    alter_replica_log_dirs = _blocking(AsyncAdmin.alter_replica_log_dirs)
    describe_quorum = _blocking(AsyncAdmin.describe_quorum)
    add_voter = _blocking(AsyncAdmin.add_voter)
    remove_voter = _blocking(AsyncAdmin.remove_voter)
    describe_features = _blocking(AsyncAdmin.describe_features)
    update_features = _blocking(AsyncAdmin.update_features)
    elect_leaders = _blocking(AsyncAdmin.elect_leaders)
    reassign_partitions = _blocking(AsyncAdmin.reassign_partitions)
    list_reassignments = _blocking(AsyncAdmin.list_reassignments)

    describe_producers = _blocking(AsyncAdmin.describe_producers)
    fence_producers = _blocking(AsyncAdmin.fence_producers)
    list_transactions = _blocking(AsyncAdmin.list_transactions)
    describe_transaction = _blocking(AsyncAdmin.describe_transaction)
    describe_transactions = _blocking(AsyncAdmin.describe_transactions)
    abort_transaction = _blocking(AsyncAdmin.abort_transaction)

    create_acls = _blocking(AsyncAdmin.create_acls)
    describe_acls = _blocking(AsyncAdmin.describe_acls)
    delete_acls = _blocking(AsyncAdmin.delete_acls)
    describe_quotas = _blocking(AsyncAdmin.describe_quotas)
    alter_quotas = _blocking(AsyncAdmin.alter_quotas)
    describe_scram = _blocking(AsyncAdmin.describe_scram)
    set_scram = _blocking(AsyncAdmin.set_scram)
    delete_scram = _blocking(AsyncAdmin.delete_scram)
    create_token = _blocking(AsyncAdmin.create_token)
    renew_token = _blocking(AsyncAdmin.renew_token)
    expire_token = _blocking(AsyncAdmin.expire_token)
    describe_tokens = _blocking(AsyncAdmin.describe_tokens)
