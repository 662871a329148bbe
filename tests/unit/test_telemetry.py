"""Subscriptions of clients, the times at which they may push, and the values that are kept."""

from __future__ import annotations

import pytest

from headwater.errors import ApiError, ErrorCode
from headwater.model import ZERO_ID, id_from_text
from headwater.observability.exposition import render
from headwater.observability.registry import Registry
from headwater.protocol.otlp import Payload, Point
from headwater.telemetry import ClientAttributes, Instance, Instances, PushedMetrics, Subscription
from headwater.telemetry.pushed import readings_of

ID = id_from_text("kLw9tU1dR1uPp2sX0aBcDg")
OTHER = id_from_text("8CZrgKsqT7GHB2jYTZsVmA")
CLIENT = ClientAttributes("billing", "apache-kafka-java", "4.3.1", "10.0.0.7", "5000")


class Bench:
    """The instances of a broker, with a clock that the test moves."""

    def __init__(self, bytes_max: int = 1000) -> None:
        self.now = 0.0
        self.new_ids = 0
        self.instances = Instances(self._new_id, bytes_max=bytes_max)

    def _new_id(self) -> bytes:
        self.new_ids += 1
        return self.new_ids.to_bytes(16, "little")

    def subscribe(self, name: str = "s", **configs: str) -> None:
        self.instances.subscribe(name, {k.replace("_", "."): v for k, v in configs.items()})

    def ask(self, instance_id: bytes = ID, client: ClientAttributes = CLIENT) -> Instance:
        return self.instances.ask(instance_id, client, self.now)

    def push(
        self,
        subscription_id: int | None = None,
        *,
        instance_id: bytes = ID,
        is_last: bool = False,
        compression: int = 4,
        size: int = 10,
    ) -> ErrorCode:
        if subscription_id is None:
            known = self.instances._known.get(instance_id)
            subscription_id = 0 if known is None else known.wanted.subscription_id
        try:
            self.instances.push(
                instance_id,
                CLIENT,
                self.now,
                subscription_id=subscription_id,
                is_last=is_last,
                compression=compression,
                size=size,
            )
        except ApiError as refusal:
            return refusal.code
        return ErrorCode.NONE

    def ask_code(self) -> ErrorCode:
        try:
            self.ask()
        except ApiError as refusal:
            return refusal.code
        return ErrorCode.NONE


# Subscriptions


@pytest.mark.parametrize(
    ("metrics", "order", "subscription_id"),
    [
        # As Kafka 4.3.1 answers for this client instance.
        ("", [], -378435009),
        ("*", ["*"], -1318191282),
        ("org.apache.kafka.producer.", ["org.apache.kafka.producer."], -1429682034),
        (
            "org.apache.kafka.producer.,org.apache.kafka.consumer.",
            ["org.apache.kafka.producer.", "org.apache.kafka.consumer."],
            -1497871542,
        ),
        (
            "b,a,c,Aa,BB,zz,org.apache.kafka.consumer.fetch.manager.,"
            "org.apache.kafka.consumer.coordinator.",
            [
                *("Aa", "BB", "zz", "a", "org.apache.kafka.consumer.coordinator.", "b", "c"),
                "org.apache.kafka.consumer.fetch.manager.",
            ],
            -222198413,
        ),
        (
            ",".join(f"m{n}" for n in range(1, 17)),
            [f"m{n}" for n in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 10, 13, 12, 15, 14, 16)],
            915341543,
        ),
        ("größe,日本,😀x", ["größe", "😀x", "日本"], -405046322),
    ],
)
def test_the_id_of_a_subscription_is_kafka_s(
    metrics: str, order: list[str], subscription_id: int
) -> None:
    bench = Bench()
    bench.subscribe(interval_ms="1000", **({"metrics": metrics} if metrics else {}))
    wanted = bench.ask().wanted
    assert (list(wanted.metrics), wanted.subscription_id) == (order, subscription_id)


def test_subscriptions_of_one_client_are_taken_together() -> None:
    bench = Bench()
    bench.subscribe("a", metrics="a,b", interval_ms="2000")
    bench.subscribe("b", metrics="b,c", interval_ms="1000")
    bench.subscribe("others", metrics="d", interval_ms="100", match="client_id=nobody")
    wanted = bench.ask().wanted
    assert (sorted(wanted.metrics), wanted.interval_ms) == (["a", "b", "c"], 1000)


def test_without_a_subscription_nothing_is_wanted() -> None:
    wanted = Bench().ask().wanted
    assert (wanted.metrics, wanted.interval_ms) == ((), 300_000)


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("client_id=bill.*", True),
        ("client_id=bill", False),  # all of it has to match
        ("client_id=billing,client_software_version=4\\..*", True),
        ("client_id=billing,client_software_version=3\\..*", False),
        ("client_source_address=10\\..*", True),
        ("client_source_port=5000", True),
        ("client_software_name = apache-kafka-java", True),
        ("client_instance_id=kLw9tU1dR1uPp2sX0aBcDg", True),
        ("client_id=(?=b)billing", True),  # Java's patterns have more than RE2's
        ("client_id=(?!b).*", False),
    ],
)
def test_a_subscription_is_for_the_clients_that_it_matches(match: str, matches: bool) -> None:
    bench = Bench()
    bench.subscribe(metrics="a", match=match)
    assert bench.ask().wanted.metrics == (("a",) if matches else ())


