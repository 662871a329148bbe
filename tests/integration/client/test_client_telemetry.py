"""The clients push their metrics to brokers that ask for them (KIP-714, KIP-1076)."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from headwater import Admin, ConfigError, Consumer, Producer, RequestTimedOut, _core, blocking
from headwater.client.telemetry import Ledger, Subscription
from headwater.errors import ErrorCode
from headwater.model import ZERO_ID, id_text
from headwater.protocol.apis import ApiKey
from headwater.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from headwater.protocol.messages.push_telemetry import (
    PushTelemetryRequest,
    PushTelemetryResponse,
)
from headwater.protocol.otlp import Point, decode_metrics
from tests.support.fake_broker import FakeBroker, one_topic, story

ID = bytes(range(16))
ZSTD = 4


class Collector(FakeBroker):
    """A broker that asks for metrics."""

    def __init__(self, *prefixes: str, **told: Any) -> None:
        super().__init__()
        self.told: dict[str, Any] = {
            "client_instance_id": ID,
            "subscription_id": 7,
            "accepted_compression_types": [ZSTD],
            "push_interval_ms": 100,
            "telemetry_max_bytes": 100_000,
            "delta_temporality": True,
            "requested_metrics": list(prefixes),
            **told,
        }
        self.pushed: list[PushTelemetryRequest] = []
        self.refusals: list[ErrorCode] = []  # of the next pushes
        self.topics = [one_topic("t", leader=self.node_id)]
        self.answers[ApiKey.GET_TELEMETRY_SUBSCRIPTIONS] = self._tell
        self.answers[ApiKey.PUSH_TELEMETRY] = self._take

    def _tell(self, request: GetTelemetrySubscriptionsRequest) -> Any:
        return GetTelemetrySubscriptionsResponse(**self.told)

    def _take(self, request: PushTelemetryRequest) -> PushTelemetryResponse:
        self.pushed.append(request)
        code = self.refusals.pop(0) if self.refusals else ErrorCode.NONE
        return PushTelemetryResponse(error_code=code)

    async def pushes(self, count: int) -> None:
        await self.until(lambda: len(self.pushed) >= count)

    def points(self, at: int = -1) -> dict[str, Point]:
        push = self.pushed[at]
        metrics = push.metrics
        if push.compression_type:
            metrics = _core.decompress(push.compression_type, metrics, 100_000)
        return {point.name: point for point in decode_metrics(metrics, points_max=1000).points}


PRODUCER = partial(Producer, enable_idempotence=False)  # which asks for an id first

CLIENTS: dict[str, Any] = {
    "producer": PRODUCER,
    "consumer": Consumer,
    "admin.client": Admin,
}


@pytest.mark.parametrize("group", CLIENTS)
@story
async def test_each_client_pushes_what_it_is_asked_for(group: str) -> None:
    async with Collector("*") as broker:
        async with CLIENTS[group](broker.bootstrap) as client:
            assert await client.client_instance_id() == id_text(ID)
            await broker.pushes(1)
            name = f"org.apache.kafka.{group}.connection.creation.total"
            first = broker.points(0)[name]
            assert first.value >= 1
            assert (first.is_sum, first.is_delta, first.is_monotonic) == (True, True, True)
            await broker.pushes(2)
            assert broker.points(1)[name].value == 0  # nothing was opened since
            assert broker.points(1)[name].start_ns == first.time_ns
            assert f"org.apache.kafka.{group}.request.latency.max" in broker.points()
            latency = broker.points()[f"org.apache.kafka.{group}.node.request.latency.avg"]
            assert latency.attributes == (("node_id", f"node-{broker.node_id}"),)
            assert not latency.is_sum
            assert f"org.apache.kafka.{group}.connection.creation.rate" in broker.points()
        # It closes with a last push.
        assert [push.terminating for push in broker.pushed][-1]
        assert not any(push.terminating for push in broker.pushed[:-1])
        assert {(push.client_instance_id, push.subscription_id) for push in broker.pushed} == {
            (ID, 7)
        }
        assert broker.count(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) == 1


STANDARD = [
    "producer.connection.creation.rate",
    "producer.connection.creation.total",
    "producer.node.request.latency.avg",
    "producer.node.request.latency.max",
    "producer.produce.throttle.time.avg",
    "producer.produce.throttle.time.max",
    "producer.record.queue.time.avg",
    "producer.record.queue.time.max",
    "consumer.connection.creation.rate",
    "consumer.connection.creation.total",
    "consumer.node.request.latency.avg",
    "consumer.node.request.latency.max",
    "consumer.poll.idle.ratio.avg",
    "consumer.coordinator.commit.latency.avg",
    "consumer.coordinator.commit.latency.max",
    "consumer.coordinator.assigned.partitions",
    "consumer.coordinator.rebalance.latency.avg",
    "consumer.coordinator.rebalance.latency.max",
    "consumer.coordinator.rebalance.latency.total",
    "consumer.fetch.manager.fetch.latency.avg",
    "consumer.fetch.manager.fetch.latency.max",
]


@story
async def test_the_standard_metrics_are_pushed() -> None:
    """Those that KIP-714 asks of every client."""
    names: set[str] = set()
    async with Collector("*") as broker:
        for make in (PRODUCER, Consumer):
            pushed = len(broker.pushed)
            async with make(broker.bootstrap):
                await broker.pushes(pushed + 1)
                names.update(broker.points())
    assert not {f"org.apache.kafka.{name}" for name in STANDARD} - names


@story
async def test_only_what_is_asked_for_is_pushed() -> None:
    wanted = Collector("org.apache.kafka.producer.record.", "org.apache.kafka.consumer.")
    async with wanted as broker, PRODUCER(broker.bootstrap):
        await broker.pushes(1)
        names = broker.points()
    assert "org.apache.kafka.producer.record.send.total" in names
    assert all(name.startswith("org.apache.kafka.producer.record.") for name in names)


@story
async def test_a_client_of_which_nothing_is_wanted_asks_again_at_the_interval() -> None:
    async with Collector() as broker:
        async with PRODUCER(broker.bootstrap):
            await broker.until(lambda: broker.count(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) >= 2)
            broker.told["requested_metrics"] = ["*"]
            await broker.pushes(1)
        asked = [r for r in broker.asked if isinstance(r, GetTelemetrySubscriptionsRequest)]
        assert [each.client_instance_id for each in asked[:2]] == [ZERO_ID, ID]


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE]
)
@story
async def test_a_changed_subscription_is_asked_for_again(code: ErrorCode) -> None:
    async with Collector("*") as broker:
        broker.refusals = [code]
        async with PRODUCER(broker.bootstrap):
            await broker.pushes(1)
            broker.told |= {"subscription_id": 8, "accepted_compression_types": [3]}
            await broker.pushes(2)
        assert (broker.pushed[1].subscription_id, broker.pushed[1].compression_type) == (8, 3)
        # What was refused is in the next push.
        opened = broker.points(1)["org.apache.kafka.producer.connection.creation.total"]
        assert opened.value >= 1


@story
async def test_other_errors_end_the_pushes_and_nothing_else() -> None:
    async with Collector("*") as broker:
        broker.refusals = [ErrorCode.INVALID_RECORD]
        async with PRODUCER(broker.bootstrap) as producer:
            await broker.pushes(1)
            await asyncio.sleep(0)
            assert producer.metrics()["connection-count"] >= 1
        assert len(broker.pushed) <= 2  # perhaps the last one, if it closed before the answer


@story
async def test_a_client_can_be_told_not_to_push() -> None:
    async with Collector("*") as broker:
        async with PRODUCER(broker.bootstrap, enable_metrics_push=False) as producer:
            await producer.partitions_for("t")
            with pytest.raises(ConfigError, match="enable_metrics_push"):
                await producer.client_instance_id()
        assert broker.count(ApiKey.GET_TELEMETRY_SUBSCRIPTIONS) == 0


@story
async def test_where_brokers_take_no_metrics_there_is_no_instance_id() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        with pytest.raises(RequestTimedOut, match="client instance id"):
            await admin.client_instance_id(timeout_ms=1)


@story
async def test_metrics_of_the_user_are_pushed_as_well() -> None:
    def fails() -> float:
        raise ValueError("not now")

    wanted = Collector("org.apache.kafka.my.app.")
    async with wanted as broker, Consumer(broker.bootstrap) as consumer:
        consumer.register_metric("my-app.queue-depth", lambda: 3)
        consumer.register_metric("my-app.done-total", lambda: 12)
        consumer.register_metric("my-app.failing", fails)
        consumer.register_metric("my-app.gone", lambda: 1)
        consumer.unregister_metric("my-app.gone")
        with pytest.raises(ConfigError, match="letters"):
            consumer.register_metric("my app", lambda: 1)
        await broker.pushes(1)
        points = broker.points(0)
    assert set(points) == {
        "org.apache.kafka.my.app.queue.depth",
        "org.apache.kafka.my.app.done.total",
    }
    assert points["org.apache.kafka.my.app.done.total"].is_sum
    assert points["org.apache.kafka.my.app.queue.depth"].value == 3


@story
async def test_a_payload_that_would_be_too_large_is_cut() -> None:
    told: dict[str, Any] = {"telemetry_max_bytes": 2000, "accepted_compression_types": []}
    async with Collector("*", **told) as broker, PRODUCER(broker.bootstrap) as producer:
        for n in range(100):
            producer.register_metric(f"m{n}", lambda: 1)
        await broker.pushes(1)
    assert broker.pushed[0].compression_type == 0
    assert 1000 < len(broker.pushed[0].metrics) <= 2000


def test_blocking_clients_push_and_know_their_id() -> None:
    def use(bootstrap: str) -> list[str]:
        with (
            blocking.Producer(bootstrap, enable_idempotence=False) as producer,
            blocking.Admin(bootstrap) as admin,
        ):
            producer.register_metric("m", lambda: 1)
            return [producer.client_instance_id(), admin.client_instance_id()]

    @story
    async def run() -> None:
        async with Collector("*") as broker:
            ids = await asyncio.to_thread(use, broker.bootstrap)
            assert ids == [id_text(ID)] * 2

    run()


SUBSCRIPTION = Subscription(ID, 7, 1.0, 0, 1000, is_delta=False, prefixes=("*",))


def test_totals_are_pushed_as_they_are_where_deltas_are_not_wanted() -> None:
    ledger = Ledger(lambda name: "p.", started_ns=5)
    metrics = {"a-total": 3.0, 'lag{topic="x",partition="0"}': 2.0, "bad": float("nan")}
    for now in (10, 20):
        points = list(ledger.points(metrics, SUBSCRIPTION, now))
        ledger.taken(metrics, now)
        assert points == [
            Point("p.a.total", (), 3.0, True, False, True, start_ns=5, time_ns=now),
            Point("p.lag", (("topic", "x"), ("partition", "0")), 2.0, time_ns=now),
        ]


@pytest.mark.parametrize(
    ("interval_ms", "seconds"), [(1000, 1.0), (1, 0.1), (0, 300.0), (-5, 300.0)]
)
def test_an_interval_without_meaning_is_not_taken(interval_ms: int, seconds: float) -> None:
    told = GetTelemetrySubscriptionsResponse(push_interval_ms=interval_ms)
    assert Subscription.of(told).interval == seconds
