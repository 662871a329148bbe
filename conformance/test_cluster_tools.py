"""Kafka's tools against three nodes print what they print for three nodes of Apache Kafka.

Both clusters are made from the same properties and go through the same steps; each tool is aimed at
both. What differs by chance (ports, ids, times, who was elected) and the words of error messages
are left out of the comparison; exit codes, tables and the classes of errors are not.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from conformance.records import produce
from harness import kafka_jars
from harness.clusters import Cluster, Voters
from harness.nodes import run_java, wait_until
from harness.record_checker import History, anomalies
from headwater.blocking import Admin
from headwater.client.errors import ClientError

TOPICS = "org.apache.kafka.tools.TopicCommand"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
GROUPS = "org.apache.kafka.tools.GroupsCommand"
SHELL = "org.apache.kafka.shell.MetadataShell"
LATENCY = "org.apache.kafka.tools.EndToEndLatency"
REPLICAS = "org.apache.kafka.tools.ReplicaVerificationTool"
PRODUCER = "org.apache.kafka.tools.VerifiableProducer"
CONSUMER = "org.apache.kafka.tools.VerifiableConsumer"

BROKERS = ("--bootstrap-server", "{brokers}")
CONTROLLERS = ("--bootstrap-controller", "{controllers}")
THREE_WAYS = "1:2:3,2:3:1,3:1:2"
_SETTINGS = {"auto.leader.rebalance.enable": "false"}

pytestmark = pytest.mark.timeout(900)

# What is a matter of chance, or of the words in which a refusal is explained.
_CHANCE = (
    # A line of the log, which may end with an exception: how often a client tries is chance.
    (
        r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+ (WARN|ERROR).*\n"
        r"([\w.$]+(Exception|Error)(: .*)?\n)?",
        "",
    ),
    (r"(?m)^(\tat |\t?Caused by: |\tSuppressed: ).*\n", ""),
    (r"(org\.apache\.kafka\.common\.errors\.\w+): .*", r"\1"),
    (r"((?:Could|Can) not \w+ \S+ to \d+)\. .*", r"\1"),
    (r"(Error while executing topic command) : .*", r"\1"),
    (r"TopicId: \S+", "TopicId"),
    (r"Epoch: \d+", "Epoch"),
    (r"(LeaderId|LeaderEpoch|HighWatermark|MaxFollowerLag|MaxFollowerLagTimeMs):\s+\d+", r"\1"),
    (r"(?m)^\d +\t(\S+) *\t\d+ +\t\d+ *\t(?:\d{13}|\d+ ms ago) +\t(?:\d{13}|\d+ ms ago) +", r"\1"),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Returns the output of a tool, without what varies by chance, and its exit code."""

    printed: str
    code: int


@dataclass(frozen=True, slots=True)
class Pair:
    """The subject, and Apache Kafka from the same properties."""

    subject: Cluster
    kafka: Cluster
    jars: Path

    @property
    def both(self) -> tuple[Cluster, Cluster]:
        return self.subject, self.kafka

    def same(
        self, main: str, *arguments: str, settled: Callable[[Outcome], bool] = lambda _: True
    ) -> str:
        """Runs a tool on both, which must print the same. Names in braces stand for what each
        cluster has. A tool that shows what is still changing is run until it has `settled`."""
        ours, theirs = (self._outcome(each, main, arguments, settled) for each in self.both)
        assert ours.printed == theirs.printed, f"{main} {' '.join(arguments)}"
        assert ours.code == theirs.code, f"{main} {' '.join(arguments)}"
        return ours.printed

    def _outcome(
        self,
        cluster: Cluster,
        main: str,
        arguments: tuple[str, ...],
        settled: Callable[[Outcome], bool],
    ) -> Outcome:
        names = _names(cluster)
        outcome = Outcome("", -1)

        def is_settled() -> bool:
            nonlocal outcome
            aimed = [each.format_map(names) for each in arguments]
            done = run_java(self.jars, main, *aimed, check=False)
            outcome = Outcome(_without_chance(done.stdout + done.stderr, names), done.returncode)
            return settled(outcome)

        wait_until(is_settled, f"{main} {' '.join(arguments)} settles")
        return outcome

    def each(self, act: Callable[[Cluster], None]) -> None:
        for cluster in self.both:
            act(cluster)


