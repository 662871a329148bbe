"""Batch reads of topics with a real Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.conftest import Read, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


def values(frame: DataFrame) -> list[str]:
    rows = frame.selectExpr("partition", "offset", "cast(value as string) as value").collect()
    return [row.value for row in sorted(rows)]


def failure(frame: DataFrame) -> str:
    """Returns the first line, or the one after Spark's about a failed worker: there is no trace."""
    with pytest.raises(Exception, match="headwater") as failed:
        frame.collect()
    first, second, *_ = str(failed.value).splitlines()
    return second if first == "An exception was thrown from the Python worker:" else first


def test_rows_have_the_columns_of_sparks_own_source(read: Read, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, ["one"], key=b"k", headers=[("h", b"x"), ("n", None)], timestamp=1234)
    topics.write(topic, ["two"])
    frame = read(topic, includeHeaders="true")
    assert frame.dtypes == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    first, second = sorted(frame.collect(), key=lambda row: row.offset)
    assert (bytes(first.key), bytes(first.value), first.topic) == (b"k", b"one", topic)
    assert (first.partition, first.offset, first.timestampType) == (0, 0, 0)
    assert first.timestamp.timestamp() == 1.234
    assert [(each.key, each.value) for each in first.headers] == [("h", b"x"), ("n", None)]
    assert (second.key, second.headers) == (None, [])


def test_a_read_begins_and_ends_where_it_is_told(read: Read, topics: Topics, topic: str) -> None:
    topics.create(topic, 2)
    topics.write(topic, range(10))
    topics.write(topic, range(10, 20), partition=1, timestamp=5000)
    starting = f'{{"{topic}": {{"0": 7, "1": -2}}}}'
    ending = f'{{"{topic}": {{"0": -1, "1": 2}}}}'
    frame = read(topic, startingOffsets=starting, endingOffsets=ending)
    assert values(frame) == ["7", "8", "9", "10", "11"]
    assigned = read(None, assign=f'{{"{topic}": [1]}}', startingTime="1970-01-01T00:00:05Z")
    assert len(values(assigned)) == 10
    latest = {"startingOffsetsByTimestampStrategy": "latest"}
    pattern = read(None, latest, subscribePattern=f"{topic[:-3]}.*", startingTimestamp="5001")
    assert len(values(pattern)) == 10


def test_a_task_has_no_more_records_than_it_may(read: Read, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, range(10))
    split = read(topic, maxRecordsPerPartition="3")
    assert split.rdd.getNumPartitions() == 4
    assert values(split) == [str(number) for number in range(10)]


def test_values_are_typed(read: Read, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, ['{"id": 7, "name": "x", "more": 1}', "no json", '{"id": 8}'])
    frame = read(topic, valueFormat="json", valueSchema="id BIGINT, name STRING", columns="value")
    rows = [None if row.value is None else tuple(row.value) for row in frame.collect()]
    assert rows == [(7, "x"), None, (8, None)]
    text = read(topic, valueFormat="string", columns="offset,value").collect()
    assert [tuple(row) for row in text][1] == (1, "no json")
    strict = read(topic, valueFormat="json", valueSchema="id BIGINT", valueMode="FAILFAST")
    assert f"topic {topic}, partition 0, offset 1: the value is not json" in failure(strict)


def test_conditions_narrow_what_is_read(
    spark: SparkSession, read: Read, topics: Topics, topic: str
) -> None:
    topics.create(topic, 2)
    topics.write(topic, range(10), timestamp=1000)
    topics.write(topic, range(10, 20), partition=1, timestamp=2000)
    frame = read(topic, pushFilters="true")
    assert values(frame.where("partition = 1 and offset >= 3 and offset < 5")) == ["13", "14"]
    since = frame.where("timestamp >= timestamp'1970-01-01 00:00:02'")
    assert len(values(since)) == 10
    assert since.rdd.getNumPartitions() == 1


def test_sql_reads_a_topic(spark: SparkSession, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, range(5))
    spark.sql(
        f"create or replace temporary view orders using headwater options "
        f"(kafka.bootstrap.servers '{topics.bootstrap}', subscribe '{topic}')"
    )
    assert spark.sql("select count(*) as n from orders").first().n == 5  # type: ignore[union-attr]


def test_a_topic_that_does_not_exist_is_named(read: Read, topics: Topics) -> None:
    said = failure(read("no-such-topic"))
    assert f"topic no-such-topic: not on {topics.bootstrap}; create it first" in said


def test_an_offset_that_is_not_there_is_named(read: Read, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, range(10))
    far = f'{{"{topic}": {{"0": 99}}}}'
    said = failure(read(topic, startingOffsets=far))
    assert (
        f"{topic}-0: startingOffsets has offset 99, which is not in the log; it has 0 up to 10"
        in said
    )
    assert values(read(topic, startingOffsets=far, failOnDataLoss="false")) == []


def test_a_broker_that_is_not_there_is_named(spark: SparkSession) -> None:
    frame = spark.read.format("headwater").option("subscribe", "orders")
    frame = frame.option("kafka.bootstrap.servers", "127.0.0.1:1")
    frame = frame.option("kafka.start.timeout.ms", "500")
    assert "subscribe=orders: no broker can be reached: 127.0.0.1:1" in failure(frame.load())


def test_only_committed_records_are_read_if_asked(read: Read, topics: Topics, topic: str) -> None:
    topics.create(topic)
    topics.write(topic, range(3))
    assert values(read(topic, isolation="read_committed")) == ["0", "1", "2"]
