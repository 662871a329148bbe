"""A node that stops and starts again: everything is where it was."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.wire import Wire, batch
from headwater.protocol.messages.init_producer_id import InitProducerIdRequest
from tests.conftest import MakeBroker


@pytest.mark.parametrize("in_memory", [True, False], ids=["memory", "disk"])
def test_a_restart_keeps_topics_records_and_the_cluster(
    make_broker: MakeBroker, tmp_path: Path, topic: str, in_memory: bool
) -> None:
    broker = make_broker(data=None if in_memory else tmp_path / "data")
    with Wire(broker.bootstrap) as wire:
        topic_id = wire.topic_id(topic)
        cluster_id = wire.describe_cluster().cluster_id
        for number in range(20):
            wire.produce(topic, batch([b"%d" % number]))
    broker.restart()
    with Wire(broker.bootstrap) as wire:
        assert wire.describe_cluster().cluster_id == cluster_id
        assert wire.topic_id(topic) == topic_id
        assert wire.values(topic) == [b"%d" % number for number in range(20)]
        assert wire.produce(topic, batch([b"20"])).base_offset == 20
    assert not [line for line in broker.log_lines if " ERROR " in line]


def test_a_producer_is_remembered_over_a_restart(make_broker: MakeBroker, topic: str) -> None:
    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        wire.topic_id(topic)
        mine = wire.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
        first, second = (
            batch(
                [b"%d" % sequence],
                producer_id=mine.producer_id,
                producer_epoch=mine.producer_epoch,
                base_sequence=sequence,
            )
            for sequence in (0, 1)
        )
        assert wire.produce(topic, first).base_offset == 0
    broker.restart()
    with Wire(broker.bootstrap) as wire:
        again = wire.produce(topic, first)
        assert (again.error_code, again.base_offset) == (0, 0)
        assert wire.produce(topic, second).base_offset == 1
        other = wire.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
        assert other.producer_id != mine.producer_id
        assert wire.values(topic) == [b"0", b"1"]


def test_a_log_start_that_was_moved_stays_moved(make_broker: MakeBroker, topic: str) -> None:
    from headwater.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )

    broker = make_broker()
    with Wire(broker.bootstrap) as wire:
        wire.topic_id(topic)
        wire.produce(topic, batch([b"0", b"1", b"2"]))
        wanted = DeleteRecordsPartition(partition_index=0, offset=2)
        wire.ask(
            DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=5000
            )
        )
    broker.restart()
    with Wire(broker.bootstrap) as wire:
        assert wire.offset_at(topic, -2).offset == 2
        assert wire.values(topic, 2) == [b"2"]


def test_many_restarts_lose_nothing(make_broker: MakeBroker, tmp_path: Path, topic: str) -> None:
    broker = make_broker(data=tmp_path)
    for number in range(5):
        with Wire(broker.bootstrap) as wire:
            wire.topic_id(topic)
            assert wire.produce(topic, batch([b"%d" % number])).base_offset == number
        broker.restart()
    with Wire(broker.bootstrap) as wire:
        assert wire.values(topic) == [b"%d" % number for number in range(5)]
