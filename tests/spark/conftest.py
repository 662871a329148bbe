"""One Spark session for all tests here, and helpers for topics.

With HEADWATER_TEST_BOOTSTRAP=HOST:PORT most of them run against that broker, as those in the other
folders do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewPartitions, NewTopic

from headwater.security.oauth import URLS_VARIABLE
from tests.support.token_server import TokenServer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from headwater.testing import EmbeddedBroker


@pytest.fixture(scope="session", autouse=True)
def provider() -> Iterator[TokenServer]:
    """A server of bearer tokens. Spark's workers have the environment in which its JVM started, so
    its addresses are allowed before any test starts one."""
    with TokenServer() as server, pytest.MonkeyPatch.context() as environment:
        environment.setenv(URLS_VARIABLE, f"{server.url()},{server.url('/jwks')}")
        yield server


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    from headwater.spark import spark_session

    folder = tmp_path_factory.mktemp("spark")
    session = spark_session(
        "tests",
        master="local[2]",
        shuffle_partitions=2,
        settings={
            "spark.ui.enabled": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.local.dir": str(folder),
            "spark.sql.warehouse.dir": str(folder / "warehouse"),
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@dataclass(slots=True)
class Topics:
    """The topics of a broker, through a client that is not ours."""

    bootstrap: str
    _producer: Producer = field(init=False)
    _admin: AdminClient = field(init=False)

    def __post_init__(self) -> None:
        self._connect()

    def _connect(self) -> None:
        quiet = {"bootstrap.servers": self.bootstrap, "log_level": 0}
        self._producer = Producer({**quiet, "linger.ms": 5})
        self._admin = AdminClient(quiet)

    def create(self, name: str, partitions: int = 1, **config: str) -> None:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        _all(self._admin.create_topics([NewTopic(name, partitions, 1, config=settings)]))

    def delete(self, name: str) -> None:
        _all(self._admin.delete_topics([name]))

    def grow(self, name: str, partitions: int) -> None:
        _all(self._admin.create_partitions([NewPartitions(name, partitions)]))
        self._connect()  # a client that knows the topic does not see them for minutes

    def delete_records(self, name: str, *, partition: int = 0, before: int) -> None:
        _all(self._admin.delete_records([TopicPartition(name, partition, before)]))

    def write(
        self, name: str, values: list[str] | range, *, partition: int = 0, **options: Any
    ) -> None:
        for value in values:
            self._producer.produce(name, str(value).encode(), partition=partition, **options)
        assert self._producer.flush(30) == 0

    def read(self, name: str, partitions: int) -> list[str]:
        """Returns all values that are committed, sorted."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "nobody",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        consumer.assign([TopicPartition(name, number, 0) for number in range(partitions)])
        values: list[str] = []
        ended: set[int] = set()  # offsets do not tell the number of records: markers have some
        while len(ended) < partitions:
            message = consumer.poll(30)
            assert message is not None, f"{len(values)} records of {name} came, and no end"
            error = message.error()
            if error is None:
                values.append((message.value() or b"").decode())
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(message.partition())
        consumer.close()
        return sorted(values)

    def committed(self, group: str, name: str, partitions: int) -> list[int]:
        consumer = Consumer({"bootstrap.servers": self.bootstrap, "group.id": group})
        asked = [TopicPartition(name, number) for number in range(partitions)]
        found = [each.offset for each in consumer.committed(asked, timeout=10)]
        consumer.close()
        return found


def _all(futures: dict[Any, Any]) -> None:
    for each in futures.values():
        each.result(30)


@pytest.fixture(scope="session")
def topics(shared_broker: EmbeddedBroker) -> Topics:
    return Topics(shared_broker.bootstrap)


Read = Callable[..., "DataFrame"]


@pytest.fixture
def read(spark: SparkSession, topics: Topics) -> Read:
    """Makes batch reads of a topic; options whose names have dots are given as a dict."""

    def make(topic: str | None, more: dict[str, str] | None = None, **options: str) -> DataFrame:
        reader = spark.read.format("headwater")
        reader = reader.option("kafka.bootstrap.servers", topics.bootstrap)
        if topic is not None:
            reader = reader.option("subscribe", topic)
        return reader.options(**options, **(more or {})).load()

    return make


@dataclass(slots=True)
class Streams:
    """Runs queries; one with the same name continues from the same checkpoint."""

    spark: SparkSession
    bootstrap: str
    folder: Path

    def source(self, topic: str, **options: str) -> DataFrame:
        reader = self.spark.readStream.format("headwater")
        reader = reader.option("kafka.bootstrap.servers", self.bootstrap)
        reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
        return reader.options(**options).load()

    def run(self, source: DataFrame, name: str = "query") -> list[list[str]]:
        """Reads what is there now; returns the values of each batch."""
        batches: list[list[str]] = []

        def take(frame: DataFrame, _: int) -> None:
            rows = frame.selectExpr("cast(value as string) as value").collect()
            batches.append(sorted(row.value for row in rows))

        query = (
            source.writeStream.foreachBatch(take)
            .option("checkpointLocation", str(self.folder / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return batches


@pytest.fixture
def streams(spark: SparkSession, topics: Topics, tmp_path: Path) -> Streams:
    return Streams(spark, topics.bootstrap, tmp_path)
