"""Describing what the metadata of a Kafka cluster may contain: quotas, SCRAM users, moves."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from headwater.broker.context import Context
from headwater.broker.controller_handlers import list_partition_reassignments
from headwater.broker.handlers import describe_client_quotas, describe_user_scram_credentials
from headwater.metadata import Delta, Image
from headwater.protocol import Message
from headwater.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from headwater.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
)
from headwater.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from headwater.protocol.records.metadata_security import (
    ClientQuotaRecord,
    EntityData,
    UserScramCredentialRecord,
)
from headwater.protocol.records.metadata_topics import PartitionRecord, TopicRecord

EXACT, DEFAULT, ANY = 0, 1, 2
TOPIC_ID = b"t" * 16


def ask(handler: Any, image: Image, request: Message) -> Any:
    node = SimpleNamespace(image=image, check_active=lambda: None, authorizer=None)
    return handler.handle(node, cast(Context, None), request)


def image_of(*records: Message) -> Image:
    image = Image()
    for record in records:
        image.apply(record, Delta())
    return image


def quota(value: float, **entity: str | None) -> ClientQuotaRecord:
    parts = [
        EntityData(entity_type=kind.replace("_", "-"), entity_name=name)
        for kind, name in entity.items()
    ]
    return ClientQuotaRecord(entity=parts, key="producer_byte_rate", value=value, remove=False)


QUOTAS = (
    quota(1.0, user="alice"),
    quota(2.0, user=None),
    quota(3.0, user="alice", client_id="app"),
    quota(4.0, ip="10.0.0.1"),
)


@pytest.mark.parametrize(
    ("components", "strict", "found"),
    [
        ([], False, {1.0, 2.0, 3.0, 4.0}),
        ([], True, set()),
        ([("user", EXACT, "alice")], False, {1.0, 3.0}),
        ([("user", EXACT, "alice")], True, {1.0}),
        ([("user", DEFAULT, None)], False, {2.0}),
        ([("user", ANY, None)], False, {1.0, 2.0, 3.0}),
        ([("user", ANY, None), ("client-id", EXACT, "app")], True, {3.0}),
        ([("ip", EXACT, "10.0.0.1")], False, {4.0}),
    ],
)
def test_quotas_match_by_entity(
    components: list[tuple[str, int, str | None]], strict: bool, found: set[float]
) -> None:
    request = DescribeClientQuotasRequest(
        components=[ComponentData(entity_type=k, match_type=m, match=n) for k, m, n in components],
        strict=strict,
    )
    answer = ask(describe_client_quotas, image_of(*QUOTAS), request)
    assert {value.value for entry in answer.entries for value in entry.values} == found


def test_all_users_are_described_without_their_secrets() -> None:
    image = image_of(
        *(
            UserScramCredentialRecord(
                name=name,
                mechanism=mechanism,
                salt=b"salt",
                stored_key=b"stored",
                server_key=b"server",
                iterations=4096 * mechanism,
            )
            for name, mechanism in (("alice", 1), ("alice", 2), ("bob", 1))
        )
    )
    answer = ask(
        describe_user_scram_credentials, image, DescribeUserScramCredentialsRequest(users=None)
    )
    assert {
        result.user: [(info.mechanism, info.iterations) for info in result.credential_infos]
        for result in answer.results
    } == {"alice": [(1, 4096), (2, 8192)], "bob": [(1, 4096)]}


def test_a_partition_that_moves_is_listed() -> None:
    def partition(index: int, *, adding: list[int]) -> PartitionRecord:
        return PartitionRecord(
            partition_id=index,
            topic_id=TOPIC_ID,
            replicas=[1, 2],
            isr=[1],
            removing_replicas=[],
            adding_replicas=adding,
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )

    image = image_of(
        TopicRecord(name="moving", topic_id=TOPIC_ID),
        partition(0, adding=[2]),
        partition(1, adding=[]),
    )
    (topic,) = ask(
        list_partition_reassignments, image, ListPartitionReassignmentsRequest(topics=None)
    ).topics
    (moving,) = topic.partitions
    assert (topic.name, moving.partition_index) == ("moving", 0)
    assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ([1, 2], [2], [])