def _names(cluster: Cluster) -> dict[str, str]:
    """The facts of a cluster, by the names that arguments and expected outputs use."""
    names = {"brokers": cluster.bootstrap, "controllers": cluster.bootstrap_controllers}
    for node_id, member in cluster.members.items():
        names[f"properties{node_id}"] = str(member.properties)
        names[f"folder{node_id}"] = str(member.node.log_folder)
        names[f"metadata{node_id}"] = str(member.node.log_folder / "__cluster_metadata-0")
        names[f"directory{node_id}"] = _directory_id(member.node.log_folder)
        names[f"controller{node_id}"] = member.controller_address
        names[f"port{node_id}"] = str(member.node.port)
        names[f"controllerPort{node_id}"] = str(member.node.controller_port)
    names["copies"] = str(cluster.folder / "copies")
    return names


def _directory_id(folder: Path) -> str:
    lines = (folder / "meta.properties").read_text().splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("directory.id="))


def _without_chance(printed: str, names: dict[str, str]) -> str:
    # The longest first: an address ends with a port.
    for name, value in sorted(names.items(), key=lambda each: -len(each[1])):
        printed = printed.replace(value, f"{{{name}}}")
    for pattern, replacement in _CHANCE:
        printed = re.sub(pattern, replacement, printed)
    # An in-sync set has no order that Kafka would promise.
    return re.sub(r"(?<=Isr: )[\d,]+|(?<=isr=\[)[\d, ]+", _sorted_ids, printed)


def _sorted_ids(found: re.Match[str]) -> str:
    return ",".join(sorted(re.findall(r"\d+", found[0])))


@contextmanager
def _pair(
    request: pytest.FixtureRequest, folder: Path, jars: Path, voters: Voters, release: str | None
) -> Iterator[Pair]:
    if request.config.getoption("--bootstrap"):
        pytest.skip("needs clusters of its own, not --bootstrap")
    is_kafka = request.config.getoption("--subject") == "kafka"
    with ExitStack() as stack:
        clusters = [
            stack.enter_context(
                Cluster(folder / name, kind, voters, settings=_SETTINGS, release=release)
            )
            for name, kind in (("subject", jars if is_kafka else None), ("kafka", jars))
        ]
        for cluster in clusters:
            cluster.start()
            await_brokers(cluster, 1, 2, 3)
        yield Pair(clusters[0], clusters[1], jars)


@pytest.fixture(scope="module")
def pair(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, jars: Path
) -> Iterator[Pair]:
    """Two clusters with dynamic voters, for all claims that leave them as they were."""
    with _pair(request, tmp_path_factory.mktemp("pair"), jars, Voters.INITIAL, None) as made:
        yield made


def await_brokers(cluster: Cluster, *node_ids: int) -> None:
    def serves() -> bool:
        try:
            with Admin(cluster.bootstrap) as admin:
                return {node.id for node in admin.describe_cluster().nodes} == set(node_ids)
        except ClientError:
            return False

    wait_until(serves, f"brokers {node_ids} serve")


def await_in_sync(cluster: Cluster, topic: str, *node_ids: int) -> None:
    """Waits until these of the replicas, and no others, are in sync, and one of them leads."""
    with Admin(cluster.bootstrap) as admin:

        def holds() -> bool:
            return all(
                each.leader in node_ids and set(each.in_sync) == set(node_ids) & set(each.replicas)
                for each in admin.describe_topic(topic).partitions
            )

        wait_until(holds, f"{node_ids} are in sync in {topic}")


def leader_of(cluster: Cluster, topic: str, partition: int = 0) -> int | None:
    with Admin(cluster.bootstrap) as admin:
        return admin.describe_topic(topic).partitions[partition].leader