def test_a_client_without_an_id_matches_no_pattern_of_ids() -> None:
    subscription = Subscription.of({"match": "client_id=.*"})
    assert not subscription.is_for({"client_id": None})
    assert subscription.is_for({"client_id": "größe"})


def test_a_pattern_is_not_at_the_mercy_of_what_it_is_matched_with() -> None:
    subscription = Subscription.of({"match": "client_id=(a+)+b"})
    assert not subscription.is_for({"client_id": "a" * 5000 + "é"})  # by backtracking: for ever


# Asking and pushing


def test_a_new_client_gets_an_id() -> None:
    bench = Bench()
    assert bench.ask(ZERO_ID).id == (1).to_bytes(16, "little")
    assert len(bench.instances) == 1


def test_a_client_may_ask_once_in_an_interval() -> None:
    bench = Bench()
    bench.subscribe(interval_ms="1000")
    assert bench.ask_code() == ErrorCode.NONE
    bench.now = 0.9
    assert bench.ask_code() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    bench.now = 1.0
    assert bench.ask_code() == ErrorCode.NONE
    assert bench.instances.throttled == 1


def test_the_first_push_may_come_early_and_the_next_may_not() -> None:
    bench = Bench()
    bench.subscribe(interval_ms="1000")
    bench.ask()
    bench.now = 0.1
    assert bench.push() == ErrorCode.NONE
    bench.now = 1.0
    assert bench.push() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    bench.now = 1.1
    assert bench.push() == ErrorCode.NONE


def test_a_changed_subscription_is_told_at_once() -> None:
    bench = Bench()
    bench.subscribe(interval_ms="1000", metrics="a")
    before = bench.ask().wanted.subscription_id
    bench.subscribe(interval_ms="1000", metrics="b")
    assert bench.push(before) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    # After this error a client asks again at once: the interval is not over.
    wanted = bench.ask().wanted
    assert wanted.metrics == ("b",)
    assert bench.ask_code() == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    bench.now = 1.0
    assert bench.push(wanted.subscription_id) == ErrorCode.NONE


def test_a_subscription_without_settings_is_none() -> None:
    bench = Bench()
    bench.subscribe(metrics="a")
    bench.subscribe()
    bench.subscribe("never")
    assert bench.ask().wanted.metrics == ()


def test_the_last_push_may_come_at_any_time_and_nothing_after_it() -> None:
    bench = Bench()
    bench.subscribe(interval_ms="1000")
    bench.ask()
    assert bench.push() == ErrorCode.NONE
    assert bench.push(is_last=True) == ErrorCode.NONE
    bench.now = 5.0
    assert bench.push() == ErrorCode.INVALID_REQUEST


def test_pushes_are_checked_in_kafka_s_order() -> None:
    bench = Bench(bytes_max=100)
    bench.subscribe(interval_ms="1000")
    right = bench.ask().wanted.subscription_id
    assert bench.push(1, compression=9, size=101) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    bench.now = 2.0
    assert bench.push(right, compression=9, size=101) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert bench.ask_code() == ErrorCode.NONE
    bench.now = 4.0
    assert bench.push(right, size=101) == ErrorCode.TELEMETRY_TOO_LARGE
    assert bench.push(right) == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    bench.now = 6.0
    assert bench.push(right, size=100, compression=0) == ErrorCode.NONE


@pytest.mark.parametrize("reserved", [ZERO_ID, (1).to_bytes(16)])
def test_a_push_needs_an_id(reserved: bytes) -> None:
    assert Bench().push(instance_id=reserved) == ErrorCode.INVALID_REQUEST


def test_a_broker_that_does_not_know_the_client_takes_its_push() -> None:
    # It was another broker that told it the subscription.
    one, two = Bench(), Bench()
    for bench in (one, two):
        bench.subscribe(metrics="a")
    assert two.push(one.ask().wanted.subscription_id) == ErrorCode.NONE


def test_instances_expire_when_they_are_quiet_for_three_intervals() -> None:
    bench = Bench()
    bench.subscribe(interval_ms="30000")
    bench.ask()
    bench.now = 89.0
    bench.instances.expire(bench.now)
    assert len(bench.instances) == 1
    bench.now = 150.0
    bench.instances.expire(bench.now)
    assert len(bench.instances) == 0


