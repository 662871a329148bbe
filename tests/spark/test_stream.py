"""Streams of topics with a real Spark session."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.conftest import MakeBroker
from tests.spark.conftest import Streams, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


def flat(batches: list[list[str]]) -> list[int]:
    return sorted(int(value) for batch in batches for value in batch)


def failure(streams: Streams, source: DataFrame) -> str:
    """The first line: no trace stands before what matters."""
    with pytest.raises(Exception, match="headwater") as failed:
        streams.run(source)
    return str(failed.value).splitlines()[0]


def test_a_stream_is_cut_into_batches_and_goes_on_from_its_checkpoint(
    streams: Streams, topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    topics.write(topic, range(100))
    source = streams.source(topic, maxOffsetsPerTrigger="40", group=f"{topic}-lag")
    assert [len(batch) for batch in streams.run(source)] == [40, 40, 20]
    assert topics.committed(f"{topic}-lag", topic, 2) == [100, 0]
    topics.write(topic, range(100, 110), partition=1)
    assert flat(streams.run(source)) == list(range(100, 110))
    assert topics.committed(f"{topic}-lag", topic, 2) == [100, 10]


def test_a_batch_is_bounded_in_bytes(streams: Streams, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, ["x" * 1000] * 100)
    batches = streams.run(streams.source(topic, maxBytesPerTrigger="30k"))
    assert 3 <= len(batches) <= 5
    assert sum(map(len, batches)) == 100


def test_partitions_that_are_new_are_read_from_their_beginning(
    streams: Streams, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, range(3))
    source = streams.source(topic)
    assert flat(streams.run(source)) == [0, 1, 2]
    topics.grow(topic, 3)
    topics.write(topic, range(3, 6), partition=2)
    assert flat(streams.run(source)) == [3, 4, 5]


def test_a_recreated_topic_is_noticed(streams: Streams, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, range(3))
    streams.run(streams.source(topic))
    topics.delete(topic)
    topics.create(topic)
    topics.write(topic, range(10, 15))
    said = failure(streams, streams.source(topic))
    assert f"topic {topic} was deleted and created again" in said
    # What was planned with the old id is still in the checkpoint; it is read when that is allowed.
    anew = streams.run(streams.source(topic, failOnDataLoss="false"))
    assert flat(anew) == list(range(10, 15))


def test_records_that_retention_took_are_a_loss(
    streams: Streams, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.write(topic, range(3))
    streams.run(streams.source(topic))
    topics.write(topic, range(3, 20))
    topics.delete_records(topic, before=10)
    said = failure(streams, streams.source(topic))
    assert f"{topic}-0 was read up to offset 3; the records up to 10 are gone" in said
    assert flat(streams.run(streams.source(topic, failOnDataLoss="false"))) == list(range(10, 20))


def test_a_checkpoint_of_another_query_is_refused(
    streams: Streams, topics: Topics, topic: str
) -> None:
    topics.create(topic)
    topics.create(f"{topic}-2")
    topics.write(topic, range(3))
    streams.run(streams.source(topic))
    said = failure(streams, streams.source(f"{topic}-2"))
    assert f"the checkpoint has offsets of {topic}, which this query does not read" in said
    said = failure(streams, streams.source(topic, endingOffsets="latest"))
    assert "endingOffsets is for batch reads" in said


def test_a_running_query_sees_new_records_and_survives_its_broker(
    spark: SparkSession, make_broker: MakeBroker, tmp_path: Path
) -> None:
    broker = make_broker(data=tmp_path / "data")
    topics = Topics(broker.bootstrap)
    topics.create("orders", 2)
    seen: list[str] = []
    changed = threading.Condition()

    def take(frame: DataFrame, _: int) -> None:
        rows = frame.selectExpr("cast(value as string) as value").collect()
        with changed:
            seen.extend(row.value for row in rows)
            changed.notify()

    def wait_for(count: int) -> None:
        deadline = time.monotonic() + 120
        with changed:
            while len(seen) < count:
                assert query.exception() is None, query.exception()
                assert changed.wait(deadline - time.monotonic()), f"{len(seen)} of {count}"

    streams = Streams(spark, broker.bootstrap, tmp_path)
    query = (
        streams.source("orders")
        .writeStream.foreachBatch(take)
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    try:
        topics.write("orders", range(10))
        wait_for(10)
        broker.restart()
        topics.write("orders", range(10, 20), partition=1)
        wait_for(20)
    finally:
        query.stop()
    assert sorted(map(int, seen)) == list(range(20))