def _without_node(pair: Pair, node_id: int, topic: str, do: Callable[[], None]) -> None:
    """Does something while one node of each is stopped."""
    others = [each for each in pair.subject.members if each != node_id]
    for cluster in pair.both:
        cluster.stop(node_id)
        await_brokers(cluster, *others)
        await_in_sync(cluster, topic, *others)
    try:
        do()
    finally:
        for cluster in pair.both:
            cluster.restart(node_id)
            await_brokers(cluster, 1, 2, 3)
            await_in_sync(cluster, topic, 1, 2, 3)


def test_topic_command_shows_replicas_and_what_is_missing(pair: Pair, topic: str) -> None:
    describe = (*BROKERS, "--describe", "--topic", topic)
    create = (*BROKERS, "--create", "--topic", topic, "--replica-assignment")
    assert f"Created topic {topic}." in pair.same(TOPICS, *create, "1:2:3,2:3:1")
    assert "Replicas: 2,3,1\tIsr: 1,2,3" in pair.same(TOPICS, *describe)
    grown = (*BROKERS, "--alter", "--topic", topic, "--partitions", "3")
    pair.same(TOPICS, *grown, "--replica-assignment", THREE_WAYS)
    assert "Leader: 3\tReplicas: 3,1,2" in pair.same(TOPICS, *describe)
    for refused in (
        (*create, "1:2:3"),
        (*BROKERS, "--create", "--topic", "too-many", "--replication-factor", "4"),
        (*BROKERS, "--create", "--topic", "nobody", "--replica-assignment", "1:9"),
        (*BROKERS, "--describe", "--topic", "nowhere"),
    ):
        assert "Error while executing topic command" in pair.same(TOPICS, *refused)

    def look() -> None:
        assert "Leader: 1\tReplicas: 3,1,2\tIsr: 1,2" in pair.same(TOPICS, *describe)
        assert topic in pair.same(TOPICS, *describe, "--under-replicated-partitions")
        assert topic in pair.same(TOPICS, *describe, "--at-min-isr-partitions")
        for nothing in ("--under-min-isr-partitions", "--unavailable-partitions"):
            assert topic not in pair.same(TOPICS, *describe, nothing)

    _without_node(pair, 3, topic, look)
    pair.same(TOPICS, *describe)
    assert topic not in pair.same(TOPICS, *describe, "--under-replicated-partitions")
    pair.same(TOPICS, *BROKERS, "--delete", "--topic", topic)
    assert topic not in pair.same(TOPICS, *BROKERS, "--list", "--exclude-internal")


def test_leader_election_command_gives_leadership_back(pair: Pair, topic: str) -> None:
    pair.same(TOPICS, *BROKERS, "--create", "--topic", topic, "--replica-assignment", THREE_WAYS)
    one = (*BROKERS, "--election-type", "preferred", "--topic", topic, "--partition", "1")

    def refused() -> None:
        assert "PreferredLeaderNotAvailableException" in pair.same(ELECTION, *one)

    _without_node(pair, 2, topic, refused)
    assert "Successfully completed leader election (PREFERRED)" in pair.same(ELECTION, *one)
    assert "Valid replica already elected" in pair.same(ELECTION, *one)
    for cluster in pair.both:
        assert leader_of(cluster, topic, 1) == 2
    nowhere = (*BROKERS, "--election-type", "preferred", "--topic", "nowhere", "--partition", "0")
    assert "UnknownTopicOrPartitionException" in pair.same(ELECTION, *nowhere)


def test_leader_election_command_elects_uncleanly_only_when_told(pair: Pair, topic: str) -> None:
    create = (*BROKERS, "--create", "--topic", topic, "--replica-assignment", "3:2")
    pair.same(TOPICS, *create, "--config", "min.insync.replicas=1")
    describe = (*BROKERS, "--describe", "--topic", topic)
    for cluster in pair.both:
        cluster.stop(2)
        await_in_sync(cluster, topic, 3)
        cluster.kill(3)
        cluster.restart(2)
        await_brokers(cluster, 1, 2)
        wait_until(lambda cluster=cluster: leader_of(cluster, topic) is None, "its leader is gone")  # type: ignore[misc]
    assert "Leader: none" in pair.same(TOPICS, *describe, "--unavailable-partitions")
    where = ("--topic", topic, "--partition", "0")
    preferred = pair.same(ELECTION, *BROKERS, "--election-type", "preferred", *where)
    assert "PreferredLeaderNotAvailableException" in preferred
    unclean = pair.same(ELECTION, *BROKERS, "--election-type", "unclean", *where)
    assert "Successfully completed leader election (UNCLEAN)" in unclean
    assert "Leader: 2" in pair.same(TOPICS, *describe)
    for cluster in pair.both:
        cluster.restart(3)
        await_brokers(cluster, 1, 2, 3)
        await_in_sync(cluster, topic, 2, 3)
    pair.same(TOPICS, *describe)


