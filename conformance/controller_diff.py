"""`python -m conformance.controller_diff`: the same requests to two controllers, and what differs.

    python -m conformance.controller_diff                          Kafka's node beside ours
    python -m conformance.controller_diff --subject kafka          proves the judge
    python -m conformance.controller_diff --nodes 3 --voters initial
    python -m conformance.controller_diff --reference 127.0.0.1:19093 --subject 127.0.0.1:29093

Each scenario of `controller_scenarios` is run against the active controller of both sides, in every
version that both advertise; the answers are compared after what may differ is taken out of them
(`normalized`). The exit code is 1 if there was a difference.
"""

from __future__ import annotations

import argparse
import json
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conformance.controller_scenarios import SCENARIOS, Scenario
from harness import kafka_jars
from harness.clusters import COMBINED, Cluster, Voters
from harness.nodes import end_nodes_when_terminated
from harness.wire import Closed, Wire, until
from headwater.errors import ErrorCode
from headwater.model import METADATA_TOPIC, ZERO_ID
from headwater.protocol import Message
from headwater.protocol.errors import EncodeError
from headwater.protocol.messages.api_versions import ApiVersionsRequest
from headwater.protocol.messages.describe_cluster import DescribeClusterRequest, EndpointType
from headwater.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
)
from headwater.protocol.schema import fields_of

_ASK_SECONDS = 8.0
_ATTEMPTS = 2

# Below this, the epoch before the current one is none.
_EPOCH_MIN = 3

# Left out: texts, times, addresses and what each cluster counts by itself.
_DROPPED = frozenset({"throttle_time_ms", "host", "port", "cluster_id", "documentation"})
# Only whether there is one.
_PRESENCE = frozenset({"error_message"})
# Only whether it is negative, zero or positive.
_SIGN = frozenset(
    {
        "high_watermark",
        "log_end_offset",
        "last_fetch_timestamp",
        "last_caught_up_timestamp",
        "last_stable_offset",
        "log_start_offset",
        "broker_epoch",
        "end_offset",
        "position",
        "size",
        "finalized_features_epoch",
        "producer_id_start",
        "records",
        "unaligned_records",
        "response_data",
        "session_id",
    }
)
# Numbers of nodes: who they are, not what they are called.
_NODES = frozenset({"leader_id", "controller_id", "node_id", "replica_id", "broker_id"})

Entry = tuple[str, Any]


