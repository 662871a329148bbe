"""Spark on three nodes of which leaders, coordinators and controllers are killed."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from headwater import _core
from headwater.blocking import Admin, Producer
from headwater.io import Host
from headwater.spark.files import file_chunks
from headwater.spark.pipeline import Stream, pipeline
from headwater.spark.pipeline_query import Setting, start
from headwater.spark.ranges import OffsetRange
from headwater.testing import HeadwaterCluster, MakeHeadwaterCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(900)

PATIENCE = 240.0
PARTITIONS = 3
GROUP = "progress"


@pytest.fixture
def cluster(make_headwater_cluster: MakeHeadwaterCluster, tmp_path: Path) -> HeadwaterCluster:
    topics = {"orders": PARTITIONS, "copies": PARTITIONS, "doubles": PARTITIONS, "ledger": 1}
    # A session that outlives the pauses of a busy machine: a kill is noticed without it.
    settings = {"broker.session.timeout.ms": "30000"}
    return make_headwater_cluster(settings, data=tmp_path / "data", topics=topics)


def wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"not within {PATIENCE:g} s: {what}"
        time.sleep(0.1)


def values(cluster: HeadwaterCluster, topic: str) -> list[str]:
    return [(record.value or b"").decode() for record in cluster.records(topic)]


class Queries:
    """One query reads what the source gives, one copies it by the sink, one is a pipeline."""

    def __init__(self, spark: SparkSession, cluster: HeadwaterCluster, folder: Path) -> None:
        self.given: dict[int, list[str]] = {}  # what each micro-batch had, by its number
        self._spark, self._cluster, self._folder = spark, cluster, folder
        self._running = [self._read(), self._copy(), self._double()]

    def _source(self, **options: str) -> DataFrame:
        reader = self._spark.readStream.format("headwater")
        reader = reader.option("kafka.bootstrap.servers", self._cluster.bootstrap)
        reader = reader.option("subscribe", "orders").option("startingOffsets", "earliest")
        return reader.options(**options).load()

    def _read(self) -> StreamingQuery:
        def take(frame: DataFrame, batch: int) -> None:
            rows = frame.selectExpr("cast(value as string) as value").collect()
            self.given[batch] = [row.value for row in rows]

        writer = self._source(group=GROUP).writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(self._folder / "read")).start()

    def _copy(self) -> StreamingQuery:
        writer = self._source().writeStream.format("headwater")
        writer = writer.option("kafka.bootstrap.servers", self._cluster.bootstrap)
        writer = writer.option("topic", "copies")
        return writer.option("checkpointLocation", str(self._folder / "copy")).start()

    def _double(self) -> StreamingQuery:
        @pipeline(orders=Stream("orders", "number long"), to="doubles")
        def doubles(orders: DataFrame) -> DataFrame:
            return orders.selectExpr("number * 2 as number")

        folder = str(self._folder / "pipelines")
        setting = Setting(bootstrap=self._cluster.bootstrap, checkpoints=folder)
        return start(self._spark, doubles, setting)

    def read(self) -> list[str]:
        return [value for batch in self.given.values() for value in batch]

    def check(self) -> None:
        for query in self._running:
            assert query.exception() is None, query.exception()

    def stop(self) -> None:
        for query in self._running:
            query.stop()


@pytest.fixture
def queries(spark: SparkSession, cluster: HeadwaterCluster, tmp_path: Path) -> Iterator[Queries]:
    made = Queries(spark, cluster, tmp_path / "queries")
    yield made
    made.stop()


def leader(cluster: HeadwaterCluster) -> int:
    return cluster.wait_leader("orders")


def coordinator(cluster: HeadwaterCluster) -> int:
    """Returns the node that keeps the offsets of the group."""
    with Admin(cluster.bootstrap) as admin:
        address = admin.describe_group(GROUP).coordinator
    return next(node for node, each in cluster.addresses.items() if each == address)


def test_source_sink_and_pipelines_go_on_while_nodes_die(
    cluster: HeadwaterCluster, queries: Queries
) -> None:
    sent: list[int] = []

    def send(producer: Producer, count: int) -> None:
        for number in range(len(sent), len(sent) + count):
            value = json.dumps({"number": number})
            producer.submit("orders", value, partition=number % PARTITIONS)
            sent.append(number)
        producer.flush()

    def all_is_through() -> bool:
        queries.check()
        if len(queries.read()) < len(sent):
            return False
        return all(len(set(values(cluster, each))) == len(sent) for each in ("copies", "doubles"))

    with Producer(cluster.bootstrap, delivery_timeout_ms=round(PATIENCE * 1000)) as producer:
        send(producer, 60)
        wait(all_is_through, "the first records are through")
        for victim in (leader, coordinator, HeadwaterCluster.controller):
            node = victim(cluster)
            cluster.kill(node)
            send(producer, 60)
            wait(all_is_through, f"all is through without node {node}")
            cluster.start(node)
            for topic in ("orders", "copies", "doubles"):
                for partition in range(PARTITIONS):
                    cluster.wait_isr(topic, partition, timeout=PATIENCE)
    # A batch has a number and is given with the same records if it is given again.
    assert Counter(queries.read()) == Counter(json.dumps({"number": each}) for each in sent)
    copies = [json.loads(each)["number"] for each in values(cluster, "copies")]
    assert sorted(set(copies)) == sent
    doubles = [json.loads(each)["number"] for each in values(cluster, "doubles")]
    assert sorted(set(doubles)) == [2 * each for each in sent]


def offsets_in_files(folder: str, end: int) -> list[int]:
    """Returns the offsets that a replica has in its files, committed or not."""
    chunks = file_chunks(
        Host.system().disk,
        folder,
        OffsetRange("ledger", 0, 0, end),
        read_committed=False,
        log_start=lambda: 0,
    )
    return [
        record.offset
        for chunk in chunks
        for record in _core.decode(bytes(chunk.data), from_offset=chunk.from_offset)
    ]


def test_files_are_read_up_to_the_high_watermark_of_the_leader(
    spark: SparkSession, cluster: HeadwaterCluster
) -> None:
    def rows(**options: str) -> list[int]:
        reader = spark.read.format("headwater").option("subscribe", "ledger")
        reader = reader.option("kafka.bootstrap.servers", cluster.addresses[leader])
        reader = reader.options(**{"read.from": "files"}, **options)
        return sorted(row.offset for row in reader.load().collect())

    def send(*numbers: int) -> None:
        for number in numbers:
            producer.submit("ledger", str(number))
        producer.flush()

    leader = cluster.wait_leader("ledger")
    with Producer(cluster.bootstrap, acks=1, enable_idempotence=False) as producer:
        send(*range(10))
        wait(lambda: rows() == list(range(10)), "the first records are committed")
        # The leader goes on alone: what it takes now is in its files, and not committed.
        for node in {1, 2, 3} - {leader}:
            cluster.pause(node)
        send(*range(10, 20))
        assert offsets_in_files(cluster.data(leader), 20) == list(range(20))
        assert rows() == list(range(10))
        beyond = {"endingOffsets": '{"ledger": {"0": 15}}'}
        assert rows(**beyond, failOnDataLoss="false") == list(range(10))
        with pytest.raises(Exception, match="it has 0 up to 10"):
            rows(**beyond)
        for node in {1, 2, 3} - {leader}:
            cluster.resume(node)
        wait(lambda: rows() == list(range(20)), "the others are committed, too")
        # Another leader has its files elsewhere.
        cluster.kill(leader)
        leader = cluster.wait_leader("ledger", other_than=leader, timeout=PATIENCE)
        assert rows() == list(range(20))