def test_metadata_quorum_command_shows_removes_and_adds_voters(pair: Pair) -> None:
    for where in (BROKERS, CONTROLLERS):
        status = pair.same(QUORUM, *where, "describe", "--status")
        assert status.count('"directoryId": "{directory') == 3
        assert '"endpoints": ["CONTROLLER://{controller3}"]' in status
    # The leader comes first, whichever node it is.
    for cluster in pair.both:
        names = _names(cluster)
        aimed = [each.format_map(names) for each in BROKERS]
        shown = run_java(pair.jars, QUORUM, *aimed, "describe", "--replication").stdout
        rows = [line.split("\t") for line in shown.splitlines()[1:]]
        assert [row[-2].strip() for row in rows] == ["Leader", "Follower", "Follower"]
        assert {(row[0].strip(), row[1]) for row in rows} == {
            (str(node_id), names[f"directory{node_id}"]) for node_id in (1, 2, 3)
        }
    voter = ("--controller-id", "3", "--controller-directory-id", "{directory3}")
    for where in (BROKERS, CONTROLLERS):
        removed = pair.same(QUORUM, *where, "remove-controller", *voter)
        assert "Removed  KRaft controller 3" in removed
        observed = pair.same(
            QUORUM,
            *where,
            "describe",
            "--status",
            settled=lambda outcome: '[{"id": 3' in outcome.printed,
        )
        assert 'CurrentObservers:       [{"id": 3, "directoryId": "{directory3}"}]' in observed
        assert "VoterNotFoundException" in pair.same(QUORUM, *where, "remove-controller", *voter)
        add = (*CONTROLLERS, "--command-config", "{properties3}", "add-controller")
        assert "DRY RUN of adding controller 3" in pair.same(QUORUM, *add, "--dry-run")
        assert "Added controller 3 with directory id" in pair.same(QUORUM, *add)
        assert "DuplicateVoterException" in pair.same(QUORUM, *add)
        pair.same(
            QUORUM,
            *where,
            "describe",
            "--status",
            settled=lambda outcome: "CurrentObservers:       []" in outcome.printed,
        )
    nobody = ("--controller-id", "3", "--controller-directory-id", "AAAAAAAAAAAAAAAAAAAAAA")
    refused = pair.same(QUORUM, *CONTROLLERS, "remove-controller", *nobody)
    assert "InvalidRequestException" in refused


def test_feature_command_describes_raises_and_lowers_features(pair: Pair) -> None:
    eligible = "eligible.leader.replicas.version"
    for where in (BROKERS, CONTROLLERS):
        described = pair.same(FEATURES, *where, "describe")
        assert re.search(r"metadata.version.*FinalizedVersionLevel: 4.3-IV0", described)
    pair.same(FEATURES, *BROKERS, "version-mapping", "--release-version", "4.0")
    pair.same(FEATURES, *BROKERS, "feature-dependencies", "--feature", "transaction.version=2")
    for action, feature, says in (
        ("downgrade", f"{eligible}=0", "was downgraded to 0"),
        ("upgrade", f"{eligible}=1", "was upgraded to 1"),
        ("upgrade", f"{eligible}=7", "Could not upgrade"),
        ("downgrade", "metadata.version=29", "Could not downgrade"),
        ("downgrade", "kraft.version=0", "Could not downgrade"),
        ("upgrade", "no.such.version=1", "no.such.version"),
    ):
        asked = (*BROKERS, action, "--feature", feature)
        assert says in pair.same(FEATURES, *asked)
    dry = (*BROKERS, "downgrade", "--feature", f"{eligible}=0", "--dry-run")
    assert "can be downgraded to 0" in pair.same(FEATURES, *dry)
    unsafe = (*BROKERS, "downgrade", "--metadata", "4.1", "--unsafe")
    assert "Could not downgrade metadata.version" in pair.same(FEATURES, *unsafe)
    pair.same(FEATURES, *BROKERS, "describe")


