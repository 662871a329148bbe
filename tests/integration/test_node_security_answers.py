"""Questions about guards, moves and transactions that a node answers before it has any of them.

With HEADWATER_TEST_BOOTSTRAP these claims are aimed at that broker; Apache Kafka meets them too.
"""

from __future__ import annotations

from typing import Any

import pytest

from harness.wire import Closed, Wire, all_versions
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.api_versions import ApiVersionsRequest
from headwater.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from headwater.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from headwater.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from headwater.protocol.messages.describe_acls import DescribeAclsRequest
from headwater.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from headwater.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from headwater.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from headwater.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from headwater.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from headwater.protocol.messages.list_transactions import ListTransactionsRequest
from headwater.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from headwater.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.protocol.messages.sasl_handshake import SaslHandshakeRequest
from headwater.testing import EmbeddedBroker

EXACT, DEFAULT, ANY = 0, 1, 2


def acl_filter(*, resource_type: int = 1, operation: int = 1) -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=resource_type,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=None,
        host_filter=None,
        operation=operation,
        permission_type=1,
    )


def quota_filter(*components: tuple[str, int, str | None]) -> DescribeClientQuotasRequest:
    return DescribeClientQuotasRequest(
        components=[
            ComponentData(entity_type=kind, match_type=match, match=name)
            for kind, match, name in components
        ],
        strict=False,
    )


def test_a_plain_listener_advertises_sasl_and_refuses_it(wire: Wire) -> None:
    advertised = {api.api_key for api in wire.ask(ApiVersionsRequest(), 0).api_keys}
    assert {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} <= advertised
    for version in all_versions(ApiKey.SASL_HANDSHAKE):
        answer = wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), version)
        assert (answer.error_code, answer.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, [])
    for version in all_versions(ApiKey.SASL_AUTHENTICATE):
        answer = wire.ask(SaslAuthenticateRequest(auth_bytes=b"x"), version)
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert answer.error_message
    assert wire.ask(ApiVersionsRequest(), 0).error_code == 0  # the connection lives


def test_without_an_authorizer_there_are_no_acls_to_describe(wire: Wire) -> None:
    for version in all_versions(ApiKey.DESCRIBE_ACLS):
        answer = wire.ask(acl_filter(), version)
        assert (answer.error_code, answer.resources) == (ErrorCode.SECURITY_DISABLED, [])
        assert answer.error_message


@pytest.mark.parametrize("bad", [{"resource_type": 0}, {"operation": 0}])
def test_an_acl_filter_with_an_unknown_element_ends_the_connection(
    shared_broker: EmbeddedBroker, bad: dict[str, int]
) -> None:
    with Wire(shared_broker.bootstrap) as wire, pytest.raises(Closed):
        wire.ask(acl_filter(**bad))


@pytest.mark.parametrize(
    "bad", ["resource_type", "resource_pattern_type", "operation", "permission_type"]
)
def test_a_rule_with_an_unknown_element_ends_the_connection(
    shared_broker: EmbeddedBroker, bad: str
) -> None:
    rule: dict[str, Any] = {
        "resource_type": 2,
        "resource_name": "orders",
        "resource_pattern_type": 3,
        "principal": "User:alice",
        "host": "*",
        "operation": 3,
        "permission_type": 3,
    }
    with Wire(shared_broker.bootstrap) as wire, pytest.raises(Closed):
        wire.ask(CreateAclsRequest(creations=[AclCreation(**rule), AclCreation(**rule | {bad: 0})]))
    chosen: dict[str, Any] = {
        "resource_type_filter": 1,
        "resource_name_filter": None,
        "pattern_type_filter": 1,
        "principal_filter": None,
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    name = {"resource_type": "resource_type_filter", "resource_pattern_type": "pattern_type_filter"}
    with Wire(shared_broker.bootstrap) as wire, pytest.raises(Closed):
        wire.ask(DeleteAclsRequest(filters=[DeleteAclsFilter(**chosen | {name.get(bad, bad): 0})]))


def test_tokens_are_not_described_to_the_unauthenticated(wire: Wire) -> None:
    for version in all_versions(ApiKey.DESCRIBE_DELEGATION_TOKEN):
        answer = wire.ask(DescribeDelegationTokenRequest(owners=None), version)
        assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert answer.tokens == []


def test_tokens_are_neither_made_nor_renewed_for_the_unauthenticated(wire: Wire) -> None:
    refused = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    for version in all_versions(ApiKey.CREATE_DELEGATION_TOKEN):
        made = wire.ask(CreateDelegationTokenRequest(max_lifetime_ms=-1), version)
        assert (made.error_code, made.token_id, made.hmac) == (refused, "", b"")
        assert (made.principal_type, made.principal_name) == ("User", "ANONYMOUS")
        assert made.expiry_timestamp_ms == -1
    for version in all_versions(ApiKey.RENEW_DELEGATION_TOKEN):
        renewal = RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1)
        assert wire.ask(renewal, version).error_code == refused
    for version in all_versions(ApiKey.EXPIRE_DELEGATION_TOKEN):
        expiry = ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1)
        assert wire.ask(expiry, version).error_code == refused


