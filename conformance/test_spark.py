"""Spark's own Kafka connector on the subject, and our data source on Apache Kafka."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from conformance.conftest import Subject
from conformance.records import produce
from harness.nodes import Kafka, Node, free_port
from harness.spark_jars import spark_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from headwater.spark import spark_session

    folder = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "conformance",
        master="local[2]",
        shuffle_partitions=2,
        settings={
            "spark.jars": ",".join(map(str, spark_jars())),
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.sql.warehouse.dir": str(folder),
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


def create(bootstrap: str, topic: str, partitions: int, replicas: int = 1) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 2})
    admin.create_topics([NewTopic(topic, partitions, replicas)])[topic].result(60)


def stream(spark: SparkSession, kind: str, bootstrap: str, topic: str) -> DataFrame:
    reader = spark.readStream.format(kind).option("kafka.bootstrap.servers", bootstrap)
    return reader.option("subscribe", topic).option("startingOffsets", "earliest").load()


def drained(source: DataFrame, checkpoint: Path) -> list[str]:
    """The values that a query finds until there are no more."""
    found: list[str] = []

    def take(frame: DataFrame, _: int) -> None:
        rows = frame.selectExpr("cast(value as string) as value").collect()
        found.extend(row.value for row in rows)

    query = source.writeStream.foreachBatch(take).option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination()
    return sorted(found)


def numbers(spark: SparkSession, start: int, end: int) -> Any:
    return spark.range(start, end).selectExpr(
        "cast(id as string) as key", "printf('%05d', id) as value"
    )


def texts(start: int, end: int) -> list[str]:
    return [f"{number:05}" for number in range(start, end)]


def test_sparks_own_connector_writes_and_reads_a_topic(
    spark: SparkSession, subject: Subject, topic: str, tmp_path: Path
) -> None:
    create(subject.bootstrap, topic, 3)
    options = {"kafka.bootstrap.servers": subject.bootstrap, "topic": topic}
    numbers(spark, 0, 1000).write.format("kafka").options(**options).save()
    frame = spark.read.format("kafka").option("kafka.bootstrap.servers", subject.bootstrap)
    rows = frame.option("subscribe", topic).load().selectExpr("cast(value as string) as value")
    assert sorted(row.value for row in rows.collect()) == texts(0, 1000)
    source = stream(spark, "kafka", subject.bootstrap, topic)
    assert drained(source, tmp_path / "checkpoint") == texts(0, 1000)


def test_our_source_goes_on_from_a_checkpoint_of_sparks_own(
    spark: SparkSession, subject: Subject, topic: str, tmp_path: Path
) -> None:
    create(subject.bootstrap, topic, 2)
    options = {"kafka.bootstrap.servers": subject.bootstrap, "topic": topic}
    numbers(spark, 0, 100).write.format("kafka").options(**options).save()
    theirs = stream(spark, "kafka", subject.bootstrap, topic)
    assert drained(theirs, tmp_path / "checkpoint") == texts(0, 100)
    numbers(spark, 100, 150).write.format("kafka").options(**options).save()
    ours = stream(spark, "headwater", subject.bootstrap, topic)
    assert drained(ours, tmp_path / "checkpoint") == texts(100, 150)


@pytest.fixture
def three_nodes(jars: Path, tmp_path: Path) -> Iterator[list[Node]]:
    """A cluster of Apache Kafka."""
    ports = [free_port() for _ in range(3)]
    voters = ",".join(f"{number}@127.0.0.1:{port}" for number, port in enumerate(ports, 1))
    nodes = []
    for number, port in enumerate(ports, 1):
        settings = {
            "node.id": str(number),
            "controller.quorum.voters": voters,
            "default.replication.factor": "3",
            "min.insync.replicas": "1",
        }
        kind = Kafka(jars, static_voters=True)
        nodes.append(Node(kind, tmp_path / f"node-{number}", settings, controller_port=port))
    for node in nodes:
        node.launch()
    for node in nodes:
        _wait(lambda node=node: node.flavour.is_ready(node), "a node")  # type: ignore[misc]
    yield nodes
    for node in nodes:
        node.remove()


def _wait(condition: Callable[[], bool], what: str, seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.1)


def test_our_source_follows_leaders_that_move(
    spark: SparkSession, three_nodes: list[Node], topic: str, tmp_path: Path
) -> None:
    bootstrap = ",".join(node.bootstrap for node in three_nodes)
    create(bootstrap, topic, 3, replicas=3)
    seen: set[str] = set()
    count = 0
    turn = threading.Lock()

    def take(frame: DataFrame, _: int) -> None:
        nonlocal count
        rows = frame.selectExpr("cast(value as string) as value").collect()
        with turn:
            seen.update(row.value for row in rows)
            count += len(rows)

    writer = stream(spark, "headwater", bootstrap, topic).writeStream.foreachBatch(take)
    query = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()
    sent = 0

    def send(partition: int) -> None:
        nonlocal sent
        values = [b"%05d" % number for number in range(sent, sent + 300)]
        produce(bootstrap, topic, "none", values, partition)
        sent += 300

    def has_all() -> bool:
        failed = query.exception()
        assert failed is None, failed
        return len(seen) >= sent

    try:
        for node in three_nodes:
            for partition in range(3):
                send(partition)
            _wait(has_all, "all records")
            node.kill()
            for partition in range(3):
                send(partition)
            _wait(has_all, "all records")
            node.start()
    finally:
        query.stop()
    assert sorted(seen) == texts(0, sent)
    assert count == sent