def test_feature_command_raises_an_old_cluster_and_makes_its_quorum_dynamic(
    request: pytest.FixtureRequest, tmp_path: Path, jars: Path
) -> None:
    with _pair(request, tmp_path, jars, Voters.STATIC, "3.9") as pair:
        described = pair.same(FEATURES, *BROKERS, "describe")
        assert re.search(r"kraft.version .*FinalizedVersionLevel: 0", described)
        assert "directoryId" not in pair.same(QUORUM, *BROKERS, "describe", "--status")
        raised = pair.same(FEATURES, *BROKERS, "upgrade", "--metadata", "4.0")
        assert "metadata.version was upgraded to 25." in raised
        pair.same(FEATURES, *BROKERS, "describe")
        raised = pair.same(FEATURES, *CONTROLLERS, "upgrade", "--release-version", "4.3")
        assert "kraft.version was upgraded to 1." in raised
        pair.same(FEATURES, *BROKERS, "describe")
        pair.same(
            QUORUM,
            *BROKERS,
            "describe",
            "--status",
            settled=lambda outcome: outcome.printed.count('"directoryId": "{directory') == 3,
        )


def test_cluster_tool_lists_endpoints_and_unregisters_a_broker(pair: Pair, topic: str) -> None:
    pair.same(TOPICS, *BROKERS, "--create", "--topic", topic, "--replica-assignment", THREE_WAYS)
    for where in (BROKERS, CONTROLLERS):
        assert "Cluster ID: " in pair.same(CLUSTER, "cluster-id", *where)
        assert "127.0.0.1" in pair.same(CLUSTER, "list-endpoints", *where)
    for mistaken in (
        ("--bootstrap-controller", "{brokers}"),
        ("--bootstrap-server", "{controllers}"),
    ):
        pair.same(CLUSTER, "list-endpoints", *mistaken)
    assert "BrokerIdNotRegistered" in pair.same(CLUSTER, "unregister", *BROKERS, "--id", "9")

    def unregister() -> None:
        fenced = pair.same(CLUSTER, "list-endpoints", *BROKERS, "--include-fenced-brokers")
        assert re.search(r"(?m)^3 .* fenced", fenced)
        gone = pair.same(CLUSTER, "unregister", *BROKERS, "--id", "3")
        assert "Broker 3 is no longer registered." in gone
        left = pair.same(CLUSTER, "list-endpoints", *BROKERS, "--include-fenced-brokers")
        assert not re.search(r"(?m)^3 ", left)

    _without_node(pair, 3, topic, unregister)
    pair.same(CLUSTER, "list-endpoints", *BROKERS)


def test_groups_command_lists_groups_of_all_coordinators(pair: Pair, topic: str) -> None:
    """Three groups of each kind, which have different coordinators."""
    pair.same(TOPICS, *BROKERS, "--create", "--topic", topic, "--replica-assignment", THREE_WAYS)
    members: list[Consumer] = []
    try:
        for cluster in pair.both:
            for protocol in ("classic", "consumer"):
                for number in range(3):
                    options = {"bootstrap.servers": cluster.bootstrap, "group.protocol": protocol}
                    options |= {"group.id": f"{topic}-{protocol}-{number}", "log_level": "2"}
                    member = Consumer(options)
                    members.append(member)
                    member.subscribe([topic])
                    wait_until(
                        lambda member=member: member.poll(0.1) is None and member.assignment(),  # type: ignore[misc]
                        "an assignment",
                    )
            simple = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": f"{topic}-a"})
            simple.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
            simple.close()
        kinds: tuple[tuple[str, ...], ...] = (
            (),
            ("--consumer",),
            ("--group-type", "classic"),
            ("--group-type", "consumer"),
            ("--protocol", "consumer"),
            ("--share",),
            ("--streams",),
        )
        for kind in kinds:
            pair.same(GROUPS, *BROKERS, "--list", *kind)
        listed = pair.same(GROUPS, *BROKERS, "--list", "--group-type", "consumer")
        assert listed.count(f"{topic}-consumer-") == 3
    finally:
        for member in members:
            member.close()


