"""A client that was written for Apache Kafka: some records in, the same records out.

python examples/any_client.py 127.0.0.1:9092
"""

from __future__ import annotations

import sys

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

TOPIC = "from-any-client"


def main(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    if TOPIC not in admin.list_topics(timeout=10).topics:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1)])[TOPIC].result(10)

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    for word in ("hello", "world"):
        producer.produce(TOPIC, key="first", value=word, headers={"language": "en"})
    if producer.flush(10):
        raise SystemExit("some records were not acknowledged")

    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "any-client", "enable.auto.commit": False}
    )
    where = TopicPartition(TOPIC, 0)
    _first, end = consumer.get_watermark_offsets(where, timeout=10)
    consumer.assign([TopicPartition(TOPIC, 0, end - 2)])
    for record in consumer.consume(2, timeout=10):
        print(f"offset {record.offset()}: {record.key().decode()} = {record.value().decode()}")
    consumer.close()


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092")
