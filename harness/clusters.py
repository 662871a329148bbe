"""Clusters of several nodes as processes: Headwater's and Apache Kafka's, from the same properties.

    with Cluster(folder, jars, voters=Voters.STATIC).start() as cluster:
        cluster.kill(2)
        cluster.restart(2)

Both kinds are prepared by their own `format` and run on the very same server.properties, so that a
cluster of one kind can be stopped and started as the other on the same folders.
"""

from __future__ import annotations

import base64
import subprocess
import time
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Self

from harness import kafka_jars
from harness.nodes import (
    HEADWATER,
    KAFKA_OPTIONS,
    Flavour,
    Node,
    NodeFailed,
    opens,
    run_java,
    said_ready,
)

CLUSTER_ID = "aGVhZHdhdGVyLWNsdXN0ZQ"
COMBINED = "broker,controller"
_START_TIMEOUT = 180.0
_SMALL_OPTIONS = (
    "-Xmx384m",  # with 256 the buffer of the cleaner (128 MB in one piece) may not fit
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Djava.awt.headless=true",
)
_VOTERS_COMMAND = "org.apache.kafka.tools.MetadataQuorumCommand"


class Voters(Enum):
    """The way the nodes learn the voters."""

    STATIC = "controller.quorum.voters"
    INITIAL = "format --initial-controllers"
    # The first controller is formatted with --standalone; the others join, and are added later.
    ADDED = "format --standalone, then add-controller"


@dataclass(slots=True)
class Member:
    """A node of a cluster: its id, its roles, and the id of its metadata directory."""

    node_id: int
    roles: str
    node: Node
    directory_id: str

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def controller_address(self) -> str:
        return f"127.0.0.1:{self.node.controller_port}"

    @property
    def properties(self) -> Path:
        return self.node.folder / "server.properties"


@dataclass(slots=True)
class Cluster:
    """Nodes 1 to N on loopback, over any number of starts, stops and kills."""

    folder: Path
    jars: Path | None = None  # Kafka's; None for Headwater
    voters: Voters = Voters.INITIAL
    roles: tuple[str, ...] = (COMBINED, COMBINED, COMBINED)
    settings: dict[str, str] = field(default_factory=dict)
    # Settings of single nodes, by id; they win over `settings`.
    own_settings: dict[int, dict[str, str]] = field(default_factory=dict)
    # The release whose feature levels the cluster begins with; None for the newest.
    release: str | None = None
    as_shipped: bool = False  # Kafka with the heap and collector of its own scripts, not small ones
    members: dict[int, Member] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node_id, roles in enumerate(self.roles, start=1):
            node = Node(self._flavour(), self.folder / f"node-{node_id}")
            self.members[node_id] = Member(node_id, roles, node, _random_id())

    def _flavour(self) -> Flavour:
        return _HeadwaterMember(self) if self.jars is None else _KafkaMember(self, self.jars)

    def run_as(self, jars: Path | None) -> None:
        """Makes the other kind's nodes of these folders, at the next start: Kafka's with `jars`,
        ours without."""
        self.jars = jars
        for node in self.nodes.values():
            node.flavour = self._flavour()

    def run_node_as(self, node_id: int, jars: Path | None) -> None:
        """Makes one node of the other kind, at its next start."""
        flavour = _HeadwaterMember(self) if jars is None else _KafkaMember(self, jars)
        self.members[node_id].node.flavour = flavour

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    @property
    def nodes(self) -> dict[int, Node]:
        return {node_id: member.node for node_id, member in self.members.items()}

    @property
    def bootstrap(self) -> str:
        return ",".join(each.node.bootstrap for each in self.members.values() if each.is_broker)

    @property
    def controllers(self) -> list[Member]:
        return [each for each in self.members.values() if each.is_controller]

    @property
    def bootstrap_controllers(self) -> str:
        return ",".join(each.controller_address for each in self.controllers)

    # Starting and stopping

    def start(self) -> Self:
        """Starts all nodes at once and waits until each of them serves."""
        for member in self.members.values():
            member.node.launch()
        self.await_ready(self.members)
        if self.voters is Voters.ADDED:
            for member in self.controllers[1:]:
                self.add_voter(member.node_id)
        return self

    def launch(self, *node_ids: int) -> None:
        for node_id in node_ids or self.members:
            self.members[node_id].node.launch()

    def await_ready(self, node_ids: Iterable[int], seconds: float = _START_TIMEOUT) -> None:
        deadline = time.monotonic() + seconds
        for node_id in node_ids:
            node = self.members[node_id].node
            while not node.flavour.is_ready(node):
                node.raise_if_ended()
                if time.monotonic() > deadline:
                    raise NodeFailed(f"node {node_id} did not get ready\n{node.last_output()}")
                time.sleep(0.05)

    def kill(self, *node_ids: int) -> None:
        """kill -9."""
        for node_id in node_ids or self.members:
            self.members[node_id].node.kill()

    def stop(self, *node_ids: int) -> None:
        """Asks nodes to stop, one after the other, or all of them at once: the last of a cluster
        would wait for a quorum that is gone."""
        chosen = [self.members[node_id].node for node_id in node_ids or self.members]
        if not node_ids:
            for node in chosen:
                node.ask_to_stop()
        for node in chosen:
            node.stop()

    def restart(self, *node_ids: int) -> None:
        """Starts nodes that were killed or stopped, and waits until they serve."""
        self.launch(*node_ids)
        self.await_ready(node_ids or self.members)

    def remove(self) -> None:
        for node in self.nodes.values():
            node.remove()

    def move(self, node_id: int, *, port: int) -> None:
        """Gives a node that is down another port for its clients."""
        self.members[node_id].node.port = port

    # Voters

    def add_voter(self, node_id: int) -> None:
        """Has Kafka's own tool make a controller that runs a voter."""
        jars = self.jars or kafka_jars.jars(kafka_jars.kafka_version())
        aimed = ["--bootstrap-controller", self.controllers[0].controller_address]
        aimed += ["--command-config", str(self.members[node_id].properties)]
        run_java(jars, _VOTERS_COMMAND, *aimed, "add-controller")

    # Settings

    def write_properties(self, member: Member) -> Path:
        settings = {
            "process.roles": member.roles,
            "node.id": str(member.node_id),
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": str(member.node.log_folder),
            **self._listeners(member),
            **self._quorum(),
        }
        if member.is_broker:
            settings |= _replication(sum(each.is_broker for each in self.members.values()))
        settings |= self.settings | self.own_settings.get(member.node_id, {})
        member.properties.write_text(_as_properties(settings))
        return member.properties

    def _listeners(self, member: Member) -> dict[str, str]:
        listeners = []
        if member.is_broker:
            listeners.append(f"PLAINTEXT://{member.node.bootstrap}")
        if member.is_controller:
            listeners.append(f"CONTROLLER://{member.controller_address}")
        return {"listeners": ",".join(listeners)}

    def _quorum(self) -> dict[str, str]:
        if self.voters is Voters.STATIC:
            voters = (f"{each.node_id}@{each.controller_address}" for each in self.controllers)
            return {"controller.quorum.voters": ",".join(voters)}
        return {"controller.quorum.bootstrap.servers": self.bootstrap_controllers}

    def format_options(self, member: Member) -> list[str]:
        """The options of kafka-storage and `headwater format`: levels, and who votes at first."""
        release = [] if self.release is None else ["--release-version", self.release]
        return release + self._first_voters(member)

    def _first_voters(self, member: Member) -> list[str]:
        if self.voters is Voters.STATIC:
            return []
        if self.voters is Voters.INITIAL and member.is_controller:
            voters = (
                f"{each.node_id}@{each.controller_address}:{each.directory_id}"
                for each in self.controllers
            )
            return ["--initial-controllers", ",".join(voters)]
        if member is self.controllers[0]:
            return ["--standalone"]
        return ["--no-initial-controllers"]

    def member_of(self, node: Node) -> Member:
        return next(each for each in self.members.values() if each.node is node)


