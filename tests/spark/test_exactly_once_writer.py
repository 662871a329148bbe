"""Micro-batches that are transactions: repeated, cut off, taken over, and still there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException

from harness.wire import until
from headwater.blocking import Admin
from headwater.client.errors import ProducerFenced
from headwater.spark import exactly_once, exactly_once_writer
from headwater.spark.errors import OptionError
from headwater.spark.exactly_once import ExactlyOnceWriter
from headwater.spark.failures import failure_of
from headwater.spark.small_batches import SmallBatches
from headwater.spark.transactions import QueryTransactions
from tests.conftest import MakeBroker
from tests.spark.conftest import Streams, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)

Write = Callable[["DataFrame", int], None]


class Query:
    """A copy of a topic, written by any function."""

    def __init__(self, streams: Streams, topics: Topics, topic: str) -> None:
        self._streams, self._topics = streams, topics
        self.topic, self.copy = topic, f"{topic}-copy"
        self.checkpoint = str(streams.folder / "copy")
        topics.create(self.topic, 2)
        topics.create(self.copy, 3)

    def writer(self, **options: str) -> ExactlyOnceWriter:
        given = {"kafka.bootstrap.servers": self._topics.bootstrap, "topic": self.copy, **options}
        return exactly_once_writer(given, group=f"{self.topic}-lag", checkpoint=self.checkpoint)

    def run(self, write: Write, change: Callable[[DataFrame], DataFrame] | None = None) -> None:
        source = self._streams.source(
            self.topic, maxOffsetsPerTrigger="60", isolation="read_committed"
        )
        frame = source.select("key", "value") if change is None else change(source)
        mode = "append" if change is None else "update"
        writer = frame.writeStream.foreachBatch(write).outputMode(mode)
        writer = writer.option("checkpointLocation", self.checkpoint)
        writer.trigger(availableNow=True).start().awaitTermination()

    def values(self) -> Counter[str]:
        return Counter(self._topics.read(self.copy, 3))


@pytest.fixture
def query(streams: Streams, topics: Topics, topic: str) -> Query:
    return Query(streams, topics, topic)


class Stop(Exception):
    """Stands for the end of the driver."""


@pytest.fixture
def by_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has the driver write batches of few records, also the first one, of which it would not know
    how many it has."""
    is_small = SmallBatches.is_small
    monkeypatch.setattr(
        SmallBatches, "is_small", lambda this, start, end: is_small(this, start or {}, end)
    )


