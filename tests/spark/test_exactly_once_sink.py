"""The sink with delivery=exactly_once: batches repeated, cut off, taken over, and there once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

from harness.wire import until
from headwater.blocking import Admin
from headwater.client.errors import ClientError, ProducerFenced
from headwater.spark import write_exactly_once
from headwater.spark.errors import BatchTooLong, CheckpointError, OptionError, TasksChanged
from headwater.spark.failures import failure_of
from headwater.spark.sink import SinkOptions, parse
from headwater.spark.sink_transactions import ExactlyOnceStreamWriter, Part, _Task, _TaskTransaction
from tests.conftest import MakeBroker
from tests.spark.conftest import Streams, Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)


class Copy:
    """A query that copies a topic."""

    def __init__(self, streams: Streams, topics: Topics, topic: str) -> None:
        self._streams, self._topics = streams, topics
        self.topic, self.copy = topic, f"{topic}-copy"
        self.checkpoint = streams.folder / "copy"
        topics.create(self.topic, 2)
        topics.create(self.copy, 3)

    def run(self, where: str = "true", **options: str) -> None:
        source = self._streams.source(self.topic, maxOffsetsPerTrigger="60", tasks="2")
        frame = source.where(where).select("key", "value")
        writer = frame.writeStream.format("headwater").option("delivery", "exactly_once")
        writer = writer.option("kafka.bootstrap.servers", self._topics.bootstrap)
        writer = writer.option("topic", self.copy).options(**options)
        writer = writer.option("checkpointLocation", str(self.checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def forget_the_end_of(self, batch: int) -> None:
        """Leaves the checkpoint as a driver does that dies before it notes the end of a batch."""
        for name in (f"{batch}", f".{batch}.crc"):
            (self.checkpoint / "commits" / name).unlink(missing_ok=True)

    def expect(self, count: int) -> None:
        until(lambda: len(self._topics.read(self.copy, 3)) >= count, "all rows")
        assert Counter(self._topics.read(self.copy, 3)) == numbers(count)


@pytest.fixture
def copy(streams: Streams, topics: Topics, topic: str) -> Copy:
    return Copy(streams, topics, topic)


def numbers(*given: int) -> Counter[str]:
    return Counter(str(number) for number in range(*given))


def test_rows_are_written_once_and_a_committed_batch_that_is_repeated_changes_nothing(
    copy: Copy, topics: Topics
) -> None:
    topics.write(copy.topic, range(50))
    topics.write(copy.topic, range(50, 100), partition=1)
    copy.run()
    copy.expect(100)
    copy.forget_the_end_of(1)
    copy.run()
    copy.expect(100)
    topics.write(copy.topic, range(100, 110))
    copy.run()
    copy.expect(110)


def test_a_batch_that_is_repeated_with_other_rows_is_refused(copy: Copy, topics: Topics) -> None:
    topics.write(copy.topic, range(10))
    copy.run()
    copy.forget_the_end_of(0)
    with pytest.raises(StreamingQueryException) as caught:
        copy.run("cast(value as string) <> '5'")
    text = failure_of(caught.value).text
    assert "of batch 0 had 10 rows, which are committed, and has 9 now" in text
    copy.expect(10)


def assert_has(topics: Topics, topic: str, values: list[str]) -> None:
    """A commit is answered before all markers are written, so its records may come a little later;
    what should not be there would come no later than the rest."""
    until(lambda: len(topics.read(topic, 1)) >= len(values), f"{values} in {topic}")
    assert topics.read(topic, 1) == values


# Attempts of tasks, without Spark


class Attempts:
    """Makes attempts of tasks, and is their driver."""

    def __init__(self, options: SinkOptions, query: str) -> None:
        self._options, self._query = options, query
        self._driver = ExactlyOnceStreamWriter(options)
        self._made: list[_TaskTransaction] = []

    def write(self, batch: int, task: int, *values: str) -> Part:
        which = _Task(self._query, batch, task)
        attempt = _TaskTransaction(self._options, which.name)
        self._made.append(attempt)
        rows = pa.RecordBatch.from_pydict({"value": pa.array(values, pa.string())})
        return attempt.write(which, [rows])

    def commit(self, *parts: Part) -> None:
        self._driver.commit(parts, parts[0].batch_id)

    def abort(self, *parts: Part) -> None:
        self._driver.abort([*parts, None], parts[0].batch_id)

    def close(self) -> None:
        for each in self._made:
            each.close()


@pytest.fixture
def attempts(topics: Topics, topic: str) -> Iterator[Attempts]:
    topics.create(topic)
    made = Attempts(options_of(topics, topic), topic)
    yield made
    made.close()


def options_of(topics: Topics, topic: str, **more: str) -> SinkOptions:
    given = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}
    return parse({**given, "delivery": "exactly_once", **more})


def test_what_tasks_write_is_seen_when_the_driver_commits(
    attempts: Attempts, topics: Topics, topic: str
) -> None:
    parts = [attempts.write(0, 0, "a"), attempts.write(0, 1, "b"), attempts.write(0, 2)]
    assert parts[2].handle is None
    with Admin(topics.bootstrap) as admin:
        ids = {each.transactional_id for each in admin.list_transactions(states=["Ongoing"])}
    assert {part.handle.transactional_id for part in parts[:2] if part.handle} <= ids
    attempts.commit(*parts)
    assert_has(topics, topic, ["a", "b"])
    attempts.abort(attempts.write(1, 0, "c"))
    assert_has(topics, topic, ["a", "b"])


def test_a_driver_that_dies_between_commits_has_the_rest_written_by_the_next_one(
    attempts: Attempts, topics: Topics, topic: str
) -> None:
    first, _lost = attempts.write(0, 0, "a"), attempts.write(0, 1, "b")
    attempts.commit(first, Part(topic, 0, None))
    again = [attempts.write(0, 0, "a"), attempts.write(0, 1, "b")]
    assert again[0].handle is None
    attempts.commit(*again)
    assert_has(topics, topic, ["a", "b"])


def test_an_older_attempt_is_fenced_with_its_driver(
    attempts: Attempts, topics: Topics, topic: str
) -> None:
    older = attempts.write(0, 0, "a")
    newer = attempts.write(0, 0, "a")
    with pytest.raises(ProducerFenced, match="another driver has taken over this query"):
        attempts.commit(older)
    attempts.abort(older)
    attempts.commit(newer)
    assert_has(topics, topic, ["a"])
    attempts.commit(attempts.write(1, 0, "b"))
    with pytest.raises(CheckpointError, match="batch 0 begins, but batch 1 of this query is comm"):
        attempts.write(0, 0, "a")


def test_a_batch_with_another_number_of_tasks_is_refused_once_a_part_of_it_is_committed(
    attempts: Attempts, topics: Topics, topic: str
) -> None:
    before = [attempts.write(0, task, "abc"[task]) for task in range(3)]
    other = attempts.write(0, 2, "c")  # the attempt before cannot be committed any more
    with pytest.raises(ProducerFenced):
        attempts.commit(*before)
    assert_has(topics, topic, ["a", "b"])
    with pytest.raises(TasksChanged, match="batch 0 had 3 tasks, some of which are committed"):
        attempts.commit(another := attempts.write(0, 3, "c"))
    attempts.abort(other, another)
    assert_has(topics, topic, ["a", "b"])
    # While nothing of a batch is committed, its tasks do not matter.
    before = [attempts.write(1, task, "d") for task in range(2)]
    attempts.write(1, 0, "d")
    attempts.write(1, 1, "d")
    with pytest.raises(ProducerFenced):
        attempts.commit(*before)
    attempts.commit(attempts.write(1, 0, "d", "d"))
    assert_has(topics, topic, ["a", "b", "d", "d"])


def test_a_driver_that_wakes_up_late_does_not_go_back_to_its_batch(
    attempts: Attempts, topics: Topics, topic: str
) -> None:
    late = attempts.write(0, 1, "late")
    attempts.commit(attempts.write(1, 0, "a"))
    with pytest.raises(CheckpointError, match="batch 0 begins, but batch 1 of this query has begu"):
        attempts.commit(late, Part(topic, 0, None))
    attempts.abort(late)
    attempts.commit(attempts.write(2, 0, "b"))
    assert_has(topics, topic, ["a", "b"])


def test_readers_do_not_wait_for_tasks_that_a_query_no_longer_has(
    attempts: Attempts, topics: Topics, topic: str
) -> None:
    attempts.commit(*(attempts.write(0, task, "abc"[task]) for task in range(3)))
    for task in range(3):
        attempts.write(1, task, "lost")
    attempts.commit(attempts.write(1, 0, "d", "e"), attempts.write(1, 1))
    assert_has(topics, topic, ["a", "b", "c", "d", "e"])
    with Admin(topics.bootstrap) as admin:
        ongoing = admin.list_transactions(states=["Ongoing"])
    assert not [each for each in ongoing if topic in each.transactional_id]


def test_a_batch_that_takes_too_long_says_which_setting_to_raise(
    make_broker: MakeBroker, topic: str
) -> None:
    broker = make_broker({"transaction.abort.timed.out.transaction.cleanup.interval.ms": "50"})
    topics = Topics(broker.bootstrap)
    topics.create(topic)
    options = options_of(topics, topic, **{"kafka.transaction.timeout.ms": "500"})
    attempts = Attempts(options, topic)
    part = attempts.write(0, 0, "a")
    with Admin(broker.bootstrap) as admin:
        until(lambda: not admin.list_transactions(states=["Ongoing"]), "the end by its timeout")
    with pytest.raises(BatchTooLong, match=r"raise kafka\.transaction\.timeout\.ms=500"):
        attempts.commit(part)
    assert_has(topics, topic, [])
    attempts.close()


# Tables


def rows(spark: SparkSession, topic: str) -> DataFrame:
    frame = spark.range(100, numPartitions=3)
    return frame.selectExpr(f"'{topic}' as topic", "cast(id as string) as value")


def write(frame: DataFrame, topics: Topics) -> None:
    writer = frame.write.format("headwater").mode("append").option("delivery", "exactly_once")
    writer.option("kafka.bootstrap.servers", topics.bootstrap).save()


def write_in_tasks(frame: DataFrame, topics: Topics) -> None:
    write_exactly_once(frame, {"kafka.bootstrap.servers": topics.bootstrap})


@pytest.mark.parametrize("way", [write, write_in_tasks])
def test_a_table_is_written_as_a_whole_or_not_at_all(
    spark: SparkSession, topics: Topics, topic: str, way: object
) -> None:
    assert callable(way)
    narrow = f"{topic}-narrow"
    topics.create(topic, 3)
    topics.create(narrow, 1, max_message_bytes="100")
    too_wide = spark.sql(f"select '{narrow}' as topic, repeat(uuid(), 100) as value")
    with pytest.raises(Exception) as caught:  # noqa: PT011  # Spark has its own for each place
        way(rows(spark, topic).union(too_wide), topics)
    error = caught.value
    text = str(error) if isinstance(error, ClientError) else failure_of(error).text
    assert narrow in text
    assert topics.read(topic, 3) == []
    way(rows(spark, topic), topics)
    until(lambda: len(topics.read(topic, 3)) >= 100, "all rows")
    assert Counter(topics.read(topic, 3)) == numbers(100)


def test_a_stream_is_no_table(streams: Streams, topics: Topics, topic: str, tmp_path: Path) -> None:
    topics.create(topic)
    with pytest.raises(OptionError, match="a stream needs exactly_once_writer"):
        write_exactly_once(
            streams.source(topic), {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic}
        )
