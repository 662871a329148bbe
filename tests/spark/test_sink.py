"""Writing to topics with a real Spark session."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from headwater.spark.failures import failure_of
from tests.conftest import MakeBroker
from tests.spark.conftest import Read, Streams, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

HEADERS = "array<struct<key: string, value: binary>>"


def write(frame: DataFrame, topics: Topics, **options: str) -> None:
    writer = frame.write.format("headwater").mode("append")
    writer.option("kafka.bootstrap.servers", topics.bootstrap).options(**options).save()


def refusal(frame: DataFrame, topics: Topics, **options: str) -> str:
    with pytest.raises(Exception) as caught:  # noqa: PT011  # Spark has its own for each place
        write(frame, topics, **options)
    return str(failure_of(caught.value))


def test_every_column_of_a_row_is_in_its_record(
    spark: SparkSession, topics: Topics, topic: str, read: Read
) -> None:
    topics.create(topic, 3)
    at = datetime(2026, 3, 1, 8, 0, 0, 123000, tzinfo=UTC)
    rows: list[tuple[Any, ...]] = [
        (b"k", b"v", 2, [("a", b"1"), ("b", None)], at),
        (None, None, 0, None, at),
        (b"", b"", 1, [], at),
    ]
    schema = f"key binary, value binary, partition int, headers {HEADERS}, timestamp timestamp"
    write(spark.createDataFrame(rows, schema), topics, topic=topic)
    got = read(topic, includeHeaders="true").orderBy("partition").collect()
    assert [row.partition for row in got] == [0, 1, 2]
    assert [row.key for row in got] == [None, b"", b"k"]
    assert [row.value for row in got] == [None, b"", b"v"]
    assert [tuple(each) for each in got[2].headers] == [("a", b"1"), ("b", None)]
    assert not got[0].headers
    assert {row.timestamp.replace(tzinfo=UTC) for row in got} == {at}


def test_text_is_taken_for_keys_and_values_and_keys_choose_the_partition_as_everywhere(
    spark: SparkSession, topics: Topics, topic: str, read: Read
) -> None:
    topics.create(topic, 4)
    frame = spark.range(200).selectExpr("concat('key', id) as key", "cast(id as string) as value")
    write(frame, topics, topic=topic)
    got = {bytes(row.key): (row.partition, row.value) for row in read(topic).collect()}
    assert len(got) == 200
    assert got[b"key7"][1] == b"7"
    from headwater._core import murmur2

    assert all(partition == (murmur2(key) & 0x7FFFFFFF) % 4 for key, (partition, _) in got.items())


def test_a_column_chooses_the_topic_of_each_row_and_the_option_wins_over_it(
    spark: SparkSession, topics: Topics, topic: str, read: Read
) -> None:
    names = [f"{topic}-a", f"{topic}-b", topic]
    for name in names:
        topics.create(name)
    rows = [(names[number % 2], str(number)) for number in range(10)]
    frame = spark.createDataFrame(rows, "topic string, value string")
    write(frame, topics)
    write(frame, topics, topic=topic)
    assert [read(name).count() for name in names] == [5, 5, 10]


def test_what_cannot_be_written_is_said_with_its_column_and_its_topic(
    spark: SparkSession, topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    frame = spark.range(3).selectExpr("cast(id as string) as value", "id")
    assert refusal(frame.drop("value"), topics, topic=topic).startswith(
        f"topic {topic}: column value is missing: there are id;"
    )
    number = frame.selectExpr("id as value")
    assert refusal(number, topics, topic=topic) == (
        f"topic {topic}: column value is bigint: expected binary or string"
    )
    wrong = frame.selectExpr("value", "'x' as headers")
    assert refusal(wrong, topics, topic=topic).startswith(
        f"topic {topic}: column headers is string: expected array"
    )
    assert refusal(frame, topics) == "no topic: set option topic, or add a column topic"
    nowhere = frame.selectExpr("value", "cast(null as string) as topic")
    assert refusal(nowhere, topics) == "column topic: row 0 has none"
    beyond = frame.selectExpr("value", "7 as partition")
    assert refusal(beyond, topics, topic=topic) == (
        f"topic {topic} has partitions 0 to 1, and 7 was given"
    )
    options = {"kafka.acks": "some"}
    assert "acks" in refusal(frame, topics, topic=topic, **options)
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "kafka.start.timeout.ms": "500"}
    assert refusal(frame, topics, topic=topic, **options).startswith(
        f"topic {topic}: no broker can be reached: 127.0.0.1:1"
    )


def test_a_topic_that_does_not_exist_is_named(spark: SparkSession, make_broker: MakeBroker) -> None:
    broker = make_broker({"auto.create.topics.enable": "false"})
    frame = spark.range(3).selectExpr("cast(id as string) as value")
    options = {"kafka.max.block.ms": "500"}
    assert "nowhere" in refusal(frame, Topics(broker.bootstrap), topic="nowhere", **options)


def test_a_stream_is_written_and_goes_on_after_its_checkpoint(
    spark: SparkSession, topics: Topics, topic: str, streams: Streams, read: Read, tmp_path: Path
) -> None:
    copy = f"{topic}-copy"
    topics.create(topic, 2)
    topics.create(copy, 2)

    def run() -> None:
        source = streams.source(topic, maxOffsetsPerTrigger="60").select("key", "value")
        query = (
            source.writeStream.format("headwater")
            .option("kafka.bootstrap.servers", topics.bootstrap)
            .option("topic", copy)
            .option("checkpointLocation", str(tmp_path / "copy"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    topics.write(topic, range(100))
    run()
    topics.write(topic, range(100, 150), partition=1)
    run()
    values = [int(row.value) for row in read(copy).collect()]
    assert sorted(values) == list(range(150))


def test_a_broker_that_restarts_in_between_loses_nothing(
    spark: SparkSession, make_broker: MakeBroker, tmp_path: Path
) -> None:
    """The workers have producers with connections that are dead now."""
    broker = make_broker(data=tmp_path / "data")
    there = Topics(broker.bootstrap)
    there.create("orders", 2)
    frame = spark.range(1000).selectExpr("cast(id as string) as value")
    write(frame, there, topic="orders")
    broker.restart()
    write(frame, there, topic="orders")
    reader = spark.read.format("headwater").option("kafka.bootstrap.servers", broker.bootstrap)
    assert reader.option("subscribe", "orders").load().count() == 2000
