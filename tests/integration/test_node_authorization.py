"""The rights that each API needs: the table in `harness/rights.py` against the node.

`conformance/test_authorization.py` compares the same answers with those of Apache Kafka.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from harness.nodes import free_port
from harness.rights import RECORDS, ROWS, SEEN, Guard, Right, Row, codes, trials
from headwater import Acl, AclPattern, AclResource, Admin, AuthorizationError, Consumer, Producer
from headwater.broker import controller_role, dispatch
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.security.operations import Operation
from headwater.testing import EmbeddedBroker

REFUSALS = {code for code in ErrorCode if code.name.endswith("AUTHORIZATION_FAILED")}

# Everybody may use these, or their rights are checked by a table of their own.
WITHOUT_ROW = {
    ApiKey.API_VERSIONS: "everybody may ask",
    ApiKey.SASL_HANDSHAKE: "comes before there is a principal",
    ApiKey.SASL_AUTHENTICATE: "comes before there is a principal",
    ApiKey.CREATE_DELEGATION_TOKEN: "needs a principal that has logged in",
    ApiKey.RENEW_DELEGATION_TOKEN: "owners and renewers of a token only",
    ApiKey.EXPIRE_DELEGATION_TOKEN: "owners and renewers of a token only",
    ApiKey.DESCRIBE_DELEGATION_TOKEN: "needs a principal that has logged in",
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: "everybody may ask",
    ApiKey.PUSH_TELEMETRY: "everybody may push what was asked for",
}
# Rows that show what is refused although other rights are there.
PARTLY_REFUSED = {
    "create_topics-cluster",
    "delete_groups",
    "delete_topics-describe-only",
    "metadata-creation-refused",
    "metadata-v9",
}


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    settings = {
        **Guard.SETTINGS,
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{free_port()}",
        "controller.listener.names": "CONTROLLER",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    controller = settings["listeners"].rpartition("//")[2]
    settings["controller.quorum.bootstrap.servers"] = controller
    with EmbeddedBroker(settings) as broker:
        guard = Guard(broker.bootstrap, controller)
        yield guard
        guard.close()


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_a_request_needs_exactly_these_rights(guard: Guard, row: Row) -> None:
    answers = {name: guard.ask(row, rights) for name, rights in trials(row)}
    allowed = answers.pop("all rights")
    assert bool(set(codes(allowed)) & REFUSALS) == (str(row) in PARTLY_REFUSED), allowed
    for name, answer in answers.items():
        # To hide whether a topic exists, its creation is refused in the same words.
        assert answer != allowed or row.note == "creation-refused", f"{name}: {answer}"
        assert set(codes(answer)) <= REFUSALS | set(codes(allowed)) | _OTHER_CODES, (name, answer)


# What a refused part leads to elsewhere in an answer.
_OTHER_CODES = {ErrorCode.NONE, ErrorCode.OPERATION_NOT_ATTEMPTED}


def test_a_denial_wins_over_all_rights(guard: Guard) -> None:
    for row in ROWS:
        if row.api in (ApiKey.PRODUCE, ApiKey.LIST_GROUPS, ApiKey.VOTE):
            refused = guard.ask(row, row.rights, denied=row.rights)
            assert refused == guard.ask(row, ()), row


def test_each_api_has_a_row() -> None:
    served = {*dispatch.SERVED, *controller_role.SERVED}
    without = served - {row.api for row in ROWS} - set(WITHOUT_ROW)
    assert not without, sorted(api.name for api in without)


PASSWORDS = {"admin": "secret", "alice": "wonderland"}  # the first one adds the others


@pytest.fixture(scope="module")
def users() -> Iterator[EmbeddedBroker]:
    settings = {
        "authorizer.class.name": Guard.SETTINGS["authorizer.class.name"],
        "super.users": "User:admin",
    }
    with EmbeddedBroker(settings, users=PASSWORDS) as broker:
        yield broker


def login(broker: EmbeddedBroker, user: str) -> dict[str, Any]:
    return broker.client_settings | {"sasl_username": user, "sasl_password": PASSWORDS[user]}


def test_a_user_who_logs_in_has_the_rights_of_the_rules(users: EmbeddedBroker) -> None:
    """Over SASL: the rules are about the user, and the topic is made in the user's name."""

    async def run() -> None:
        admin_login, alice_login = login(users, "admin"), login(users, "alice")
        async with Admin(users.bootstrap, **admin_login) as admin:
            await admin.create_topics({"orders": 1, "hidden": 1})
            with pytest.raises(AuthorizationError):
                async with Producer(users.bootstrap, **alice_login) as producer:
                    await producer.send("orders", value=b"x")
            rules = [
                Acl(AclResource.TOPIC, "orders", "User:alice", operation)
                for operation in (Operation.WRITE, Operation.READ)
            ]
            rules.append(
                Acl(AclResource.TOPIC, "alices-", "User:alice", Operation.ALL,
                    pattern=AclPattern.PREFIXED)
            )  # fmt: skip
            assert not any((await admin.create_acls(rules)).values())
        async with Producer(users.bootstrap, **alice_login) as producer:
            await producer.send("orders", value=b"x")
            await producer.send("alices-own", value=b"x")
        async with Admin(users.bootstrap, **alice_login) as alice:
            assert {each.name for each in await alice.list_topics()} == {"orders", "alices-own"}
        async with Consumer(
            users.bootstrap,
            topics=["orders"],
            group=None,
            auto_offset_reset="earliest",
            **alice_login,
        ) as consumer:
            async for record in consumer:
                assert record.value == b"x"
                break

    asyncio.run(run())
    denials = [line for line in users.log_lines if "authorization denied" in line]
    assert any(
        "verdict=denied principal=User:alice operation=IDEMPOTENT_WRITE "
        "resource=CLUSTER:kafka-cluster host=127.0.0.1 api=INIT_PRODUCER_ID" in line
        for line in denials
    ), denials
    assert not any("User:admin" in line for line in denials)


def test_a_connection_loses_a_right_with_its_rule(guard: Guard) -> None:
    """Permissions of a connection are remembered, but no longer than the rules last."""
    write = Right(Operation.WRITE, AclResource.TOPIC, SEEN)
    read = Right(Operation.READ, AclResource.TOPIC, SEEN)
    with guard.connect() as wire:
        for _ in range(2):
            with guard.rights([write, read]):
                for _ in range(2):
                    assert wire.produce(SEEN, RECORDS).error_code == 0
                    assert wire.fetch(SEEN).error_code == 0
            assert wire.produce(SEEN, RECORDS).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
            assert wire.fetch(SEEN).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
