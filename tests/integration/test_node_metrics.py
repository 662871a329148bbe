"""Metrics and health of nodes as scrapers see them."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPResponse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from harness.nodes import free_port
from harness.wire import Wire, until
from headwater import Admin, Consumer, Producer, TopicPartition
from headwater.client.admin import NewTopic
from headwater.client.errors import ClientError
from headwater.testing import EmbeddedBroker
from tests.support.exposition import ScrapedFamily, parse
from tests.support.processes import HEADWATER, PATIENCE_SECONDS, NodeProcess

METRICS = {"headwater.metrics.listen": "127.0.0.1:0"}
TOPICS = "kafka_server_brokertopicmetrics"

Families = dict[str, ScrapedFamily]


def get(at: str, path: str, **headers: str) -> tuple[int, HTTPResponse, str]:
    connection = HTTPConnection(at, timeout=PATIENCE_SECONDS)
    try:
        connection.request("GET", path, headers=headers)
        response = connection.getresponse()
        return response.status, response, response.read().decode()
    finally:
        connection.close()


def scrape(at: str) -> Families:
    status, response, text = get(at, "/metrics")
    assert status == 200
    assert response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return parse(text)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(METRICS, topics={"orders": 2}) as broker:
        yield broker


@pytest.fixture(scope="module")
def at(broker: EmbeddedBroker) -> str:
    found = broker.metrics_address
    assert found is not None
    return found


@pytest.fixture(scope="module")
def used(broker: EmbeddedBroker, at: str) -> Families:
    """Returns what is scraped after a group has read 6 of 10 records."""

    async def use() -> None:
        async with Producer(broker.bootstrap) as producer:
            for number in range(10):
                await producer.send("orders", b"x" * 100, partition=number % 2)
        async with Consumer(
            broker.bootstrap, group="readers", topics=["orders"], auto_offset_reset="earliest"
        ) as consumer:
            for _ in range(10):
                await anext(aiter(consumer))
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_group_offsets(
                "billing", {TopicPartition("orders", 0): 5, TopicPartition("orders", 1): 1}
            )

    asyncio.run(use())

    def has_lag() -> bool:
        return bool(scrape(at)["kafka_consumergroup_lag_seconds"].samples)

    assert until(has_lag, "the lag of the group", PATIENCE_SECONDS)
    return scrape(at)


def test_topics_tell_their_traffic(used: Families) -> None:
    for name, value in {"messagesin": 10, "totalproducerequests": 10, "bytesrejected": 0}.items():
        assert used[f"{TOPICS}_{name}_total"].value(topic="orders") == value, name
    assert used[f"{TOPICS}_bytesin_total"].value(topic="orders") > 1000
    assert used[f"{TOPICS}_bytesout_total"].value(topic="orders") > 500
    in_all = used[f"{TOPICS}_messagesin_total"].samples[f"{TOPICS}_messagesin_total", ()]
    assert in_all > 10  # with the offsets of the group


def test_partitions_tell_their_offsets_and_replicas(used: Families) -> None:
    for name in ("kafka_log_log_logendoffset", "kafka_topic_partition_current_offset"):
        assert used[name].value(topic="orders", partition="0") == 5
    assert used["kafka_log_log_size"].value(topic="orders", partition="1") > 500
    assert used["kafka_topic_partitions"].value(topic="orders") == 2
    assert used["kafka_server_replicamanager_underreplicatedpartitions"].value() == 0


def test_groups_tell_their_lag(used: Families) -> None:
    where = {"consumergroup": "billing", "topic": "orders"}
    assert used["kafka_consumergroup_lag"].value(**where, partition="0") == 0
    assert used["kafka_consumergroup_lag"].value(**where, partition="1") == 4
    assert used["kafka_consumergroup_lag_sum"].value(**where) == 4
    assert used["kafka_consumergroup_current_offset"].value(**where, partition="1") == 1
    seconds = used["kafka_consumergroup_lag_seconds"]
    assert seconds.value(**where, partition="0") == 0
    assert 0 <= seconds.value(**where, partition="1") < PATIENCE_SECONDS


def test_requests_tell_how_many_and_how_long(used: Families) -> None:
    requests = used["kafka_network_requestmetrics_requests_total"].samples
    produced = sum(n for (_, pairs), n in requests.items() if ("request", "Produce") in pairs)
    assert produced >= 10
    times = used["headwater_request_seconds"].samples
    pairs = (("request", "Produce"), ("stage", "total"))
    assert times["headwater_request_seconds_count", pairs] == produced
    assert 0 < times["headwater_request_seconds_sum", pairs] < PATIENCE_SECONDS
    assert (
        used["kafka_network_requestmetrics_errors_total"].value(request="Produce", error="NONE")
        == produced
    )


def test_the_cluster_and_the_quorum_are_told(used: Families) -> None:
    for name, value in {
        "kafka_controller_kafkacontroller_activecontrollercount": 1,
        "kafka_controller_kafkacontroller_activebrokercount": 1,
        "kafka_controller_kafkacontroller_offlinepartitionscount": 0,
        "kafka_brokers": 1,
        "kafka_server_raft_metrics_current_leader": 1,
        "headwater_metadata_lag_records": 0,
        "kafka_controller_kafkacontroller_newactivecontrollerscount": 1,
        "kafka_controller_kafkacontroller_metadataerrorcount": 0,
        "kafka_server_broker_metadata_metrics_metadata_apply_error_count": 0,
        "kafka_server_raft_metrics_current_vote": 1,
        "kafka_server_raft_metrics_number_of_observers": 0,
        "kafka_server_raft_metrics_fetch_records_rate": 0,
    }.items():
        assert used[name].value() == value, name
    assert used["kafka_server_raft_metrics_append_records_rate"].value() > 0
    applied = used["kafka_server_broker_metadata_metrics_last_applied_record_offset"].value()
    last = used["kafka_controller_kafkacontroller_lastcommittedrecordoffset"].value()
    assert applied == last > 0
    level = used["kafka_server_metadataloader_currentmetadataversion"].value()
    levels = used["kafka_server_metadataloader_finalizedlevel"]
    assert levels.value(featureName="metadataVersion") == level > 20
    assert 0 <= used["kafka_controller_kafkacontroller_lastappliedrecordlagms"].value() < 1e9
    assert used["kafka_server_raft_metrics_current_state_info"].value(state="leader") == 1


def test_the_quorum_and_the_controller_are_told_under_the_names_of_dashboards(
    used: Families,
) -> None:
    for name in ("current_epoch", "high_watermark", "log_end_offset", "poll_idle_ratio_avg"):
        plain = used[f"kafka_server_raft_metrics_{name}"].value()
        assert used[f"kafka_server_raftmetrics_{name}"].value() == plain > 0
    assert used["kafka_server_raftmetrics_current_state"].value(current_state="leader") == 1
    assert used["kafka_server_raftchannelmetrics_request_total"].value() == 0
    events = used["kafka_controller_controllereventmanager_eventqueueprocessingtimems"]
    assert events.samples[f"{events.name}_count", ()] > 0
    assert events.samples[f"{events.name}_sum", ()] > 0


def test_coordinators_tell_their_partitions(used: Families) -> None:
    prefix = "kafka_server_group_coordinator_metrics"
    states = used[f"{prefix}_num_partitions"]
    assert (states.value(state="active"), states.value(state="failed")) == (50, 0)
    assert used[f"{prefix}_partition_load_time_max"].value() > 0
    ids = used["kafka_server_transaction_coordinator_metrics_transactional_id_count"]
    assert ids.value() == 0


def test_connections_are_told_apart_by_program(broker: EmbeddedBroker, at: str) -> None:
    with Wire(broker.bootstrap) as wire:
        wire.api_versions()
        programs = scrape(at)["kafka_server_socket_server_metrics_connections"]
    assert programs.value(client_software_name="test", listener="PLAINTEXT") == 1


def test_the_names_of_another_exporter_are_there_when_asked_for(
    broker: EmbeddedBroker, at: str, used: Families
) -> None:
    status, _, text = get(at, "/metrics?names=confluent")
    assert status == 200
    found = parse(text)
    bytes_in = found[f"{TOPICS}_bytesinpersec"].value(topic="orders")
    assert bytes_in == used[f"{TOPICS}_bytesin_total"].value(topic="orders")
    assert not any(name.startswith(f"{TOPICS}_bytesin_") for name in found)
    lag = found["kafka_server_replicafetchermanager_maxlag"]
    assert lag.value(clientid="Replica") == 0
    sockets = "kafka_server_socketservermetrics_connection"
    with Wire(broker.bootstrap) as wire:
        wire.api_versions()
        again = parse(get(at, "/metrics?names=confluent")[2])  # a rate takes two scrapes
    for name in ("count", "creation_rate"):
        assert again[f"{sockets}_{name}"].value(listener="PLAINTEXT") > 0
    assert f"{sockets}_close_rate" in again
    assert "kafka_server_produce_byte_rate" in found
    assert "kafka_server_produce_byte_rate" not in used
    assert "persec" not in "".join(used)
    open_metrics = "application/openmetrics-text"
    _, _, text = get(at, "/metrics?names=confluent", Accept=open_metrics)
    assert parse(text, openmetrics=True).keys() == found.keys()
    status, _, text = get(at, "/metrics?names=nobody")
    assert (status, text) == (400, "names=nobody: expected confluent\n")


def test_the_process_tells_of_itself(used: Families) -> None:
    assert used["process_resident_memory_bytes"].value() > 1 << 20
    assert used["process_open_fds"].value() > 5
    assert used["process_start_time_seconds"].value() > 1.7e9
    assert used["headwater_info"].value(node="1") == 1
    assert used["headwater_loop_lag_seconds"].samples
    for name in ("avgidlepercent", "avgidle_percent"):
        assert 0 <= used[f"kafka_network_socketserver_networkprocessor{name}"].value() <= 1


def test_a_broker_tells_how_it_is_and_what_it_keeps_for_clients(used: Families) -> None:
    assert used["kafka_server_kafkaserver_brokerstate"].value() == 3
    sessions = "kafka_server_fetchsessioncache"
    assert used[f"{sessions}_numincrementalfetchsessions"].value() >= 1
    assert used[f"{sessions}_numincrementalfetchpartitionscached"].value() >= 2
    assert used[f"{sessions}_incrementalfetchsessionevictions_total"].value() == 0
    assert used["kafka_log_logcleanermanager_uncleanable_partitions_count"].value() == 0


def test_the_same_is_there_as_openmetrics(at: str, used: Families) -> None:
    status, response, text = get(at, "/metrics", Accept="application/openmetrics-text")
    assert status == 200
    assert response.headers["Content-Type"].startswith("application/openmetrics-text")
    assert parse(text, openmetrics=True).keys() == used.keys()


def test_a_node_that_serves_is_well_and_ready(at: str) -> None:
    assert get(at, "/healthz")[::2] == (200, "ok\n")
    assert get(at, "/readyz")[::2] == (200, "ok\n")
    assert get(at, "/nothing")[0] == 404
    assert "/metrics" in get(at, "/")[2]


def test_what_clients_name_cannot_break_the_text(broker: EmbeddedBroker, at: str) -> None:
    name = 'a"b\\c\nd{}'

    async def commit() -> None:
        async with Admin(broker.bootstrap) as admin:
            await admin.alter_group_offsets(name, {TopicPartition("orders", 0): 2})

    asyncio.run(commit())
    offsets = scrape(at)["kafka_consumergroup_current_offset"]
    assert offsets.value(consumergroup='a\\"b\\\\c\\nd{}', partition="0") == 2


def test_a_node_without_the_setting_listens_nowhere_else(headwater_broker: EmbeddedBroker) -> None:
    assert headwater_broker.metrics_address is None
    assert not any("metrics" in line for line in headwater_broker.log_lines)


# The command


def refused(*options: str) -> str:
    done = subprocess.run(
        [str(HEADWATER), "start", "--memory", "--listen", "127.0.0.1:0", *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_metrics_beyond_loopback_need_a_word(tmp_path: Path) -> None:
    for more in ((), ("--nodes", "2")):
        assert "--metrics 0.0.0.0:0: everybody who reaches" in refused(
            "--metrics", "0.0.0.0:0", *more
        )
    assert "expected HOST:PORT" in refused("--metrics", "nowhere")
    with NodeProcess(tmp_path, "--metrics", "0.0.0.0:0", "--insecure") as node:
        assert any("may read the metrics" in line for line in node.complaints())


def metrics_of(ready_line: str) -> list[str]:
    found = re.search(r" metrics=(\S+) data=", ready_line)
    assert found is not None, ready_line
    return found[1].split(",")


def test_a_started_node_says_where_its_metrics_are_and_measures_its_loop(tmp_path: Path) -> None:
    with NodeProcess(tmp_path, "--metrics", "127.0.0.1:0") as node:
        assert node.ready_line is not None
        (at,) = metrics_of(node.ready_line)
        found = scrape(at)
        turns = found["headwater_loop_turn_seconds"].samples
        assert turns["headwater_loop_turn_seconds_count", ()] > 0
        idle = "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent"
        assert 0 <= found[idle].value() <= 1
        assert node.stop() == 0
        with pytest.raises(OSError, match="refused"):
            get(at, "/healthz")


async def read_none_of(topic: str, bootstrap: str) -> None:
    """Creates a topic with a partition on each of two nodes, a record in each, and a group."""
    async with Admin(bootstrap) as admin:
        placed = NewTopic(topic, assignments={0: [1], 1: [2]})
        await admin.create_topics([placed])
        async with Producer(bootstrap) as producer:
            for number in range(2):
                await producer.send(topic, b"x", partition=number)
        offsets = {TopicPartition(topic, number): 0 for number in range(2)}
        await admin.alter_group_offsets("billing", offsets)


def lags_of(addresses: list[str]) -> dict[str, float]:
    """Returns the lag of all groups by partition, each told by one node."""
    found: dict[str, float] = {}
    for at in addresses:
        lag = scrape(at).get("kafka_consumergroup_lag")
        for (_, pairs), value in lag.samples.items() if lag is not None else ():
            assert dict(pairs)["partition"] not in found
            found[dict(pairs)["partition"]] = value
    return found


def test_the_nodes_of_a_local_cluster_have_a_port_each() -> None:
    command = ["start", "--memory", "--nodes", "2", "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [str(HEADWATER), *command, "--metrics", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready_line = process.stdout.readline()
        addresses = metrics_of(ready_line)
        assert len(set(addresses)) == 2
        found = [scrape(at) for at in addresses]
        for number, each in enumerate(found, 1):
            assert each["headwater_info"].value(node=str(number)) == 1
        bootstrap = ready_line.split()[1]
        asyncio.run(read_none_of("orders", bootstrap))
        # Each group has one coordinator, and the logs that it reads are on both nodes.
        assert until(lambda: lags_of(addresses) == {"0": 1, "1": 1}, "the lag", PATIENCE_SECONDS)
        active = "kafka_controller_kafkacontroller_activecontrollercount"
        assert sum(each[active].value() for each in found) == 1
        assert sum("kafka_brokers" in each for each in found) == 1
        asked, answered = (
            [each[f"kafka_server_raftchannelmetrics_{name}_total"].value() for each in found]
            for name in ("request", "response")
        )
        assert max(asked) > 0
        assert all(few <= many for few, many in zip(answered, asked, strict=True))
        latency = "kafka_server_raftmetrics_election_latency_max"
        assert max(each[latency].value() for each in found) > 0
        rate = "kafka_server_replicafetchermanager_minfetchrate"
        assert until(lambda: any(scrape(at)[rate].value() > 0 for at in addresses), "a fetch")
        assert [get(at, "/readyz")[0] for at in addresses] == [200, 200]
    finally:
        process.terminate()
        process.communicate(timeout=PATIENCE_SECONDS)


def test_a_node_that_cannot_serve_yet_is_well_and_not_ready(tmp_path: Path) -> None:
    at = f"127.0.0.1:{free_port()}"
    alone = {
        "process.roles": "broker",
        "node.id": "2",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.bootstrap.servers": "127.0.0.1:1",
    }

    def answers() -> bool:
        try:
            return get(at, "/healthz")[0] == 200
        except OSError:
            return False

    options = ("--metrics", at, "--memory", "--cluster-id", "3Db5QLSqSZieL3rJBUUegA")
    node = NodeProcess(tmp_path, *options, settings=alone).launch()
    try:
        assert until(answers, "the server", PATIENCE_SECONDS)
        assert get(at, "/readyz")[::2] == (503, "starting\n")
        assert get(at, "/metrics")[0] == 200
    finally:
        node.kill()


def test_logins_are_counted() -> None:
    sockets = "kafka_server_socket_server_metrics"
    with EmbeddedBroker(METRICS, users={"alice": "right"}, topics={"t": 1}) as broker:
        at = broker.metrics_address
        assert at is not None
        before = scrape(at)[f"{sockets}_failed_authentication_total"].samples
        assert set(before.values()) == {0}
        settings = broker.client_settings | {"sasl_password": "wrong"}

        async def fail() -> None:
            async with Producer(broker.bootstrap, **settings) as producer:
                await producer.send("t", b"x")

        with pytest.raises(ClientError):
            asyncio.run(fail())
        found = scrape(at)
        assert max(found[f"{sockets}_failed_authentication_total"].samples.values()) >= 1
        assert max(found[f"{sockets}_successful_authentication_total"].samples.values()) >= 1
        assert max(found[f"{sockets}_connection_creation_total"].samples.values()) >= 2


def test_connections_that_end_are_counted() -> None:
    sockets = "kafka_server_socket_server_metrics"
    with EmbeddedBroker({**METRICS, "connections.max.idle.ms": "300"}) as broker:
        at = broker.metrics_address
        assert at is not None
        with Wire(broker.bootstrap) as wire:
            wire.api_versions()
            wire.wait_until_closed()

        def closed() -> bool:
            found = scrape(at)[f"{sockets}_connection_close_total"]
            return found.value(listener="PLAINTEXT") >= 1

        assert until(closed, "the end of the connection")
        expired = scrape(at)[f"{sockets}_expired_connections_killed_count"]
        assert expired.value(listener="PLAINTEXT") >= 1


# OpenTelemetry


class Collector:
    """A collector that keeps what is posted; it refuses while `status` is not 200."""

    def __init__(self) -> None:
        self.status = 200
        self.posted: list[tuple[str, str, Any]] = []  # path, credentials, body
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                credentials = self.headers.get("Authorization", "")
                collector.posted.append((self.path, credentials, json.loads(body)))
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, format: str, *args: object) -> None: ...  # noqa: A002

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = Thread(target=self._server.serve_forever)
        self._thread.start()

    def names(self) -> set[str]:
        return {
            metric["name"]
            for _, _, body in list(self.posted)
            for metric in body["resourceMetrics"][0]["scopeMetrics"][0]["metrics"]
        }

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def test_metrics_are_exported_to_a_collector_also_after_it_has_refused_them() -> None:
    collector = Collector()
    settings = {
        "headwater.otlp.endpoint": collector.url,
        "headwater.otlp.headers": "Authorization=Bearer s3cret",
        "headwater.otlp.interval.ms": "100",
    }
    wanted = {"kafka_brokers", "headwater_loop_lag_seconds", "process_cpu_seconds_total"}
    try:
        collector.status = 503
        with EmbeddedBroker(settings) as broker:
            assert broker.metrics_address is None  # one does not need the other

            def said(what: str) -> bool:
                return any(what in line for line in broker.log_lines)

            assert until(
                lambda: said(f"{collector.url}/v1/metrics answered 503"),
                "the refusal",
                PATIENCE_SECONDS,
            )
            collector.status = 200
            assert until(
                lambda: said("metrics are exported again"), "the recovery", PATIENCE_SECONDS
            )
            assert until(lambda: wanted <= collector.names(), "the metrics", PATIENCE_SECONDS)
            assert not said("s3cret")
        path, credentials, body = collector.posted[-1]
        assert (path, credentials) == ("/v1/metrics", "Bearer s3cret")
        attributes = body["resourceMetrics"][0]["resource"]["attributes"]
        assert {"key": "service.name", "value": {"stringValue": "headwater"}} in attributes
    finally:
        collector.close()