def test_without_an_authorizer_acls_are_neither_made_nor_deleted(wire: Wire) -> None:
    made = AclCreation(
        resource_type=2,
        resource_name="orders",
        resource_pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    )
    for version in all_versions(ApiKey.CREATE_ACLS):
        (result,) = wire.ask(CreateAclsRequest(creations=[made]), version).results
        assert result.error_code == ErrorCode.SECURITY_DISABLED
        assert result.error_message
        assert wire.ask(CreateAclsRequest(), version).results == []
    chosen = DeleteAclsFilter(
        resource_type_filter=2,
        resource_name_filter="orders",
        principal_filter=None,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    for version in all_versions(ApiKey.DELETE_ACLS):
        (deleted,) = wire.ask(DeleteAclsRequest(filters=[chosen]), version).filter_results
        assert deleted.error_code == ErrorCode.SECURITY_DISABLED
        assert deleted.matching_acls == []


def test_users_without_scram_credentials_are_not_found(wire: Wire) -> None:
    assert wire.ask(DescribeUserScramCredentialsRequest(users=None)).results == []
    request = DescribeUserScramCredentialsRequest(
        users=[UserName(name=name) for name in ("nobody", "twice", "twice")]
    )
    codes = {result.user: result.error_code for result in wire.ask(request).results}
    assert codes == {
        "nobody": ErrorCode.RESOURCE_NOT_FOUND,
        "twice": ErrorCode.DUPLICATE_RESOURCE,
    }


@pytest.mark.parametrize(
    "components",
    [
        [],
        [("user", EXACT, "x")],
        [("user", DEFAULT, None)],
        [("client-id", ANY, None)],
        [("user", EXACT, "x"), ("client-id", ANY, None)],
        [("ip", EXACT, "no address")],
    ],
)
def test_no_quota_matches_where_none_is_set(
    wire: Wire, components: list[tuple[str, int, str | None]]
) -> None:
    for version in all_versions(ApiKey.DESCRIBE_CLIENT_QUOTAS):
        answer = wire.ask(quota_filter(*components), version)
        assert (answer.error_code, answer.entries) == (0, [])


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", EXACT, "x")], ErrorCode.INVALID_REQUEST),
        ([("planet", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("planet", 7, "x"), ("user", EXACT, "x")], ErrorCode.UNSUPPORTED_VERSION),
        ([("user", EXACT, None)], ErrorCode.INVALID_REQUEST),
        ([("user", DEFAULT, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", ANY, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, "x")], ErrorCode.INVALID_REQUEST),
        ([("user", EXACT, "x"), ("user", EXACT, "y")], ErrorCode.INVALID_REQUEST),
        ([("ip", EXACT, "x"), ("user", EXACT, "y")], ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_quota_filter_without_meaning_is_refused(
    wire: Wire, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    answer = wire.ask(quota_filter(*components))
    assert (answer.error_code, answer.entries) == (code, None)
    assert answer.error_message


def test_nothing_is_being_reassigned(wire: Wire, topic: str) -> None:
    wire.create_topic(topic)
    some = [
        ListPartitionReassignmentsTopics(name=name, partition_indexes=[0, 9])
        for name in (topic, "never")
    ]
    for topics in (None, [], some):
        answer = wire.ask(ListPartitionReassignmentsRequest(topics=topics))
        assert (answer.error_code, answer.error_message, answer.topics) == (0, None, [])


def test_transactions_are_listed_by_state_and_pattern(wire: Wire) -> None:
    for version in all_versions(ApiKey.LIST_TRANSACTIONS):
        request = ListTransactionsRequest(state_filters=["Ongoing", "ongoing", "None", "None"])
        answer = wire.ask(request, version)
        assert (answer.error_code, answer.transaction_states) == (0, [])
        assert sorted(answer.unknown_state_filters) == ["None", "ongoing"]
    for pattern, code in (("(", ErrorCode.INVALID_REGULAR_EXPRESSION), ("", 0), ("never.*", 0)):
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        assert wire.ask(request, 2).error_code == code