def test_metadata_shell_reads_the_log_of_each_node(pair: Pair, topic: str) -> None:
    pair.same(TOPICS, *BROKERS, "--create", "--topic", topic, "--replica-assignment", THREE_WAYS)
    log = "{metadata1}/00000000000000000000.log"
    locked = pair.same(SHELL, "--snapshot", log, "ls", "image")
    assert "Unable to lock" in locked  # ours is held in the way Kafka's is
    for node_id in (1, 2, 3):
        for cluster in pair.both:
            names = _names(cluster)
            _await_followed(cluster)
            folder = Path(names["copies"])
            shutil.rmtree(folder, ignore_errors=True)
            shutil.copytree(names[f"metadata{node_id}"], folder)
        copy = ("--snapshot", "{copies}/00000000000000000000.log")
        # The shell does not wait until it has loaded all: it is run until it has come so far.
        for word, *command in (
            ("topics", "ls", "image"),
            ("controllers/3", "find", "image/cluster"),
            ("finalized_transaction.version", "find", "image/features"),
            (f"{topic}/2", "find", f"image/topics/byName/{topic}"),
            ("leader=1", "cat", f"image/topics/byName/{topic}/0"),
            ("leader=3", "cat", f"image/topics/byName/{topic}/2"),
            ("4.3-IV0", "cat", "image/features/metadataVersion"),
        ):
            printed = pair.same(SHELL, *copy, *command, settled=_shows(word))
            if word == "leader=3":
                assert "replicas=[3, 1, 2], directories=[{directory3}, " in printed


def _shows(word: str) -> Callable[[Outcome], bool]:
    return lambda outcome: word in outcome.printed


def _await_followed(cluster: Cluster) -> None:
    """Waits until all voters have what is committed now."""
    with Admin(cluster.bootstrap) as admin:
        committed = admin.describe_quorum().high_watermark
        wait_until(
            lambda: all(each.log_end >= committed for each in admin.describe_quorum().voters),
            "the voters have what is committed",
        )


