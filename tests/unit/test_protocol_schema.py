"""Messages as objects: how they are made, compared and shown."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import pytest

from headwater.protocol.messages.fetch import FetchResponse, PartitionData
from headwater.protocol.messages.heartbeat import HeartbeatRequest
from headwater.protocol.messages.produce import PartitionProduceData
from headwater.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from headwater.protocol.messages.share_acknowledge import PartitionData as AcknowledgedPartition
from headwater.protocol.records.group_consumer import ConsumerGroupMemberMetadataValue
from headwater.protocol.records.metadata import ConfigRecord
from headwater.protocol.schema import fields_of


def heartbeat() -> HeartbeatRequest:
    return HeartbeatRequest(group_id="billing", generation_id=3, member_id="one")


def test_a_field_without_a_default_must_be_given() -> None:
    with pytest.raises(TypeError, match="member_id"):
        HeartbeatRequest(group_id="billing", generation_id=3)  # type: ignore[call-arg]


def test_a_field_nobody_knows_is_refused() -> None:
    with pytest.raises(TypeError, match="colour"):
        HeartbeatRequest(group_id="g", generation_id=3, member_id="", colour=1)  # type: ignore[call-arg]
    with pytest.raises(AttributeError):
        heartbeat().colour = 1  # type: ignore[attr-defined]


def test_defaults_are_those_of_the_schema() -> None:
    partition = PartitionData()
    assert (partition.last_stable_offset, partition.aborted_transactions) == (-1, [])
    assert partition.current_leader is None
    assert heartbeat().group_instance_id is None


def test_each_message_has_its_own_lists_and_structs() -> None:
    FetchResponse().responses.append(FetchResponse().responses)  # type: ignore[arg-type]
    assert FetchResponse().responses == []
    AcknowledgedPartition().current_leader.leader_id = 5
    assert AcknowledgedPartition().current_leader.leader_id == 0


def test_a_struct_that_is_empty_by_default_may_ask_for_fields_itself() -> None:
    member = ConsumerGroupMemberMetadataValue(
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        subscribed_topic_regex=None,
        server_assignor=None,
    )
    assert member.classic_member_metadata is not None
    assert member.classic_member_metadata.session_timeout_ms == 0


def test_messages_with_the_same_fields_are_equal() -> None:
    one, twin = heartbeat(), heartbeat()
    assert one == twin
    twin.unknown_tags = {7: b"x"}
    assert one != twin
    assert one != "billing"


def test_a_message_survives_copying_and_pickling() -> None:
    one = heartbeat()
    assert copy.deepcopy(one) == pickle.loads(pickle.dumps(one)) == one


def test_secrets_are_not_shown() -> None:
    assert "hunter2" not in repr(SaslAuthenticateRequest(auth_bytes=b"\0bob\0hunter2"))
    record = ConfigRecord(resource_type=4, resource_name="1", name="ssl.key", value="hunter2")
    assert repr(record) == (
        "ConfigRecord(resource_type=4, resource_name='1', name='ssl.key', value=[hidden])"
    )


def test_records_are_shown_by_their_size() -> None:
    shown = repr(PartitionProduceData(index=0, records=b"x" * 10_000))
    assert shown == "PartitionProduceData(index=0, records=<10000 bytes>)"


def test_fields_know_their_versions() -> None:
    field = {field.name: field for field in fields_of(HeartbeatRequest)}["group_instance_id"]
    assert not field.exists_in(2)
    assert field.exists_in(3)
    assert field.nullable_in(3)


def test_importing_the_package_loads_no_messages() -> None:
    script = (
        "import sys, headwater.protocol, headwater.protocol.apis, headwater.protocol.frame\n"
        "print([name for name in sys.modules if '.messages.' in name or 'asyncio' in name])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
