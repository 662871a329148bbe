"""The recorded push of an Apache Kafka 4.3.1 consumer that was asked for all its metrics."""

from __future__ import annotations

from pathlib import Path

from headwater import _core
from headwater.protocol.otlp import decode_metrics

PUSHED = Path(__file__).parent / "data" / "java_consumer_metrics.otlp.zst"
ZSTD = 4


def test_the_metrics_of_a_java_consumer_are_read() -> None:
    plain = _core.decompress(ZSTD, PUSHED.read_bytes(), 1_000_000)
    payload = decode_metrics(plain, points_max=1000)
    assert (len(payload.points), payload.skipped) == (128, 0)
    points = {
        (point.name, dict(point.attributes).get("node_id")): point for point in payload.points
    }
    total = points["org.apache.kafka.consumer.connection.creation.total", None]
    assert (total.is_sum, total.is_delta, total.is_monotonic) == (True, True, True)
    assert dict(total.attributes)["group_id"] == "g"
    assert total.value >= 0
    assert total.start_ns < total.time_ns
    gauge = points["org.apache.kafka.consumer.node.request.latency.max", "node-1"]
    assert not gauge.is_sum
    assert all(point.name.startswith("org.apache.kafka.") for point in payload.points)
