"""kill -9 of one node of three under load: nothing acknowledged is lost, doubled or reordered.

Whoever dies: the leader of the partitions, a follower, the active controller, or the node that is
both leader and controller. Replicas of what is left must be the same, byte for byte.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from harness import kafka_jars
from harness.clusters import Cluster, Voters
from harness.record_checker import History, anomalies
from headwater.blocking import Admin

PATIENCE = 180.0  # for one step, on a machine that is busy with other things
PARTITIONS = 3
TOPIC = "records"

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(params=[Voters.INITIAL, Voters.STATIC], ids=["dynamic", "static"])
def cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Cluster]:
    made = Cluster(tmp_path, voters=request.param)
    try:
        yield made.start()
    finally:
        made.remove()


class Load:
    """One idempotent librdkafka producer with acks=all that numbers its records."""

    def __init__(self, bootstrap: str, history: History) -> None:
        self._history = history
        self._sent = 0
        self._stop = threading.Event()
        self.failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "message.timeout.ms": int(PATIENCE * 1000),
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "log_level": 0,
            }
        )
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def acknowledged(self) -> int:
        return len(self._history.acknowledged)

    def _run(self) -> None:
        while not self._stop.is_set():
            if self._sent < self.acknowledged + 200:
                number = self._sent
                self._sent += 1
                self._producer.produce(
                    TOPIC,
                    f"librdkafka:{number}",
                    partition=number % PARTITIONS,
                    on_delivery=self._on_delivery,
                )
                self._producer.poll(0)
            else:
                self._producer.poll(0.01)

    def _on_delivery(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(str(error))
            return
        place = (message.topic(), message.partition())
        self._history.acknowledged[message.value().decode()] = (place, message.offset())

    def more(self, count: int = 300) -> None:
        """Waits until more are acknowledged."""
        wanted = self.acknowledged + count
        wait(lambda: self.acknowledged >= wanted or bool(self.failures), "acknowledgements")
        assert not self.failures, self.failures[:3]

    def finish(self) -> None:
        self._stop.set()
        self._thread.join(PATIENCE)
        assert self._producer.flush(PATIENCE) == 0
        assert not self.failures, self.failures[:3]


class JavaLoad:
    """Kafka's VerifiableProducer: it prints what was acknowledged, and where. By itself it does not
    retry, and is not idempotent for that reason."""

    def __init__(self, bootstrap: str, history: History, folder: Path) -> None:
        settings = folder / "producer.properties"
        settings.write_text(
            f"enable.idempotence=true\nretries=2147483647\nlinger.ms=1\n"
            f"delivery.timeout.ms={int(PATIENCE * 1000)}\nrequest.timeout.ms=5000\n"
        )
        jars = kafka_jars.jars(kafka_jars.kafka_version())
        arguments = ["--bootstrap-server", bootstrap, "--topic", TOPIC, "--acks", "-1"]
        arguments += ["--throughput", "200", "--value-prefix", "7"]
        arguments += ["--command-config", str(settings)]
        self._history = history
        self.acknowledged = 0
        self.failures: list[str] = []
        self._process = subprocess.Popen(
            kafka_jars.java_command(
                jars,
                "org.apache.kafka.tools.VerifiableProducer",
                *arguments,
                options=("-Xmx128M", "-XX:TieredStopAtLevel=1"),
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            said = json.loads(line)
            if said.get("name") == "producer_send_success":
                self.acknowledged += 1
                place = (said["topic"], int(said["partition"]))
                self._history.acknowledged[_java_value(said["value"])] = (place, said["offset"])
            elif said.get("name") == "producer_send_error":
                self.failures.append(line)

    def more(self, count: int = 100) -> None:
        wanted = self.acknowledged + count
        wait(
            lambda: self.acknowledged >= wanted or bool(self.failures),
            "acknowledgements of the Java producer",
        )
        assert not self.failures, self.failures[:3]

    def finish(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE)
        self._thread.join(PATIENCE)
        assert not self.failures, self.failures[:3]


def _java_value(text: str) -> str:
    """The tool writes `7.number`; the checker reads `sender:number`."""
    return text.replace("7.", "java:", 1)


def wait(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, f"no {what} within {PATIENCE:g} s"
        time.sleep(0.02)


def leader_of(admin: Admin, partition: int = 0) -> int:
    leader = admin.describe_topic(TOPIC).partitions[partition].leader
    assert leader is not None
    return leader


def wait_in_sync(admin: Admin) -> None:
    def are_in_sync() -> bool:
        partitions = admin.describe_topic(TOPIC).partitions
        return all(len(partition.in_sync) == 3 for partition in partitions)

    wait(are_in_sync, "replicas in sync")


def read_all(bootstrap: str, history: History) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "check", "log_level": 0})
    for index in range(PARTITIONS):
        tp = TopicPartition(TOPIC, index, 0)
        _, end = consumer.get_watermark_offsets(tp, timeout=PATIENCE)
        consumer.assign([tp])
        records: list[tuple[int, str]] = []
        deadline = time.monotonic() + PATIENCE
        while not records or records[-1][0] < end - 1:
            assert time.monotonic() < deadline, f"partition {index} cannot be read up to {end}"
            for message in consumer.consume(1000, timeout=0.2):
                assert message.error() is None, message.error()
                value = message.value().decode()
                records.append((message.offset(), _java_value(value)))
        history.final[TOPIC, index] = records
    consumer.close()


def test_a_node_is_killed_whatever_it_is(cluster: Cluster, tmp_path: Path) -> None:
    history = History()
    with Admin(cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, replication=3)
        loads: list[Load | JavaLoad] = [
            Load(cluster.bootstrap, history),
            JavaLoad(cluster.bootstrap, history, tmp_path),
        ]
        try:
            for load in loads:
                load.more()
            for kind in ("leader", "follower", "controller", "leader and controller"):
                victim = _victim(admin, kind)
                cluster.kill(victim)
                for load in loads:
                    load.more()
                cluster.restart(victim)
                wait_in_sync(admin)
        finally:
            for load in loads:
                load.finish()
        read_all(cluster.bootstrap, history)
        assert anomalies(history) == {}
    cluster.stop()
    _check_replicas(cluster)


def _victim(admin: Admin, kind: str) -> int:
    controller = admin.describe_quorum().leader_id
    leader = leader_of(admin)
    if kind == "leader":
        return leader
    if kind == "controller":
        return controller
    if kind == "follower":
        return next(node for node in (1, 2, 3) if node not in (leader, controller))
    admin.elect_leaders()  # each node is the first replica of one partition

    def leads_one() -> bool:
        return controller in [leader_of(admin, index) for index in range(PARTITIONS)]

    wait(leads_one, "partition that the controller leads")
    return controller


def _check_replicas(cluster: Cluster) -> None:
    """All replicas have the same bytes: everything is committed after a clean stop."""
    for index in range(PARTITIONS):
        copies = {
            node_id: b"".join(
                segment.read_bytes()
                for segment in sorted((node.log_folder / f"{TOPIC}-{index}").glob("*.log"))
            )
            for node_id, node in cluster.nodes.items()
        }
        shortest = min(map(len, copies.values()))
        assert shortest > 0
        assert len({copy[:shortest] for copy in copies.values()}) == 1, "replicas differ"


def test_a_controlled_stop_loses_nothing_and_nobody_waits_for_a_session(
    tmp_path: Path,
) -> None:
    history = History()
    with Cluster(tmp_path).start() as cluster, Admin(cluster.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=PARTITIONS, replication=3)
        load = Load(cluster.bootstrap, history)
        try:
            for node_id in (1, 2, 3):
                load.more()
                cluster.stop(node_id)
                load.more()
                cluster.restart(node_id)
                wait_in_sync(admin)
        finally:
            load.finish()
        read_all(cluster.bootstrap, history)
        assert anomalies(history) == {}
