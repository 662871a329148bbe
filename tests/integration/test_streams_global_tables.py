"""Copies of a whole topic, which workers look rows up in."""

from __future__ import annotations

from headwater.blocking import Admin, Producer
from headwater.streams.global_tables import TopicCopies
from headwater.testing import EmbeddedBroker
from tests.support.members import QUICK_BROKER


def test_a_copy_follows_its_topic_into_partitions_that_are_added() -> None:
    with EmbeddedBroker(QUICK_BROKER) as broker, Producer(broker.bootstrap) as producer:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic("cities", partitions=1)
        producer.send("cities", key="Bonn", value="DE", partition=0)
        producer.send("cities", key="Nice", value="FR", partition=0)
        copies = TopicCopies(broker.bootstrap, (), "cities")
        values = copies.open(copies.ends())
        assert values == {b"Bonn": b"DE", b"Nice": b"FR"}
        with Admin(broker.bootstrap) as admin:
            admin.create_partitions({"cities": 2})
        with Producer(broker.bootstrap) as other:  # one that knows of the new partition
            other.send("cities", key="Oslo", value="NO", partition=1)
            other.send("cities", key="Nice", value=None, partition=0)
        ends = copies.ends()
        assert ends == {0: 3, 1: 1}
        assert copies.open(ends) == {b"Bonn": b"DE", b"Oslo": b"NO"}