def test_there_is_a_bound_on_instances(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headwater.telemetry.instances.INSTANCES_MAX", 2)
    bench = Bench()
    first = bench.ask(ZERO_ID)
    second = bench.ask(ZERO_ID)
    bench.now = 400.0
    bench.ask(first.id)
    bench.ask(ZERO_ID)
    assert next(iter(bench.instances._known)) == first.id  # the second was quiet for longest
    assert second.id not in bench.instances._known


# What was pushed

GAUGE = Point("org.apache.kafka.consumer.lag.max", (("topic", "t"),), 3.0)
SUM = Point("org.apache.kafka.producer.record.send.total", (), 5, is_sum=True, is_monotonic=True)
DELTA = SUM._replace(is_delta=True)
LABELS = 'client_id="billing",client_instance_id="kLw9tU1dR1uPp2sX0aBcDg"'


def take(
    pushed: PushedMetrics,
    *points: Point,
    now: float = 0.0,
    instance_id: bytes = ID,
    user: str = "User:alice",
) -> None:
    readings, dropped = readings_of(Payload(list(points), 0))
    pushed.dropped += dropped
    pushed.take(instance_id, CLIENT, user, readings, now=now, lives_for=60.0)


def lines(pushed: PushedMetrics) -> list[str]:
    registry = Registry()
    registry.register(pushed.collect)
    return [line for line in "".join(render(registry)).splitlines() if not line.startswith("#")]


def test_a_scrape_finds_what_was_pushed_and_by_whom() -> None:
    pushed = PushedMetrics()
    take(pushed, GAUGE, SUM)
    info, gauge, total = lines(pushed)
    assert info.startswith('headwater_client_info{client_id="billing",client_software_name="apac')
    assert 'principal="User:alice"' in info
    assert gauge == f'org_apache_kafka_consumer_lag_max{{topic="t",{LABELS}}} 3.0'
    assert total == f"org_apache_kafka_producer_record_send_total{{{LABELS}}} 5"


def test_deltas_are_added_and_sums_are_taken() -> None:
    pushed = PushedMetrics()
    take(pushed, DELTA, SUM._replace(name="a.total"))
    take(pushed, DELTA._replace(value=2), SUM._replace(name="a.total", value=9))
    assert [line.rpartition(" ")[2] for line in lines(pushed)[1:]] == ["7", "9"]


def test_a_gauge_that_is_no_longer_pushed_is_gone() -> None:
    pushed = PushedMetrics()
    take(pushed, GAUGE, GAUGE._replace(attributes=(("topic", "u"),)), SUM)
    take(pushed, GAUGE)
    assert len(lines(pushed)) == 3  # the sum stays
    take(pushed)
    assert len(lines(pushed)) == 2
    assert len(pushed) == 1


def test_clients_that_push_no_more_are_gone() -> None:
    pushed = PushedMetrics()
    take(pushed, GAUGE, SUM)
    take(pushed, GAUGE, instance_id=OTHER, now=50.0)
    pushed.expire(70.0)
    assert len(lines(pushed)) == 2
    assert len(pushed) == 1
    pushed.expire(200.0)
    assert (lines(pushed), len(pushed)) == ([], 0)


def test_a_client_cannot_pass_for_the_node_or_for_another_client() -> None:
    pushed = PushedMetrics()
    attributes = (
        ("client_id", "other"),
        ("client-instance-id", "x"),
        ("self", 's"\n'),
        ("__name__", "n"),
    )
    take(pushed, Point("headwater_requests_total", attributes, 1))
    assert lines(pushed)[1] == (
        f'client_headwater_requests_total_gauge{{name="n",self="s\\"\\n",{LABELS}}} 1'
    )


def test_another_user_cannot_push_under_the_id_of_a_client() -> None:
    pushed = PushedMetrics()
    take(pushed, GAUGE)
    take(pushed, GAUGE._replace(value=99.0), SUM, user="User:mallory")
    assert [line.rpartition(" ")[2] for line in lines(pushed)] == ["1", "3.0"]
    assert pushed.dropped == 2


def test_attributes_that_are_the_same_as_labels_are_one_series() -> None:
    pushed = PushedMetrics()
    take(pushed, *(GAUGE._replace(attributes=((key, "v"),)) for key in ("a-b", "a_b", "a.b")))
    assert len(lines(pushed)) == 2


def test_numbers_that_are_none_are_left_out() -> None:
    pushed = PushedMetrics()
    take(pushed, GAUGE._replace(value=float("nan")), SUM._replace(value=float("inf")))
    assert (lines(pushed), pushed.dropped) == ([], 0)


def test_a_count_never_shrinks() -> None:
    pushed = PushedMetrics()
    take(pushed, DELTA, SUM._replace(name="level.total", is_monotonic=False))
    take(pushed, DELTA._replace(value=-2), DELTA._replace(is_monotonic=False))
    assert (len(lines(pushed)), pushed.dropped) == (2, 2)
    assert lines(pushed)[1].endswith(" 5")


@pytest.mark.parametrize("bound", ["_SERIES_MAX", "_SERIES_OF_CLIENT_MAX", "_FAMILIES_MAX"])
def test_there_are_bounds_on_what_is_kept(bound: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"headwater.telemetry.pushed.{bound}", 3)
    pushed = PushedMetrics()
    points = [GAUGE._replace(name=f"m{n}") for n in range(5)]
    take(pushed, *points)
    take(pushed, *points)
    assert (len(pushed), pushed.dropped) == (3, 4)