@dataclass(slots=True)
class _KafkaMember:
    """Apache Kafka as one node of several, small unless a benchmark runs: they share few cores."""

    cluster: Cluster
    jars: Path
    name: str = "kafka"

    def prepare(self, node: Node) -> None:
        member = self.cluster.member_of(node)
        properties = self.cluster.write_properties(member)
        if not _is_formatted(node):
            options = self.cluster.format_options(member)
            arguments = ["format", "-t", CLUSTER_ID, "-c", str(properties), *options]
            run_java(self.jars, "kafka.tools.StorageTool", *arguments)

    def command(self, node: Node) -> list[str]:
        options = KAFKA_OPTIONS if self.cluster.as_shipped else _SMALL_OPTIONS
        properties = str(self.cluster.member_of(node).properties)
        return kafka_jars.java_command(self.jars, "kafka.Kafka", properties, options=options)

    def log_folder(self, node: Node) -> Path:
        return node.folder / "data"

    def is_ready(self, node: Node) -> bool:
        """It says nothing that can be relied on; its port opens when it serves."""
        is_broker = self.cluster.member_of(node).is_broker
        return opens(node.port if is_broker else node.controller_port)


@dataclass(slots=True)
class _HeadwaterMember:
    """Our own node as one of several."""

    cluster: Cluster
    name: str = "headwater"

    def prepare(self, node: Node) -> None:
        member = self.cluster.member_of(node)
        properties = self.cluster.write_properties(member)
        if not _is_formatted(node):
            command = [str(HEADWATER), "format", "--config", str(properties)]
            command += ["--cluster-id", CLUSTER_ID, *self.cluster.format_options(member)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise NodeFailed(f"{' '.join(command)}\n{done.stdout}{done.stderr}")

    def command(self, node: Node) -> list[str]:
        properties = self.cluster.member_of(node).properties
        return [str(HEADWATER), "start", "--config", str(properties)]

    def log_folder(self, node: Node) -> Path:
        return node.folder / "data"

    def is_ready(self, node: Node) -> bool:
        return said_ready(node)


def _is_formatted(node: Node) -> bool:
    return (node.log_folder / "meta.properties").exists()


def _replication(brokers: int) -> dict[str, str]:
    """Factors for as many replicas as there are brokers, at most three."""
    factor = min(3, brokers)
    in_sync = str(min(2, factor))
    return {
        "default.replication.factor": str(factor),
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": str(factor),
        "offsets.topic.num.partitions": "6",
        "transaction.state.log.replication.factor": str(factor),
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": str(factor),
        "share.coordinator.state.topic.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "3",
        "group.initial.rebalance.delay.ms": "0",
    }


def _as_properties(settings: Mapping[str, str]) -> str:
    return "".join(f"{key}={value}\n" for key, value in settings.items())


def _random_id() -> str:
    """An id as Kafka writes it: it never begins with a dash, which tools take for an option."""
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
