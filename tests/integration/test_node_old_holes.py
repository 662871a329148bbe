"""Holes that Kafka had, tried on a node.

docs/internals/security.md lists them all, with their tests.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.nodes import free_port
from harness.rights import RECORDS, SEEN, Guard, Right
from harness.wire import Wire, batch
from headwater.errors import ErrorCode
from headwater.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from headwater.security.acls import AclResource
from headwater.security.operations import Operation
from headwater.testing import EmbeddedBroker

WRITE_TOPIC = Right(Operation.WRITE, AclResource.TOPIC, SEEN)
WRITE_ID = Right(Operation.WRITE, AclResource.TRANSACTIONAL_ID, "mine")


@pytest.fixture(scope="module")
def guard() -> Iterator[Guard]:
    controller = f"127.0.0.1:{free_port()}"
    settings = {
        **Guard.SETTINGS,
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://127.0.0.1:0,CONTROLLER://{controller}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": controller,
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    with EmbeddedBroker(settings) as broker:
        guard = Guard(broker.bootstrap, controller)
        yield guard
        guard.close()


def produce(wire: Wire, records: bytes, transactional_id: str | None) -> int:
    data = PartitionProduceData(index=0, records=records)
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=5000,
        topic_data=[TopicProduceData(name=SEEN, partition_data=[data])],
    )
    (topic,) = wire.ask(request, 12).responses
    (partition,) = topic.partition_responses
    return int(partition.error_code)


def test_the_flags_of_a_batch_say_what_right_it_needs(guard: Guard) -> None:
    """CVE-2018-17196: the id in the request was looked at, and not what the batch says."""
    transactional = batch(
        [b"v"], producer_id=900, producer_epoch=0, base_sequence=0, transactional=True
    )
    refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    with guard.connect() as wire:
        with guard.rights([WRITE_TOPIC]):
            assert produce(wire, RECORDS, None) == ErrorCode.NONE
            assert produce(wire, transactional, None) == refused
            assert produce(wire, transactional, "mine") == refused
            # A second batch is not looked at, and not taken: one is what a request may have.
            assert produce(wire, RECORDS + transactional, None) == ErrorCode.INVALID_RECORD
        with guard.rights([WRITE_TOPIC, WRITE_ID]):
            assert produce(wire, transactional, "other") == refused
            assert produce(wire, transactional, None) == refused
            assert produce(wire, transactional, "mine") not in (ErrorCode.NONE, refused)