def test_replica_verification_tool_finds_all_replicas_equal(pair: Pair, topic: str) -> None:
    pair.same(TOPICS, *BROKERS, "--create", "--topic", topic, "--replica-assignment", THREE_WAYS)
    for partition in range(3):
        values = [b"%d " % number * 20 for number in range(1000)]
        produce(pair.subject.bootstrap, topic, "lz4", values, partition)
    process = subprocess.Popen(
        kafka_jars.java_command(
            pair.jars,
            REPLICAS,
            *("--broker-list", pair.subject.bootstrap, "--topics-include", topic),
            *("--time", "-2", "--report-interval-ms", "500"),
            options=("-Xmx256M", "-XX:TieredStopAtLevel=1"),
        ),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        printed = []
        for line in process.stdout:
            printed.append(line)
            if re.search(r"max lag is 0 for partition .* at offset 1000 among 3 partitions", line):
                break
        else:
            raise AssertionError("".join(printed))
        assert not re.search("inconsistent|mismatch|doesn't match", "".join(printed)), printed
    finally:
        process.kill()
        process.wait()


def test_end_to_end_latency_runs_through(pair: Pair, topic: str) -> None:
    pair.same(TOPICS, *BROKERS, "--create", "--topic", topic, "--replica-assignment", "1:2:3")
    names = _names(pair.subject)
    aimed = [each.format_map(names) for each in BROKERS]
    options = ("--topic", topic, "--num-records", "500", "--producer-acks", "all")
    printed = run_java(pair.jars, LATENCY, *aimed, *options, "--record-size", "100").stdout
    assert re.search(r"Avg latency: \d+\.\d+ ms", printed), printed
    assert re.search(r"Percentiles: 50th = \d+, 99th = \d+, 99.9th = \d+", printed), printed


class Tool:
    """One of Kafka's verifiable clients, which print what they do as one JSON object a line."""

    def __init__(self, jars: Path, main: str, *arguments: str) -> None:
        options = ("-Xmx128M", "-XX:TieredStopAtLevel=1")
        command = kafka_jars.java_command(jars, main, *arguments, options=options)
        self.said: list[dict[str, object]] = []
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.said.append(json.loads(line))

    def named(self, name: str) -> list[dict[str, object]]:
        return [each for each in self.said if each.get("name") == name]

    def finish(self) -> None:
        self._process.terminate()
        self._process.wait(60)
        self._reader.join(60)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_verifiable_clients_lose_and_double_nothing_while_nodes_die(
    pair: Pair, topic: str, tmp_path: Path, protocol: str
) -> None:
    """The leader, the group's coordinator and the active controller are killed, in turn."""
    cluster = pair.subject
    pair.same(TOPICS, *BROKERS, "--create", "--topic", topic, "--replica-assignment", THREE_WAYS)
    where = ("--bootstrap-server", cluster.bootstrap, "--topic", topic)
    # By itself this tool sends each record once, and a killed leader then costs records.
    retrying = tmp_path / "retrying.properties"
    retrying.write_text("retries=2147483647\nenable.idempotence=true\n")
    producer = Tool(
        pair.jars,
        PRODUCER,
        *(*where, "--acks", "-1", "--throughput", "200", "--value-prefix", "7"),
        *("--command-config", str(retrying)),
    )
    consumer = Tool(
        pair.jars,
        CONSUMER,
        *(*where, "--group-id", topic, "--group-protocol", protocol),
        *("--reset-policy", "earliest", "--verbose"),
    )
    try:
        for victim in (_leader, _coordinator, _controller):
            _await_more(producer, consumer)
            node_id = victim(cluster, topic)
            cluster.kill(node_id)
            _await_more(producer, consumer)
            cluster.restart(node_id)
            await_in_sync(cluster, topic, 1, 2, 3)
        producer.finish()
        history = _history(cluster, topic, producer)
        wanted = {
            (place[1], offset) for place, records in history.final.items() for offset, _ in records
        }
        wait_until(lambda: wanted <= set(_consumed(consumer)), "everything is consumed")
        assert producer.named("producer_send_error") == []
        assert anomalies(history) == {}
    finally:
        producer.finish()
        consumer.finish()


def _leader(cluster: Cluster, topic: str) -> int:
    leader = leader_of(cluster, topic)
    assert leader is not None
    return leader


def _coordinator(cluster: Cluster, topic: str) -> int:
    with Admin(cluster.bootstrap) as admin:
        address = admin.describe_group(topic).coordinator
    return next(each for each, node in cluster.nodes.items() if node.bootstrap == address)


def _controller(cluster: Cluster, _: str) -> int:
    with Admin(cluster.bootstrap) as admin:
        return admin.describe_quorum().leader_id


def _await_more(producer: Tool, consumer: Tool) -> None:
    sent = len(producer.named("producer_send_success")) + 300
    read = len(_consumed(consumer)) + 300
    wait_until(lambda: len(producer.named("producer_send_success")) >= sent, "more is sent")
    wait_until(lambda: len(_consumed(consumer)) >= read, "more is read")


def _consumed(consumer: Tool) -> list[tuple[int, int]]:
    read = consumer.named("record_data")
    return [(int(str(each["partition"])), int(str(each["offset"]))) for each in read]


def _history(cluster: Cluster, topic: str, producer: Tool) -> History:
    from conformance.records import read_all

    history = History()
    for said in producer.named("producer_send_success"):
        place = (topic, int(str(said["partition"])))
        value = _as_sent(str(said["value"]))
        history.acknowledged[value] = (place, int(str(said["offset"])))
    for seen in read_all(cluster.bootstrap, topic):
        records = history.final.setdefault((topic, seen.partition), [])
        records.append((seen.offset, _as_sent((seen.value or b"").decode())))
    return history


def _as_sent(text: str) -> str:
    """The tool writes `7.number`; the checker reads `sender:number`."""
    return text.replace("7.", "java:", 1)