@dataclass(slots=True)
class Side:
    """One of the two clusters, as a scenario sees it."""

    name: str
    address: str
    run: str
    broker_port: int
    cluster_id: str = ""
    active: int = -1
    epoch: int = -1
    directory_id: bytes = ZERO_ID
    voters: dict[int, bytes] = field(default_factory=dict)
    features: dict[str, tuple[int, int]] = field(default_factory=dict)
    advertised: dict[int, tuple[int, int]] = field(default_factory=dict)
    transcript: list[Entry] = field(default_factory=list)
    known_ids: dict[bytes, str] = field(default_factory=dict)
    scenario: str = ""
    version: int = 0

    # Finding the active controller

    def find(self) -> None:
        """Learns who leads, and moves to its address."""
        until(self._found, f"an active controller at {self.address}", seconds=30)
        with Wire(self.address, timeout=_ASK_SECONDS) as wire:
            answer = wire.ask(
                ApiVersionsRequest(client_software_name="d", client_software_version="1")
            )
            self.advertised = {
                each.api_key: (each.min_version, each.max_version) for each in answer.api_keys
            }
            self.features = {
                each.name: (each.min_version, each.max_version)
                for each in answer.supported_features
            }

    def _found(self) -> bool:
        try:
            return self._look()
        except (Closed, OSError):
            return False

    def _look(self) -> bool:
        with Wire(self.address, timeout=_ASK_SECONDS) as wire:
            request = DescribeClusterRequest(
                include_cluster_authorized_operations=False, endpoint_type=EndpointType.CONTROLLER
            )
            cluster = wire.ask(request, 1)
            at = {each.broker_id: f"{each.host}:{each.port}" for each in cluster.brokers}
            if cluster.error_code or cluster.controller_id not in at:
                return False
            self.cluster_id, self.address = cluster.cluster_id, at[cluster.controller_id]
        with Wire(self.address, timeout=_ASK_SECONDS) as wire:
            answer = wire.ask(DESCRIBE_QUORUM, 2)
            if answer.error_code:
                return False
            (about,) = answer.topics[0].partitions
        if about.error_code or about.leader_id < 0:
            return False
        self.active, self.epoch = about.leader_id, about.leader_epoch
        self.voters = {each.replica_id: each.replica_directory_id for each in about.current_voters}
        self.directory_id = self.voters.get(self.active, ZERO_ID)
        return True

    # What scenarios use

    @property
    def topic(self) -> str:
        """A name for this scenario in this version."""
        return f"diff-{self.run}-{self.scenario.replace('_', '-')}-v{self.version}"

    def ask(self, label: str, request: Message, version: int | None = None) -> Any:
        """Sends a request and notes what came back, or how it ended."""
        used = self.version if version is None else version
        answer: Any = None
        try:
            with Wire(self.address, timeout=_ASK_SECONDS) as wire:
                answer = wire.ask(request, used)
        except EncodeError:
            self.note(label, "this version cannot express it")
        except Closed:
            self.note(label, "connection closed")
        except TimeoutError:
            self.note(label, "no answer")
        else:
            self.note(label, self.normalized(answer))
        return answer

    def quiet(self, request: Message, version: int | None = None) -> Any:
        """Sends a request whose answer is not compared."""
        with Wire(self.address, timeout=_ASK_SECONDS) as wire:
            return wire.ask(request, version)

    def raw(self, label: str, frame: bytes) -> None:
        """Sends bytes, and notes whether the connection survives."""
        with Wire(self.address, timeout=_ASK_SECONDS) as wire:
            wire.socket.sendall(frame)
            try:
                wire.read(4)
            except Closed:
                self.note(label, "connection closed")
            except TimeoutError:
                self.note(label, "no answer")
            else:
                self.note(label, "an answer")

    def note(self, label: str, what: Any) -> None:
        self.transcript.append((label, what))

    # Taking out what may differ

    def normalized(self, value: Any, name: str = "") -> Any:
        match value:
            case Message():
                return {
                    each.name: self.normalized(getattr(value, each.name), each.name)
                    for each in fields_of(type(value))
                    if each.name not in _DROPPED and each.exists_in(self.version)
                }
            case list() | tuple():
                items = [self.normalized(each, name) for each in value]
                return sorted(items, key=lambda item: json.dumps(item, default=str))
            case int() if name.endswith("error_code") and not isinstance(value, bool):
                return ErrorCode(value).name if value in _KNOWN_CODES else value
            case _ if name in _PRESENCE:
                return bool(value)
            case _ if name in _SIGN:
                return _sign(value)
            case int() if name in _NODES:
                return self._node(value)
            case int() if name == "leader_epoch" or name == "epoch":
                # Zero is no epoch that a scenario asks about: see _EPOCH_MIN.
                return value if value <= 0 else f"epoch{value - self.epoch:+d}"
            case str() if name == "resource_name" and value == str(self.active):
                return "active"
            case bytes() if len(value) == 16:
                return self._id(value)
            case bytes() | memoryview():
                return f"{len(value)} bytes"
            case _:
                return value

    def _node(self, number: int) -> Any:
        if number == self.active:
            return "active"
        return "other voter" if number in self.voters else number

    def _id(self, raw: bytes) -> str:
        if raw == ZERO_ID:
            return "zero"
        if raw in self.voters.values():
            return "directory of a voter"
        return self.known_ids.setdefault(raw, f"id {len(self.known_ids) + 1}")


def _sign(value: Any) -> str:
    if value is None:
        return "null"
    number = value if isinstance(value, int | float) else len(value)
    return "negative" if number < 0 else ("zero" if number == 0 else "positive")


_KNOWN_CODES = frozenset(int(each) for each in ErrorCode)

DESCRIBE_QUORUM = DescribeQuorumRequest(
    topics=[
        DescribeQuorumRequestTopicData(
            topic_name=METADATA_TOPIC,
            partitions=[DescribeQuorumRequestPartitionData(partition_index=0)],
        )
    ]
)


# Running and comparing


def run_scenario(scenario: Scenario, side: Side, version: int) -> list[Entry]:
    side.scenario, side.version = scenario.name, version
    try:
        for attempt in range(_ATTEMPTS):
            side.find()  # the one before may have moved the leader
            side.transcript, side.known_ids = [], {}
            try:
                scenario.play(side, version)
                break
            except AssertionError:  # what a scenario needs is not there: a busy machine, once
                if attempt == _ATTEMPTS - 1:
                    raise
    except Exception as problem:  # an answer of another shape ends the scenario, not the run
        where = traceback.extract_tb(problem.__traceback__)[-1]
        side.note("abandoned", f"{type(problem).__name__} {problem} in line {where.lineno}")
    return side.transcript


