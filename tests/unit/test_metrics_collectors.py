"""The counts of a node, and that they are collected in small steps."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from headwater.broker.collectors.cluster import Elections
from headwater.broker.collectors.connections import ConnectionCollector
from headwater.broker.collectors.partitions import PartitionCollector
from headwater.broker.collectors.quotas import QuotaCollector
from headwater.broker.collectors.requests import RequestCollector
from headwater.broker.context import Context
from headwater.broker.dispatch import SERVED
from headwater.broker.fetch_sessions import FetchSessions
from headwater.broker.partition import Partition
from headwater.broker.request_meters import RequestMeters
from headwater.broker.request_watch import RequestWatch
from headwater.config import ConfigError, node_config
from headwater.errors import ErrorCode
from headwater.io import Host
from headwater.io.clock import SystemClock
from headwater.io.memory import MemoryDisk
from headwater.metadata import Delta, Image
from headwater.model import TopicPartition
from headwater.net import NetLimits, Server
from headwater.observability import Log
from headwater.observability.exposition import STEPS, render
from headwater.observability.lag import EndHistory
from headwater.observability.registry import Family, Item, Registry, Sample
from headwater.observability.traffic import TopicTraffic, Traffic
from headwater.protocol.apis import ApiKey, response_class
from headwater.protocol.messages.fetch import FetchRequest, FetchResponse, ReplicaState
from headwater.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic
from headwater.protocol.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from headwater.quotas.clients import ClientQuotas
from headwater.quotas.entities import MUTATION, REQUEST
from headwater.quotas.entities import PRODUCE as PRODUCE_QUOTA
from headwater.quotas.rates import Windows
from tests.support.exposition import ScrapedFamily, parse
from tests.support.logs import TOPIC_ID, TP, lead, open_log, settings
from tests.support.pipes import Pipe
from tests.support.replicas import RecordedController
from tests.unit.test_net_fairness import Clock

REQUESTS = "kafka_network_requestmetrics"
SOCKETS = "kafka_server_socket_server_metrics"
PRODUCE = ProduceRequest(acks=1, timeout_ms=1)


def scrape(registry: Registry) -> dict[str, ScrapedFamily]:
    return parse("".join(render(registry)))


# Requests


class Desk:
    def __init__(self) -> None:
        self.now = 1.0
        clock: Any = SimpleNamespace(monotonic=lambda: self.now)
        self.watch = RequestWatch(clock, Log(SystemClock(), lambda line: None))
        self.meters = RequestMeters()
        self.watch.count_in(self.meters)
        self.registry = Registry()
        self.registry.register(RequestCollector(self.meters, lambda: 0.0).collect)

    def note(
        self,
        api: ApiKey,
        request: Any,
        response: Any,
        *,
        local: float | None = None,
        total: float = 0.001,
        queued: float = 0.0,
    ) -> None:
        connection: Any = SimpleNamespace(active_at=self.now)
        self.now += queued
        seen = self.watch.begin(Context(connection, 9, None, None, api), request, 100)
        if local is not None:
            self.now += local
            seen.waits()
        self.now += total - (local or 0.0)
        seen.answered(response, (b"x" * 10, b"y"))


def test_requests_are_counted_by_api_and_version_with_their_bytes_and_errors() -> None:
    desk = Desk()
    bad = PartitionProduceResponse(index=0, error_code=ErrorCode.MESSAGE_TOO_LARGE)
    good = PartitionProduceResponse(index=1)
    topics = [TopicProduceResponse(name="t", partition_responses=[bad, good, bad])]
    desk.note(ApiKey.PRODUCE, PRODUCE, ProduceResponse(responses=topics))
    desk.note(ApiKey.PRODUCE, PRODUCE, ProduceResponse(responses=[]))
    desk.note(ApiKey.PRODUCE, PRODUCE, None)
    found = scrape(desk.registry)
    assert found[f"{REQUESTS}_requests_total"].value(request="Produce", version="9") == 3
    errors = found[f"{REQUESTS}_errors_total"]
    assert errors.value(request="Produce", error="MESSAGE_TOO_LARGE") == 2
    assert errors.value(request="Produce", error="NONE") == 2
    assert found[f"{REQUESTS}_requestbytes_total"].value(request="Produce") == 300
    assert found[f"{REQUESTS}_responsebytes_total"].value(request="Produce") == 33


def test_the_times_of_a_request_are_those_of_its_handler_and_of_its_wait() -> None:
    desk = Desk()
    desk.note(ApiKey.METADATA, None, None, total=0.001)
    throttled = MetadataResponse(throttle_time_ms=400, topics=[], brokers=[])
    desk.note(ApiKey.METADATA, None, throttled, local=0.001, total=0.501, queued=0.25)
    times = scrape(desk.registry)["headwater_request_seconds"].samples
    labels = {
        stage: (("request", "Metadata"), ("stage", stage))
        for stage in ("queue", "local", "remote", "total", "throttle")
    }
    sums = {stage: times["headwater_request_seconds_sum", pairs] for stage, pairs in labels.items()}
    assert sums == pytest.approx(
        {"queue": 0.25, "local": 0.002, "remote": 0.5, "total": 0.502, "throttle": 0.4}
    )
    assert {times["headwater_request_seconds_count", pairs] for pairs in labels.values()} == {2}
    summary = scrape(desk.registry)[f"{REQUESTS}_totaltimems"].samples
    assert summary[f"{REQUESTS}_totaltimems_sum", (("request", "Metadata"),)] == pytest.approx(502)
    waits = scrape(desk.registry)[f"{REQUESTS}_throttletimems"]
    assert 250 < waits.value(quantile="0.999") < 500


def test_fetches_of_consumers_and_followers_are_told_apart_and_together() -> None:
    desk = Desk()
    state = ReplicaState(replica_id=2)
    follower = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], replica_state=state)
    older = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[], replica_id=3, replica_state=None)
    consumer = FetchRequest(max_wait_ms=0, min_bytes=0, topics=[])
    for request in (follower, older, consumer):
        desk.note(ApiKey.FETCH, request, FetchResponse(responses=[]))
    requests = scrape(desk.registry)[f"{REQUESTS}_requests_total"]
    found = {dict(labels)["request"]: value for (_, labels), value in requests.samples.items()}
    assert found == {"Fetch": 3, "FetchConsumer": 1, "FetchFollower": 2}


def test_the_errors_of_every_response_are_found_where_they_are() -> None:
    meters = RequestMeters()
    without = {
        api.name
        for api in SERVED
        if meters.of(api).find_errors is None and "error_code" in _names(response_class(api))
    }
    assert not without
    response = MetadataResponse(
        topics=[MetadataResponseTopic(error_code=3, partitions=[])], brokers=[]
    )
    find = meters.of(ApiKey.METADATA).find_errors
    assert find is not None
    assert find(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert find(MetadataResponse(topics=[], brokers=[])) is None


def _names(cls: Any) -> set[str]:
    from headwater.protocol.schema import fields_of

    names: set[str] = set()
    for field in fields_of(cls):
        names.add(field.name)
        if field.struct is not None:
            names |= _names(field.struct)
    return names


# Partitions


class CountedPartitions(list[Partition]):
    """Partitions that say how many were looked at."""

    seen = 0

    def __iter__(self) -> Iterator[Partition]:
        for each in super().__iter__():
            self.seen += 1
            yield each


def partitions_of(count: int) -> tuple[Registry, CountedPartitions]:
    log = open_log(config=settings())
    made = CountedPartitions(
        Partition(TopicPartition("t", at), TOPIC_ID, log, SimpleNamespace(), 0)
        for at in range(count)
    )
    for partition in list(made):
        lead(partition, epoch=1, isr=(1, 2), replicas=(1, 2, 3))
    made.seen = 0
    here: Any = SimpleNamespace(all=lambda: made, traffic=TopicTraffic(), offline_count=0)
    log_dirs: Any = SimpleNamespace(directories=[])
    registry = Registry()
    sessions = FetchSessions(10, Random(1))
    collector = PartitionCollector(
        here, log_dirs, Image, sessions=sessions, fetch_rate=lambda: 0.0, node_id=1
    )
    registry.register(collector.collect)
    return registry, made


def test_a_scrape_of_many_partitions_looks_at_few_of_them_at_a_time() -> None:
    registry, partitions = partitions_of(10_000)
    before, lines = 0, 0
    for part in render(registry):
        assert partitions.seen - before <= STEPS
        before = partitions.seen
        count = part.count("\n")
        assert count <= 2 * STEPS
        lines += count
    assert partitions.seen == 10_000
    assert lines > 150_000


def test_the_state_of_partitions_is_told_by_their_leader() -> None:
    registry, _ = partitions_of(2)
    found = scrape(registry)
    for name, value in {
        "partitioncount": 2,
        "leadercount": 2,
        "underreplicatedpartitions": 2,
        "underminisrpartitioncount": 0,
        "atminisrpartitioncount": 0,
        "offlinereplicacount": 0,
    }.items():
        assert found[f"kafka_server_replicamanager_{name}"].value() == value, name
    for name, value in {
        "kafka_cluster_partition_insyncreplicascount": 2,
        "kafka_cluster_partition_replicascount": 3,
        "kafka_cluster_partition_underreplicated": 1,
        "kafka_topic_partition_leader": 1,
        "kafka_topic_partition_leader_is_preferred": 1,
        "kafka_log_log_logendoffset": 0,
    }.items():
        assert found[name].value(topic="t", partition="1") == value, name


def test_requests_that_wait_are_told_by_what_they_wait_for() -> None:
    registry, partitions = partitions_of(3)
    reader: Any = object()
    other: Any = object()
    for partition in list(partitions):
        partition.watchers[reader] = None
    partitions[0].watchers[other] = None
    partitions[1].when_replicated(10, lambda failure: None)
    found = scrape(registry)
    for name, kind, value in (
        ("purgatorysize", "Fetch", 4),
        ("numdelayedoperations", "Fetch", 2),
        ("purgatorysize", "Produce", 1),
        ("numdelayedoperations", "DeleteRecords", 0),
    ):
        waiting = found[f"kafka_server_delayedoperationpurgatory_{name}"]
        assert waiting.value(delayedOperation=kind) == value, name


def test_the_traffic_of_all_topics_never_goes_back() -> None:
    traffic = TopicTraffic()
    traffic.of("a").bytes_in += 5
    traffic.of("b").bytes_in += 7
    traffic.forget("a")
    traffic.forget("a")
    assert list(traffic.topics) == ["b"]
    total = Traffic()
    total.add(traffic.gone)
    total.add(traffic.of("b"))
    assert total.bytes_in == 12


def test_changes_of_in_sync_sets_are_counted() -> None:
    partition = Partition(TP, TOPIC_ID, open_log(config=settings()), SimpleNamespace(), 0)
    for isr in ((1, 2, 3), (1,), (1, 2), (1, 2)):
        lead(partition, epoch=1, isr=isr, replicas=(1, 2, 3))
    assert (partition.traffic.isr_shrinks, partition.traffic.isr_expands) == (1, 1)


# Quotas


def test_what_quotas_hold_back_and_what_clients_use_is_told() -> None:
    quotas = ClientQuotas(Windows(11, 1.0), Windows(11, 1.0))
    quotas.follow({(("user", "alice"),): {PRODUCE_QUOTA: 1000.0, REQUEST: 50.0, MUTATION: 2.0}})
    limits = quotas.limits_of("alice", "app", 0.0)
    assert limits is not None
    assert limits.produce is not None
    assert limits.request is not None
    assert limits.mutation is not None
    limits.produce.take(22_000, 0.0)
    limits.request.take(2.5, 0.0)
    limits.mutation.take(25, 0.0)
    quotas.note(PRODUCE_QUOTA, 2.5, limits.produce, 0.0)
    registry = Registry()
    registry.register(QuotaCollector(quotas, lambda: 0.0).collect)
    found = scrape(registry)
    assert found["headwater_quota_throttled_total"].value(resource="Produce") == 1
    assert found["headwater_quota_throttled_total"].value(resource="Fetch") == 0
    assert found["headwater_quota_throttled_seconds_total"].value(resource="Produce") == 2.5
    assert found["headwater_quota_bound"].value(resource="Produce", user="alice") == 1000
    assert found["kafka_server_quota_byte_rate"].value(user="alice") > 1000
    assert found["kafka_server_quota_request_time"].value(user="alice") == 25
    assert found["kafka_server_quota_tokens"].value(user="alice") == -3
    assert found["kafka_server_quota_throttle_time"].value(resource="Produce") == 2500
    assert found["kafka_server_quota_throttle_time"].value(resource="Request") == 0


def test_a_quota_that_has_changed_is_told_before_its_client_asks_again() -> None:
    alice, app = (("user", "alice"),), (("client-id", "app"), ("user", "alice"))
    quotas = ClientQuotas(Windows(11, 1.0), Windows(11, 1.0))
    quotas.follow({alice: {PRODUCE_QUOTA: 1000.0, REQUEST: 50.0}, app: {MUTATION: 2.0}})
    quotas.limits_of("alice", "app", 0.0)
    registry = Registry()
    registry.register(QuotaCollector(quotas, lambda: 0.0).collect)

    def bounds() -> dict[str, float]:
        samples = scrape(registry)["headwater_quota_bound"].samples
        return {dict(labels)["resource"]: value for (_, labels), value in samples.items()}

    assert bounds() == {"Produce": 1000, "Request": 50, "ControllerMutation": 2}
    quotas.follow({alice: {PRODUCE_QUOTA: 2000.0, MUTATION: 4.0}})
    assert bounds() == {"Produce": 2000}
    quotas.follow({(("user", None),): {PRODUCE_QUOTA: 3000.0}, app: {PRODUCE_QUOTA: 1.0}})
    assert bounds() == {"Produce": 3000}
    quotas.follow({(("client-id", "app"),): {MUTATION: 1.0}})
    assert bounds() == {}


# Lag


def test_seconds_of_lag_are_interpolated() -> None:
    history = EndHistory()
    history.note(0.0, 100)
    history.note(10.0, 200)
    assert history.end == 200
    assert history.seconds_behind(200, now=20.0) == 0
    assert history.seconds_behind(150, now=20.0) == 15  # it came at 5, or so
    assert history.seconds_behind(0, now=20.0) == 20  # at least


def test_a_log_that_stood_still_was_written_when_it_went_on() -> None:
    history = EndHistory()
    for now in range(0, 1000, 10):
        history.note(float(now), 100)
    history.note(1000.0, 101)
    assert history.seconds_behind(100, now=1005.0) == pytest.approx(15)


def test_what_is_remembered_is_bounded_and_goes_far_back() -> None:
    history = EndHistory()
    for now in range(10_000):
        history.note(float(now), now)
    assert len(history._points) <= 16
    assert history.seconds_behind(9_999 - 2, now=9_999.0) == pytest.approx(2)
    assert 1_000 < history.seconds_behind(5_000, now=9_999.0) < 9_000


def test_a_log_that_was_cut_begins_anew() -> None:
    history = EndHistory()
    history.note(0.0, 100)
    history.note(1.0, 10)
    assert history.end == 10
    assert history.seconds_behind(5, now=3.0) == 2
    assert EndHistory().end == -1
    assert EndHistory().seconds_behind(5, now=1.0) == 0


# Elections


def test_elections_are_counted_by_the_active_controller() -> None:
    controller = RecordedController({})
    for broker in (1, 2, 3):
        controller.join(broker)
    assert not controller.create("t", -1, -1, assignments=[(0, [1, 2, 3])]).error_code
    image, is_active = Image(), [True]
    elections = Elections(lambda: is_active[0])

    def follow() -> None:
        delta = Delta()
        for record in controller.log:
            image.apply(record, delta)
        controller.log.clear()
        elections.follow(image, delta)

    follow()
    assert elections.count == 0  # a new partition has its first leader
    controller.do(controller.machine.decide_fence_gone(1, image.brokers[1].epoch))
    follow()
    assert (elections.count, elections.unclean) == (1, 0)
    is_active[0] = False
    controller.do(controller.machine.decide_fence_gone(2, image.brokers[2].epoch))
    follow()
    assert elections.count == 1


# Settings


def test_the_address_of_metrics_is_checked() -> None:
    assert node_config().metrics_listener is None
    config = node_config({"headwater.metrics.listen": "[::1]:9404"})
    assert config.metrics_listener == ("::1", 9404)
    assert node_config({"headwater.metrics.listen": ":0"}).metrics_listener == ("", 0)
    for text in ("9404", "localhost", "localhost:", "a b:1", "x:65536", "x:-1", "http://x:1"):
        with pytest.raises(ConfigError, match=r"expected HOST:PORT"):
            node_config({"headwater.metrics.listen": text})


# Connections


class Door:
    """The connections of a server, and what is scraped of them."""

    def __init__(self) -> None:
        self.clock = Clock()
        host = Host(self.clock, Random(1), MemoryDisk(), None, None)  # type: ignore[arg-type]
        self.server = Server(host, NetLimits(), lambda line: None)
        self.collector = ConnectionCollector(self.clock.monotonic, self.server)
        self._open: list[Any] = []

    def accept(self, count: int, listener: str = "USERS") -> None:
        for _ in range(count):
            pipe: Any = Pipe()
            self._open.append(self.server._accept(pipe, listener, lambda connection, frame: ()))

    def end(self, count: int) -> None:
        for _ in range(count):
            self._open.pop().closed(None)

    def rates(self) -> tuple[float, float]:
        registry = Registry()
        registry.register(self.collector.collect_rates)
        found = scrape(registry)
        created, closed = (
            found[f"{SOCKETS}_connection_{name}_rate"].value(listener="USERS")
            for name in ("creation", "close")
        )
        return created, closed


def test_connections_are_told_as_rates_since_the_scrape_before() -> None:
    door = Door()
    door.accept(5)
    assert door.rates() == (0, 0)
    door.accept(40)
    door.end(10)
    door.clock.now += 20.0
    assert door.rates() == (2, 0.5)


def test_connections_that_come_while_a_scrape_pauses_do_not_count_as_closed() -> None:
    door = Door()
    door.accept(1, "NODES")
    door.accept(3, "USERS")
    door.end(1)

    def paused(items: Iterator[Item], family: str) -> list[float]:
        """Returns the values of a family; connections come whenever the reader may pause."""
        found, name = [], ""
        for item in items:
            door.clock.now += 1.0
            door.accept(1, "NODES")
            door.accept(1, "USERS")
            if isinstance(item, Family):
                name = item.name
            elif isinstance(item, Sample) and name == family:
                found.append(item.value)
        return found

    assert paused(door.collector.collect(), f"{SOCKETS}_connection_close_total") == [0, 1]
    closed = f"{SOCKETS}_connection_close_rate"
    assert paused(door.collector.collect_rates(), closed) == [0, 0]
    created, ended = door.rates()  # without a pause: what was too high would fall
    assert created > 0
    assert ended == 0