@pytest.fixture(params=["by tasks", "by the driver"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "by the driver":
        request.getfixturevalue("by_driver")
    else:
        monkeypatch.setattr(SmallBatches, "is_small", lambda *_: False)


@pytest.mark.usefixtures("way")
def test_rows_are_written_once_in_order_and_the_lag_is_known(query: Query, topics: Topics) -> None:
    topics.write(query.topic, range(100), key=b"k")
    topics.write(query.topic, range(100, 150), partition=1)
    query.run(query.writer())
    assert query.values() == Counter(str(number) for number in range(150))
    assert topics.committed(f"{query.topic}-lag", query.topic, 2) == [100, 50]
    topics.write(query.topic, range(150, 160))
    query.run(query.writer())
    assert query.values() == Counter(str(number) for number in range(160))


@pytest.mark.usefixtures("way")
def test_a_batch_that_is_committed_and_repeated_is_not_written_again(
    query: Query, topics: Topics
) -> None:
    topics.write(query.topic, range(50))
    writer = query.writer()

    def write(frame: DataFrame, batch_id: int) -> None:
        writer(frame, batch_id)
        raise Stop

    with pytest.raises(StreamingQueryException):
        query.run(write)
    assert query.values() == Counter(str(number) for number in range(50))
    query.run(query.writer())
    assert query.values() == Counter(str(number) for number in range(50))


@pytest.mark.usefixtures("way")
def test_a_batch_that_is_cut_off_before_its_commit_is_aborted_by_the_next_driver(
    query: Query, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics.write(query.topic, range(50))

    def die(*_: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(QueryTransactions, "commit", die)
        patch.setattr(QueryTransactions, "close", lambda _: None)  # nothing is cleaned up
        with pytest.raises(StreamingQueryException):
            query.run(query.writer())
    query.run(query.writer())
    assert query.values() == Counter(str(number) for number in range(50))


@pytest.mark.usefixtures("way")
def test_state_and_updates_are_the_same_after_a_repeated_batch(
    query: Query, topics: Topics
) -> None:
    def counts(source: DataFrame) -> DataFrame:
        counted = source.groupBy("key").count()
        return counted.selectExpr(
            "key", "concat(cast(key as string), '=', cast(count as string)) as value"
        )

    topics.write(query.topic, range(3), key=b"a")
    topics.write(query.topic, range(2), key=b"b", partition=1)
    writer = query.writer()

    def write(frame: DataFrame, batch_id: int) -> None:
        writer(frame, batch_id)
        raise Stop

    with pytest.raises(StreamingQueryException):
        query.run(write, counts)
    query.run(query.writer(), counts)
    topics.write(query.topic, range(4), key=b"a")
    query.run(query.writer(), counts)
    assert query.values() == Counter(["a=3", "b=2", "a=7"])


@pytest.mark.usefixtures("way")
def test_an_older_driver_is_fenced(query: Query, topics: Topics) -> None:
    topics.write(query.topic, range(10))
    writer = query.writer()

    def write(frame: DataFrame, batch_id: int) -> None:
        query_id = frame.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        assert query_id is not None
        writer._transactions[query_id] = QueryTransactions(writer._options, query_id)
        newer = QueryTransactions(writer._options, query_id)
        try:
            writer(frame, batch_id)
        finally:
            newer.close()

    with pytest.raises(StreamingQueryException) as caught:
        query.run(write)
    assert "another driver has taken over this query" in failure_of(caught.value).text
    assert query.values() == Counter()
    assert ProducerFenced.__name__ in str(caught.value)


def test_a_batch_that_takes_too_long_says_which_setting_to_raise(
    spark: SparkSession,
    make_broker: MakeBroker,
    tmp_path: Path,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broker = make_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"})
    topics = Topics(broker.bootstrap)
    query = Query(Streams(spark, broker.bootstrap, tmp_path), topics, topic)
    topics.write(query.topic, range(10))
    commit = QueryTransactions.commit

    def commit_late(transactions: QueryTransactions, *given: Any) -> None:
        with Admin(broker.bootstrap) as admin:
            until(lambda: not admin.list_transactions(states=["Ongoing"]), "the end by its timeout")
        commit(transactions, *given)

    monkeypatch.setattr(QueryTransactions, "commit", commit_late)
    options = {"kafka.transaction.timeout.ms": "1"}
    with pytest.raises(StreamingQueryException) as caught:
        query.run(query.writer(**options))
    text = failure_of(caught.value).text
    assert "raise kafka.transaction.timeout.ms=1" in text
    assert "transaction.max.timeout.ms" in text
    assert query.values() == Counter()


@pytest.mark.usefixtures("way")
def test_what_cannot_be_sent_is_the_error_of_the_query(query: Query, topics: Topics) -> None:
    topics.write(query.topic, range(10))
    topics.delete(query.copy)
    topics.create(query.copy, 3, max_message_bytes="10")
    with pytest.raises(StreamingQueryException) as caught:
        query.run(query.writer())
    assert query.copy in failure_of(caught.value).text


@pytest.mark.usefixtures("by_driver")
def test_few_records_are_written_without_tasks(
    query: Query, topics: Topics, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(*_: Any) -> None:
        raise Stop

    monkeypatch.setattr(exactly_once, "_send", send)
    topics.write(query.topic, range(100), headers=[("h", b"1")])
    query.run(query.writer())
    assert query.values() == Counter(str(number) for number in range(100))


@pytest.mark.usefixtures("by_driver")
@pytest.mark.parametrize(
    ("value", "count"), [("concat('v-', number)", 1200), ("repeat('x', 10000)", 2)]
)
def test_many_rows_or_large_ones_of_few_records_are_written_by_tasks(
    query: Query, topics: Topics, value: str, count: int
) -> None:
    def several(source: DataFrame) -> DataFrame:
        rows = source.selectExpr("key", f"explode(sequence(1, {count // 2})) as number")
        return rows.selectExpr("key", f"{value} as value")

    topics.write(query.topic, range(2))
    writer = query.writer()
    query.run(writer, several)
    assert query.values().total() == count
    assert writer._small_batches._misses == 1


def test_it_is_for_streams(spark: SparkSession, topics: Topics) -> None:
    writer = exactly_once_writer({"kafka.bootstrap.servers": topics.bootstrap, "topic": "t"})
    frame = spark.range(3).selectExpr("cast(id as string) as value")
    with pytest.raises(OptionError, match="streaming query"):
        writer(frame, 0)