def differences(ours: Any, theirs: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    match ours, theirs:
        case {"error_code": "UNKNOWN_SERVER_ERROR"}, dict() if _has_error(theirs):
            return  # where Kafka itself stumbles, any error will do
        case dict(), dict():
            for key in ours | theirs:
                here = f"{path}.{key}" if path else str(key)
                yield from differences(ours.get(key), theirs.get(key), here)
        case list(), list() if len(ours) == len(theirs):
            for index, (one, other) in enumerate(zip(ours, theirs, strict=True)):
                yield from differences(one, other, f"{path}[{index}]")
        case _ if ours != theirs:
            yield path, ours, theirs


def _has_error(answer: Any) -> bool:
    match answer:
        case dict():
            code = answer.get("error_code", "NONE")
            return code != "NONE" or any(map(_has_error, answer.values()))
        case list():
            return any(map(_has_error, answer))
    return False


def compare(one: list[Entry], other: list[Entry]) -> Iterator[tuple[str, str, Any, Any]]:
    for index in range(max(len(one), len(other))):
        if index >= min(len(one), len(other)):
            longer = one if index < len(one) else other
            missing = "(nothing)"
            label = longer[index][0]
            yield (
                label,
                "",
                *((longer[index][1], missing) if longer is one else (missing, longer[index][1])),
            )
            continue
        (label, ours), (_, theirs) = one[index], other[index]
        for path, left, right in differences(ours, theirs):
            yield label, path, left, right


def judge(reference: Side, subject: Side, only: str | None, *, show: bool = False) -> int:
    different = 0
    chosen = [each for each in SCENARIOS if not only or only in each.name]
    for scenario in chosen:
        found: dict[tuple[str, str, str, str], list[int]] = {}
        versions = _versions(scenario, reference, subject)
        for version in versions:
            sides = [run_scenario(scenario, side, version) for side in (reference, subject)]
            if show:
                for label, answer in sides[1]:
                    print(f"  v{version} {label}: {json.dumps(answer, default=str)}")
            for label, path, left, right in compare(*sides):
                key = (label, path, _text(left), _text(right))
                found.setdefault(key, []).append(version)
        different += bool(found)
        mark = "≠" if found else "="
        print(f"{mark} {scenario.name} {_span(versions)}", flush=True)
        for (label, path, left, right), where in found.items():
            print(f"    {label} {path} {_span(where)}")
            print(f"      {reference.name}: {left}\n      {subject.name}: {right}", flush=True)
    print(f"\n{len(chosen)} scenarios, {len(chosen) - different} equal, {different} different")
    return 1 if different else 0


def _versions(scenario: Scenario, reference: Side, subject: Side) -> list[int]:
    if scenario.api is None:
        return [0]
    low, high = reference.advertised.get(scenario.api, (0, -1))
    theirs = subject.advertised.get(scenario.api)
    if theirs is None:  # the answers will show it
        return [high] if high >= 0 else []
    return list(range(max(low, theirs[0]), min(high, theirs[1]) + 1))


def _span(versions: Iterable[int]) -> str:
    chosen = sorted(versions)
    if not chosen:
        return "(no version)"
    first, last = chosen[0], chosen[-1]
    if chosen == list(range(first, last + 1)):
        return f"v{first}" if first == last else f"v{first}-{last}"
    return "v" + ",".join(map(str, chosen))


def _text(value: Any) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) < 300 else f"{text[:297]}..."


def main() -> int:
    options = _options()
    end_nodes_when_terminated()
    run = f"{int(time.time()) % 100_000}"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="controller-diff-")))

        # Brokers that scenarios register are there as long as something listens.
        broker = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024))
        broker_port: int = broker.getsockname()[1]

        def side(name: str, given: str) -> Side:
            address = given
            if ":" not in given:
                jars = kafka_jars.jars(kafka_jars.kafka_version()) if given == "kafka" else None
                cluster = Cluster(
                    folder / name, jars, Voters[options.voters.upper()], (COMBINED,) * options.nodes
                )
                stack.enter_context(cluster)
                address = cluster.start().controllers[0].controller_address
            found = Side(f"{name} ({given})", address, run, broker_port)
            found.find()
            while found.epoch < _EPOCH_MIN and ":" not in given:
                cluster.stop()
                cluster.restart()
                found.find()
            return found

        reference = side("reference", options.reference)
        subject = side("subject", options.subject)
        return judge(reference, subject, options.only, show=options.show)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m conformance.controller_diff",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = "kafka, headwater, or the HOST:PORT of a controller listener that is up"
    parser.add_argument("--reference", default="kafka", help=kinds)
    parser.add_argument("--subject", default="headwater", help=kinds)
    parser.add_argument("--nodes", type=int, default=1, help="nodes of each cluster (default: 1)")
    parser.add_argument(
        "--voters", choices=[each.name.lower() for each in Voters], default="static"
    )
    parser.add_argument("--only", metavar="NAME", help="scenarios with this in their name")
    parser.add_argument("--show", action="store_true", help="print the subject's answers")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
