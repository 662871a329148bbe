"""librdkafka pushes its metrics, too, when it is asked."""

from __future__ import annotations

from urllib.request import urlopen

from confluent_kafka import Producer

from harness.wire import until
from headwater import blocking
from headwater.client.admin import client_metrics_config
from tests.conftest import MakeBroker
from tests.support.exposition import ScrapedFamily, parse


def test_the_metrics_of_librdkafka_are_scraped(make_broker: MakeBroker) -> None:
    broker = make_broker({"headwater.metrics.listen": "127.0.0.1:0"}, topics={"orders": 1})
    with blocking.Admin(broker.bootstrap) as admin:
        admin.alter_config(client_metrics_config("all"), {"metrics": "*", "interval.ms": "100"})
    producer = Producer({"bootstrap.servers": broker.bootstrap, "client.id": "c-producer"})

    def pushed() -> ScrapedFamily | None:
        producer.produce("orders", b"x")
        producer.flush(10)
        with urlopen(f"http://{broker.metrics_address}/metrics", timeout=60) as answer:
            found = parse(answer.read().decode())
        assert found["headwater_client_telemetry_refused_pushes_total"].value() == 0
        return found.get("org_apache_kafka_producer_connection_creation_total")

    family = until(pushed, "metrics of librdkafka", 60.0)
    assert family.kind == "counter"
    # It leaves out the connections that it had opened before it was asked.
    assert family.value(client_id="c-producer") >= 0
