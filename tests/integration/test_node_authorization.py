"""Which rights each API needs: the table of `harness/rights.py` against the node itself.

`conformance/test_authorization.py` compares the same answers with those of Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.nodes import free_port
from harness.rights import ROWS, Guard, Row, codes, trials
from headwater.broker import controller_role, dispatch
from headwater.errors import ErrorCode
from headwater.protocol.apis import ApiKey
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
