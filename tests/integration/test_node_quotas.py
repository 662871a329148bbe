"""Quotas of a node: which clients are throttled, by how much, and that others are not affected.

Quotas are small and waits are long here, so that no test depends on how quick the machine is: a
connection that may go on after minutes is one that waits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from harness.nodes import free_port
from harness.wire import Closed, Wire, all_versions, batch, until
from headwater.blocking import Admin, Producer
from headwater.client.admin import QUOTA_DEFAULT, QuotaEntity
from headwater.errors import ErrorCode
from headwater.protocol import Message
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData,
    OpData,
)
from headwater.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from headwater.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from headwater.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from headwater.protocol.messages.fetch import ReplicaState
from headwater.protocol.messages.metadata import MetadataRequest
from headwater.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from headwater.testing import EmbeddedBroker

PRODUCE, FETCH = "producer_byte_rate", "consumer_byte_rate"
TIME, CHANGES = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
RECORDS = batch([b"x" * 1000] * 20)  # 20 KB
MUCH = 20_000  # bytes, a little less than that


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


class Quotas:
    """Sets quotas, waits until the node has them, and takes them away at the end."""

    def __init__(self, broker: EmbeddedBroker) -> None:
        self._admin = Admin(broker.bootstrap)
        self._set: dict[QuotaEntity, dict[str, float | None]] = {}

    def set(self, entity: QuotaEntity, **values: float | None) -> None:
        assert self._admin.alter_quotas({entity: values}) == {entity: None}
        self._set.setdefault(entity, {}).update(dict.fromkeys(values))

    def close(self) -> None:
        if self._set:
            self._admin.alter_quotas(self._set)
        self._admin.close()


@pytest.fixture
def quotas(broker: EmbeddedBroker) -> Iterator[Quotas]:
    made = Quotas(broker)
    yield made
    made.close()


@pytest.fixture
def clients(broker: EmbeddedBroker) -> Iterator[Any]:
    """Makes connections by client id."""
    with ExitStack() as stack:
        yield lambda name, **options: stack.enter_context(
            Wire(broker.bootstrap, client_id=name, **options)
        )


def send(wire: Wire, topic: str, *, version: int | None = None, acks: int = -1) -> int:
    """Produces 20 KB; the throttle time."""
    request, version = wire.produce_request(topic, RECORDS, version=version, acks=acks)
    answer = wire.ask(request, version)
    assert [p.error_code for t in answer.responses for p in t.partition_responses] == [0]
    throttle_ms: int = answer.throttle_time_ms
    return throttle_ms


def is_held(wire: Wire, request: Message | None = None) -> bool:
    """Sends a request and returns whether it gets no answer, in much less time than a wait."""
    wire.send(request or MetadataRequest(topics=[]))
    patience = wire.socket.gettimeout()
    wire.socket.settimeout(0.2)
    try:
        wire.receive()
    except TimeoutError:
        return True
    finally:
        wire.socket.settimeout(patience)
    return False


def test_a_producer_waits_and_nobody_else_does(clients: Any, quotas: Quotas, topic: str) -> None:
    quotas.set(QuotaEntity(client_id=topic), **{PRODUCE: 100.0})
    for version in all_versions(ApiKey.PRODUCE)[::3]:
        wire, other = clients(topic), clients("other")
        wire.topic_id(topic)
        assert send(wire, topic, version=version) > 100_000  # 20 KB at 100 B/s, not 1000 for it all
        assert is_held(wire)
        assert send(other, topic, version=version) == 0
        assert not is_held(other)
        quotas.set(QuotaEntity(client_id=topic), **{PRODUCE: None})
        quotas.set(QuotaEntity(client_id=topic), **{PRODUCE: 100.0})
        wire.receive()  # a change of quotas lets it go on


def test_a_burst_of_what_the_windows_allow_does_not_wait(
    clients: Any, quotas: Quotas, topic: str
) -> None:
    quotas.set(QuotaEntity(client_id=topic), **{PRODUCE: 5_000.0})
    wire = clients(topic)
    wire.topic_id(topic)
    assert [send(wire, topic), send(wire, topic)] == [0, 0]  # 40 KB in ten seconds
    assert 10_000 < send(wire, topic) < 13_000
    assert is_held(wire)


def test_a_producer_without_acknowledgements_waits_as_well(
    clients: Any, quotas: Quotas, topic: str
) -> None:
    quotas.set(QuotaEntity(client_id=topic), **{PRODUCE: 100.0})
    wire = clients(topic)
    wire.topic_id(topic)
    wire.send(*wire.produce_request(topic, RECORDS, acks=0))
    assert is_held(wire)


def test_what_was_sent_at_once_is_answered_and_counted(
    clients: Any, quotas: Quotas, topic: str
) -> None:
    """Requests that are on their way when the first one is held back are served when it is over."""
    quotas.set(QuotaEntity(client_id=topic), **{PRODUCE: 100.0})
    wire = clients(topic)
    wire.topic_id(topic)
    for _ in range(3):
        wire.send(*wire.produce_request(topic, RECORDS))
    assert wire.receive().throttle_time_ms > 100_000
    assert is_held(wire)
    quotas.set(QuotaEntity(client_id=topic), **{PRODUCE: 1e9})
    assert [wire.receive().throttle_time_ms for _ in range(2)] == [0, 0]
    wire.receive()  # what `is_held` asked
    assert wire.offset_at(topic, -1).offset == 60


def test_the_fetch_of_a_throttled_consumer_is_empty(
    clients: Any, quotas: Quotas, topic: str
) -> None:
    writer = clients("writer")
    for _ in range(3):
        send(writer, topic)
    for version in all_versions(ApiKey.FETCH)[::4]:
        quotas.set(QuotaEntity(client_id=topic), **{FETCH: 100.0})
        wire = clients(topic)
        first = wire.ask(*wire.fetch_request(topic, version=version, max_bytes=1))
        assert first.throttle_time_ms == 0  # a whole batch, as the first one always is
        second = wire.ask(*wire.fetch_request(topic, version=version, max_wait_ms=60_000))
        assert second.throttle_time_ms > 100_000
        assert (second.responses, second.error_code) == ([], 0)
        assert is_held(wire)
        another = clients(topic)  # which shares the quota, and finds nothing to read
        request, _ = another.fetch_request(topic, 60, version=version, max_wait_ms=3_600_000)
        assert another.ask(request, version).throttle_time_ms > 100_000
        quotas.set(QuotaEntity(client_id=topic), **{FETCH: None})
        wire.receive()
        assert len(wire.values(topic)) == 60


def test_a_fetch_waits_for_no_more_than_its_quota_allows(
    clients: Any, quotas: Quotas, topic: str
) -> None:
    send(clients("writer"), topic)
    quotas.set(QuotaEntity(client_id=topic), **{FETCH: 1000.0})
    wire = clients(topic)
    answer = wire.ask(*wire.fetch_request(topic, min_bytes=10 << 20, max_wait_ms=3_600_000))
    assert answer.responses


def test_a_fetch_session_survives_a_throttled_fetch(
    clients: Any, quotas: Quotas, topic: str
) -> None:
    send(clients("writer"), topic)
    wire = clients(topic)
    begun = wire.ask(*wire.fetch_request(topic, session_epoch=0, max_bytes=1))
    session_id = begun.session_id
    assert session_id
    send(clients("writer"), topic)
    quotas.set(QuotaEntity(client_id=topic), **{FETCH: 100.0})

    def more(epoch: int, offset: int) -> Any:
        request, version = wire.fetch_request(
            topic, offset, session_id=session_id, session_epoch=epoch
        )
        return wire.ask(request, version)

    assert more(1, 0).responses  # the first that counts
    held = more(2, 20)
    assert (held.session_id, held.responses) == (session_id, [])
    assert held.throttle_time_ms > 0
    quotas.set(QuotaEntity(client_id=topic), **{FETCH: None})
    (found,) = more(3, 20).responses
    assert found.partitions[0].records
    # A session that was to begin with a throttled fetch does not begin.
    quotas.set(QuotaEntity(client_id=topic), **{FETCH: 100.0})
    wire.ask(*wire.fetch_request(topic, session_epoch=0, max_bytes=1))
    assert wire.ask(*wire.fetch_request(topic, session_epoch=0)).session_id == 0


def test_quotas_follow_changes_on_an_open_connection(
    clients: Any, quotas: Quotas, topic: str
) -> None:
    wire = clients(topic)
    wire.topic_id(topic)
    assert send(wire, topic) == 0
    quotas.set(QuotaEntity(client_id=QUOTA_DEFAULT), **{PRODUCE: 1e9})
    assert send(wire, topic) == 0
    quotas.set(QuotaEntity(client_id=topic), **{PRODUCE: 1e9})
    assert send(wire, topic) == 0
    quotas.set(QuotaEntity(user="ANONYMOUS"), **{PRODUCE: 100.0})  # more specific
    assert send(wire, topic) > 0
    assert is_held(wire)
    quotas.set(QuotaEntity(user="ANONYMOUS", client_id=topic), **{PRODUCE: 1e9})
    wire.receive()
    assert send(wire, topic) == 0


def test_a_percentage_of_time_holds_back_every_request(
    clients: Any, quotas: Quotas, topic: str
) -> None:
    quotas.set(QuotaEntity(client_id=topic), **{TIME: 0.0001})
    wire, other = clients(topic), clients("other")
    answer = wire.ask(MetadataRequest(topics=[]))
    assert 0 < answer.throttle_time_ms <= 1000  # at most a window, as in Kafka
    assert other.ask(MetadataRequest(topics=[])).throttle_time_ms == 0
    later = clients(topic)
    later.api_versions()
    assert wire.api_versions().throttle_time_ms > 0
    quotas.set(QuotaEntity(client_id=topic), **{TIME: 100.0})
    # Not at once: what it took to send the last response counts with the next request.
    assert until(lambda: wire.ask(MetadataRequest(topics=[])).throttle_time_ms == 0, "no wait")


def test_nodes_are_not_held_back(clients: Any, quotas: Quotas, topic: str) -> None:
    """Also where they are the same user as clients, and have their client id."""
    quotas.set(QuotaEntity(client_id=topic), **{TIME: 0.0001, FETCH: 1.0})
    wire = clients(topic)
    request, version = clients("other").fetch_request(topic)
    request.replica_state = ReplicaState(replica_id=7, replica_epoch=-1)
    assert [wire.ask(request, version).throttle_time_ms for _ in range(3)] == [0, 0, 0]
    markers = WriteTxnMarkersRequest(markers=[])
    wire.ask(markers)
    assert not is_held(wire, markers)
    request.replica_state = ReplicaState()
    assert wire.ask(request, version).throttle_time_ms > 0


def new_topics(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
            for name in names
        ]
    )


def codes(results: Sequence[Any]) -> list[int]:
    return [result.error_code for result in results]


def test_changes_of_the_cluster_are_refused_or_slowed(
    clients: Any, quotas: Quotas, topic: str
) -> None:
    """A single change, then one each hundred seconds."""
    entity = QuotaEntity(client_id=topic)
    refused = ErrorCode.THROTTLING_QUOTA_EXCEEDED

    def fresh() -> None:
        """A full bucket."""
        quotas.set(entity, **{CHANGES: None})
        quotas.set(entity, **{CHANGES: 0.01})

    for version in all_versions(ApiKey.CREATE_TOPICS):
        fresh()
        names = [f"{topic}-{version}-{number}" for number in range(3)]
        answer = clients(topic).ask(new_topics(*names, partitions=2), version)
        assert answer.throttle_time_ms > 100_000
        made = [0, refused, refused] if version >= 6 else [0, 0, 0]
        assert codes(answer.topics) == made
    for version in all_versions(ApiKey.CREATE_PARTITIONS):
        fresh()
        name = f"{topic}-2-{version % 3}"
        more = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=10 + 20 * version, assignments=None)],
            timeout_ms=10_000,
            validate_only=False,
        )
        wire = clients(topic)
        assert codes(wire.ask(more, version).results) == [0]
        assert is_held(wire) == (version < 3)  # nothing was refused, and it may come again
        again = clients(topic)
        more.topics[0].count += 10
        answer = again.ask(more, version)
        assert answer.throttle_time_ms > 100_000
        assert codes(answer.results) == [refused if version >= 3 else 0]
        assert is_held(again)
    for version in (4, 5, 6):
        fresh()
        doomed = [f"{topic}-{version - 2}-{number}" for number in (1, 2)]
        request = (
            DeleteTopicsRequest(
                topics=[DeleteTopicState(name=name, topic_id=bytes(16)) for name in doomed],
                timeout_ms=10_000,
            )
            if version >= 6
            else DeleteTopicsRequest(topic_names=doomed, timeout_ms=10_000)
        )
        answer = clients(topic).ask(request, version)
        assert answer.throttle_time_ms > 100_000
        assert sorted(codes(answer.responses)) == ([0, refused] if version >= 5 else [0, 0])


def test_an_address_that_connects_too_often_is_held_off(
    broker: EmbeddedBroker, clients: Any, quotas: Quotas
) -> None:
    here = "127.0.0.2"
    quotas.set(QuotaEntity(ip=here), **{CONNECTIONS: 1})
    assert all(clients("a", source=here).is_served() for _ in range(10))
    held = clients("a", source=here)
    with pytest.raises(Closed):
        held.is_served()
    assert clients("a").is_served()  # another address
    assert any(f"connection_creation_rate of {here}" in line for line in broker.log_lines)
    quotas.set(QuotaEntity(ip=here), **{CONNECTIONS: None})
    assert clients("a", source=here).is_served()
    quotas.set(QuotaEntity(ip=QUOTA_DEFAULT), **{CONNECTIONS: 1})
    third = "127.0.0.3"
    assert all(clients("a", source=third).is_served() for _ in range(10))
    with pytest.raises(Closed):
        clients("a", source=third).is_served()


def alteration(
    *entity: tuple[str, str | None], key: str = PRODUCE, value: float | None = 1e6
) -> AlterClientQuotasRequest:
    return AlterClientQuotasRequest(
        entries=[
            AlterClientQuotasRequestEntryData(
                entity=[
                    AlterClientQuotasRequestEntityData(entity_type=kind, entity_name=name)
                    for kind, name in entity
                ],
                ops=[OpData(key=key, value=value or 0.0, remove=value is None)],
            )
        ],
        validate_only=False,
    )


def test_users_who_log_in_have_quotas_and_our_clients_wait() -> None:
    """Clients of one user share what the user has, whatever they call themselves."""
    passwords = {"admin": "secret", "alice": "wonderland", "bob": "builder"}
    with EmbeddedBroker({"quota.window.num": "2"}, users=passwords) as broker:

        def settings(user: str, name: str) -> dict[str, Any]:
            login = {"sasl_username": user, "sasl_password": passwords[user]}
            return broker.client_settings | login | {"client_id": name}

        def waited_ms(user: str, name: str, count: int) -> float:
            with Producer(broker.bootstrap, **settings(user, name)) as producer:
                for _ in range(count):
                    producer.send("orders", value=b"x" * 1000)
                return producer.metrics()["produce-throttle-time-max"]

        assert waited_ms("alice", "one", 1) == 0
        with Admin(broker.bootstrap, **settings("admin", "admin")) as admin:
            alice = QuotaEntity(user="alice")
            assert admin.alter_quotas({alice: {PRODUCE: 2000.0}}) == {alice: None}
            admin.alter_quotas({QuotaEntity(client_id="two"): {PRODUCE: 1.0}})  # hidden by alice's
            assert waited_ms("bob", "one", 4) == 0
            # Of 8 kB one second's worth comes at once; each request after it waits.
            assert 0 < waited_ms("alice", "two", 4) < 10_000
            assert waited_ms("alice", "three", 4) > 0
            admin.alter_quotas({alice: {PRODUCE: None}})
        assert waited_ms("alice", "three", 4) == 0


def test_quotas_are_changed_at_a_controller() -> None:
    controller = f"127.0.0.1:{free_port()}"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
    }
    with EmbeddedBroker(settings) as broker, Wire(controller, client_id="app") as wire:
        for version in all_versions(ApiKey.ALTER_CLIENT_QUOTAS):
            (entry,) = wire.ask(alteration(("user", "alice")), version).entries
            assert entry.error_code == 0
        (entry,) = wire.ask(alteration(("planet", "x"))).entries
        assert entry.error_code == ErrorCode.INVALID_REQUEST
        assert entry.error_message
        with Admin(broker.bootstrap) as admin:
            assert admin.describe_quotas() == {QuotaEntity(user="alice"): {PRODUCE: 1e6}}


def test_quotas_survive_a_restart_and_go_by_the_windows_that_are_set() -> None:
    with EmbeddedBroker({"quota.window.num": "2"}) as broker:
        with Admin(broker.bootstrap) as admin:
            admin.alter_quotas({QuotaEntity(client_id="app"): {PRODUCE: 1000.0}})
        broker.stop()
        broker.start()
        with Admin(broker.bootstrap) as admin:
            assert admin.describe_quotas() == {QuotaEntity(client_id="app"): {PRODUCE: 1000.0}}
        with Wire(broker.bootstrap, client_id="app") as wire:
            wire.topic_id("orders")
            assert 15_000 < send(wire, "orders") < 25_000  # no burst of ten seconds
            assert is_held(wire)
