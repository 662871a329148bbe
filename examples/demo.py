"""A node, a topic, and events through it, with a client that was written for Apache Kafka.

Run by `make demo`. It starts a node that keeps everything in memory, uses it through librdkafka's
Python binding (which knows nothing of Headwater), prints what happened, and ends by itself.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

HEADWATER = Path(sys.executable).with_name("headwater")
TOPIC = "orders"
PARTITIONS = 3
CUSTOMERS = ("alice", "bob", "carol", "dave")
EVENTS = 10_000
PATIENCE_SECONDS = 30.0


@contextmanager
def a_node() -> Iterator[str]:
    """A node as a process of its own, for as long as the block lasts; gives its address."""
    command = [str(HEADWATER), "start", "--memory", "--listen", "127.0.0.1:0"]
    started = time.monotonic()
    node = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert node.stdout is not None
        for line in node.stdout:
            if line.startswith("ready: "):
                address = line.split()[1]
                print(f"node      ready on {address} after {time.monotonic() - started:.2f} s")
                break
        else:
            raise SystemExit(f"the node ended with {node.wait()} before it was ready")
        yield address
    finally:
        node.terminate()
        try:
            print(f"node      stopped, exit code {node.wait(PATIENCE_SECONDS)}")
        except subprocess.TimeoutExpired:
            node.kill()


def create_topic(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)])[TOPIC].result(PATIENCE_SECONDS)
    while True:  # the controller has made the topic; a moment later every node knows it
        about = admin.list_topics(timeout=PATIENCE_SECONDS)
        if TOPIC in about.topics:
            break
    print(f"topic     {TOPIC} with {len(about.topics[TOPIC].partitions)} partitions")
    print(f"cluster   {about.cluster_id}, {len(about.brokers)} node")


def produce(address: str) -> None:
    """Sends every event with a customer as its key, so that a customer's events stay in order."""
    failures: list[KafkaError] = []

    def delivered(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
    started = time.monotonic()
    for number in range(EVENTS):
        customer = CUSTOMERS[number % len(CUSTOMERS)]
        producer.produce(TOPIC, key=customer, value=f"order {number}", on_delivery=delivered)
        producer.poll(0)
    unsent = producer.flush(PATIENCE_SECONDS)
    if unsent or failures:
        raise SystemExit(f"{unsent} events were not sent, {len(failures)} failed: {failures[:3]}")
    elapsed = time.monotonic() - started
    print(f"produced  {EVENTS:,} events, all acknowledged, in {elapsed:.2f} s")


def consume(address: str) -> None:
    """Reads all partitions from their beginning and checks that nothing is lost or out of order."""
    settings = {"bootstrap.servers": address, "group.id": "demo", "enable.auto.commit": False}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
    seen: dict[str, list[int]] = {customer: [] for customer in CUSTOMERS}
    started = time.monotonic()
    while missing := EVENTS - sum(map(len, seen.values())):
        messages = consumer.consume(min(missing, 1000), timeout=PATIENCE_SECONDS)
        if not messages:
            raise SystemExit("no more events came, and some are missing")
        for message in messages:
            if message.error():
                raise SystemExit(f"consume failed: {message.error()}")
            seen[message.key().decode()].append(int(message.value().split()[1]))
    elapsed = time.monotonic() - started
    consumer.close()
    print(f"consumed  {sum(map(len, seen.values())):,} events in {elapsed:.2f} s")
    for customer, numbers in seen.items():
        in_order = "in order" if numbers == sorted(set(numbers)) else "OUT OF ORDER"
        print(
            f"          {customer:<6} {len(numbers):,} events {in_order}, last: order {numbers[-1]}"
        )
        if numbers != sorted(set(numbers)):
            raise SystemExit(1)


def main() -> None:
    with a_node() as address:
        create_topic(address)
        produce(address)
        consume(address)


if __name__ == "__main__":
    main()
