"""`Admin` on the cluster itself, and what it says when an API is not there.

With HEADWATER_TEST_BOOTSTRAP these claims are aimed at that broker; Apache Kafka meets them too.
"""

from __future__ import annotations

import asyncio
import gc
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import headwater
from harness.wire import Plain, Wire, batch, until
from headwater.blocking import Admin
from headwater.client.admin import (
    QUOTA_ANY,
    QUOTA_DEFAULT,
    LogDir,
    NewTopic,
    OffsetSpec,
    Operation,
    QuotaEntity,
    QuotaFilter,
    Replica,
    or_raise,
)
from headwater.client.admin.acls import Acl, AclFilter, AclResource
from headwater.client.errors import (
    BrokersUnavailable,
    ClientClosed,
    ClientError,
    ConfigError,
    UnsupportedVersion,
)
from headwater.errors import ErrorCode
from headwater.model import TopicPartition
from headwater.protocol.apis import APIS, ApiKey
from headwater.testing import EmbeddedBroker


@pytest.fixture
def admin(shared_broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(shared_broker.bootstrap) as connected:
        yield connected


def is_refused(admin: Admin, api: ApiKey, call: Callable[[], Any]) -> bool:
    """Returns whether the broker lacks an API, which the error must name."""
    router = admin._asynchronous._router
    if admin._run(lambda: router.serves(api, router.deadline(None))):
        return False
    with pytest.raises(UnsupportedVersion, match=APIS[api].name):
        call()
    return True


def test_the_cluster_tells_its_nodes(admin: Admin, shared_broker: EmbeddedBroker) -> None:
    told = admin.describe_cluster(fenced=True, operations=True)
    (node,) = told.nodes
    assert node.address == shared_broker.bootstrap
    assert not node.is_fenced
    assert told.id
    assert "ALTER" in (told.operations or ())


def test_the_quorum_tells_its_voters(admin: Admin) -> None:
    quorum = admin.describe_quorum()
    (voter,) = quorum.voters
    assert voter.node_id == quorum.leader_id
    assert 0 < quorum.high_watermark <= voter.log_end
    assert quorum.observers == ()


def test_features_are_told_and_checked_before_they_change(admin: Admin) -> None:
    features = admin.describe_features()
    level = features.finalized["metadata.version"].most
    assert features.supported["metadata.version"].most >= level
    name = "group.version"
    same = {name: features.finalized[name].most}
    assert admin.update_features(same, validate_only=True) == {name: None}
    refused = admin.update_features({name: 99}, validate_only=True)[name]
    assert isinstance(refused, ClientError)
    assert "99" in str(refused)


def test_directories_tell_what_lies_in_them(admin: Admin, wire: Wire, topic: str) -> None:
    admin.create_topic(topic)
    assert wire.produce(topic, batch([Plain(b"v" * 100)])).error_code == 0
    where = TopicPartition(topic, 0)
    (dirs,) = or_raise(admin.describe_log_dirs(partitions=[where])).values()
    (found,) = [each for each in dirs.values() if where in each.replicas]
    assert isinstance(found, LogDir)
    assert found.size_bytes == found.replicas[where].size_bytes > 100
    assert found.error is None
    assert found.total_bytes is None or found.total_bytes >= (found.usable_bytes or 0)


def test_a_replica_is_not_moved_to_where_nothing_is(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    (node,) = admin.describe_cluster().nodes
    replica = Replica(topic, 0, node.id)
    refused = admin.alter_replica_log_dirs({replica: "/no/such/directory"})[replica]
    assert isinstance(refused, ClientError)
    assert refused.code == ErrorCode.LOG_DIR_NOT_FOUND
    assert "/no/such/directory" in str(refused)


def test_a_partition_tells_its_producers(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    where = TopicPartition(topic, 0)
    assert admin.describe_producers([where]) == {where: ()}
    (node,) = admin.describe_cluster().nodes
    assert admin.describe_producers([where], node_id=node.id) == {where: ()}


def test_a_leader_that_is_the_right_one_needs_no_election(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    where, beyond = TopicPartition(topic, 0), TopicPartition(topic, 9)
    elected = admin.elect_leaders([where, beyond])
    assert elected[where] is None
    assert isinstance(elected[beyond], ClientError)
    assert all(error is None for error in admin.elect_leaders().values())


def test_partitions_are_reassigned(admin: Admin, topic: str) -> None:
    admin.create_topic(topic)
    (node,) = admin.describe_cluster().nodes
    where = TopicPartition(topic, 0)
    assert admin.list_reassignments() == {}
    change = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    if is_refused(admin, change, lambda: admin.reassign_partitions({where: [node.id]})):
        return
    assert admin.reassign_partitions({where: [node.id]}) == {where: None}
    assert admin.list_reassignments([where]) == {}
    ended = admin.reassign_partitions({where: None})[where]
    assert isinstance(ended, ClientError)
    assert ended.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def test_transactions_are_listed_and_described(admin: Admin, topic: str) -> None:
    assert topic not in {each.transactional_id for each in admin.list_transactions()}
    describe = ApiKey.DESCRIBE_TRANSACTIONS
    if is_refused(admin, describe, lambda: admin.describe_transactions([topic])):
        return
    fence = or_raise(admin.fence_producers([topic]))[topic]
    about = admin.describe_transaction(topic)
    assert (about.state, about.producer_id) == ("Empty", fence.producer_id)
    listed = admin.list_transactions(producer_ids=[fence.producer_id], states=["Empty"])
    assert [each.transactional_id for each in listed] == [topic]
    unknown = admin.describe_transactions([f"{topic}-unknown"])[f"{topic}-unknown"]
    assert isinstance(unknown, ClientError)
    assert unknown.code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def test_acls_are_made_found_and_deleted(admin: Admin, topic: str) -> None:
    acl = Acl(AclResource.TOPIC, topic, "User:alice", Operation.READ)
    created = admin.create_acls([acl])[acl]
    if created is not None:  # a cluster without an authorizer
        assert created.code == ErrorCode.SECURITY_DISABLED
        with pytest.raises(ClientError) as caught:
            admin.describe_acls()
        assert caught.value.code == ErrorCode.SECURITY_DISABLED
        return
    wanted = AclFilter(name=topic)
    until(lambda: admin.describe_acls(wanted) == [acl], "the rule")
    assert admin.delete_acls([wanted]) == {wanted: [acl]}
    until(lambda: admin.describe_acls(wanted) == [], "no rule")


def test_quotas_are_set_found_and_taken_away(admin: Admin, topic: str) -> None:
    user, everyone = QuotaEntity(user=topic), QuotaEntity(user=QUOTA_DEFAULT)
    quotas = {user: {"producer_byte_rate": 1e6}, everyone: {"consumer_byte_rate": 2e6}}
    assert admin.describe_quotas(QuotaFilter(user=topic)) == {}
    if is_refused(admin, ApiKey.ALTER_CLIENT_QUOTAS, lambda: admin.alter_quotas(quotas)):
        return
    done = admin.alter_quotas(quotas)
    assert done == {user: None, everyone: None}
    until(lambda: user in admin.describe_quotas(QuotaFilter(user=topic)), "the quota")
    assert admin.describe_quotas(QuotaFilter(user=topic)) == {user: {"producer_byte_rate": 1e6}}
    assert {user, everyone} <= set(admin.describe_quotas(QuotaFilter(user=QUOTA_ANY)))
    admin.alter_quotas({user: {"producer_byte_rate": None}, everyone: {"consumer_byte_rate": None}})
    until(lambda: not admin.describe_quotas(QuotaFilter(user=topic)), "no quota")


def test_users_get_and_lose_passwords(admin: Admin, topic: str) -> None:
    user = topic[-8:]
    assert admin.describe_scram([user]) == {user: ()}

    def set_password() -> None:
        admin.set_scram(user, "secret", mechanism="SCRAM-SHA-256", iterations=8192)

    if is_refused(admin, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, set_password):
        return
    set_password()
    until(lambda: bool(or_raise(admin.describe_scram([user]))[user]), "the password")
    (credential,) = or_raise(admin.describe_scram([user]))[user]
    assert (credential.mechanism, credential.iterations) == ("SCRAM-SHA-256", 8192)
    assert admin.delete_scram({user: "SCRAM-SHA-256"}) == {user: None}
    until(lambda: admin.describe_scram([user]) == {user: ()}, "no password")


def test_tokens_are_not_for_those_who_are_nobody(admin: Admin) -> None:
    """Over a listener without authentication nobody is anybody, and gets no token."""
    calls: list[Callable[[], object]] = [admin.describe_tokens, admin.create_token]
    if is_refused(admin, ApiKey.CREATE_DELEGATION_TOKEN, admin.create_token):
        calls = [admin.describe_tokens]
    for call in calls:
        with pytest.raises(ClientError) as caught:
            call()
        assert caught.value.code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert "over SASL or TLS" in str(caught.value)


# The client itself


def test_the_asyncio_face_is_the_same(shared_broker: EmbeddedBroker, topic: str) -> None:
    async def story() -> list[int | None]:
        async with headwater.Admin(shared_broker.bootstrap, client_id="story") as admin:
            made = await admin.create_topics([NewTopic(topic, 2)])
            assert or_raise(made)[topic].partitions == 2
            offsets = await asyncio.gather(
                admin.topic_offsets(topic), admin.topic_offsets(topic, OffsetSpec.EARLIEST)
            )
            return [found.offset for each in offsets for found in each.values()]

    assert asyncio.run(story()) == [0, 0, 0, 0]


def test_a_dead_address_is_named_in_bounded_time() -> None:
    with (
        pytest.raises(BrokersUnavailable, match=r"127\.0\.0\.1:1"),
        Admin("127.0.0.1:1", start_timeout_ms=200),
    ):
        pass


def test_a_closed_client_says_so(shared_broker: EmbeddedBroker) -> None:
    with Admin(shared_broker.bootstrap) as admin:
        pass
    with pytest.raises(ClientClosed):
        admin.list_topics()
    never_started = Admin(shared_broker.bootstrap)
    never_started.close()
    with pytest.raises(ClientClosed):
        never_started.list_topics()


def test_a_client_starts_with_its_first_call_and_threads_may_share_it(
    shared_broker: EmbeddedBroker,
) -> None:
    admin = Admin(shared_broker.bootstrap)
    with ThreadPoolExecutor(8) as threads:
        told = list(threads.map(lambda _: admin.describe_cluster().id, range(32)))
    assert len(set(told)) == 1
    admin.close()
    admin.close()


def test_a_setting_that_nobody_knows_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"retry\.backoff\.ms"):
        Admin("localhost:9092", config={"retry.backof.ms": 1})


def test_an_admin_client_that_is_dropped_unclosed_warns(shared_broker: EmbeddedBroker) -> None:
    async def drop() -> None:
        admin = await headwater.Admin(shared_broker.bootstrap).start()
        with pytest.warns(ResourceWarning, match="not closed: use it in `async with`"):
            del admin

    asyncio.run(drop())
    admin = Admin(shared_broker.bootstrap).start()
    with pytest.warns(ResourceWarning, match="not closed: use it in `with`") as caught:
        del admin
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the sockets of the first one
        gc.collect()


def test_an_admin_client_that_is_closed_or_was_never_started_does_not_warn(
    shared_broker: EmbeddedBroker,
) -> None:
    async def close() -> None:
        async with headwater.Admin(shared_broker.bootstrap):
            pass

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        asyncio.run(close())
        with Admin(shared_broker.bootstrap):
            pass
        Admin(shared_broker.bootstrap)
        for make in (headwater.Admin, Admin):
            with pytest.raises(ConfigError):
                make(shared_broker.bootstrap, retries=-1)
            with pytest.raises(TypeError):
                make(shared_broker.bootstrap, None)  # type: ignore[call-arg]  # too many
        gc.collect()
