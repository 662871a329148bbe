"""Requests of one client, followed live."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from harness.wire import Wire, batch, until
from headwater import Admin, blocking
from headwater.broker.request_trace import TRACE_TAG, Filter, Trace, topics_of
from headwater.client.admin import TracedRequest
from headwater.client.errors import AuthorizationError, BrokersUnavailable, UnsupportedVersion
from headwater.errors import ErrorCode
from headwater.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from headwater.protocol.messages.describe_cluster import DescribeClusterRequest
from headwater.protocol.messages.find_coordinator import FindCoordinatorRequest
from headwater.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from headwater.testing import EmbeddedBroker
from tests.conftest import MakeBroker
from tests.support.commands import Command
from tests.support.fake_broker import FakeBroker, story
from tests.support.processes import HEADWATER

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operations" / "trace.md"
LINE = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} node=\d+ [A-Z]\w+ v\d+ client=\S+ User:\w+ "
    r"[0-9.]+:\d+ [A-Z_]+ bytes=\d+/\d+ ms=[0-9.]+\+[0-9.]+\+[0-9.]+( topics=\S+)?( errors=\S+)?"
)


def question(**asked: Any) -> DescribeClusterRequest:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    request.unknown_tags = {TRACE_TAG: json.dumps(asked).encode()}
    return request


class Follower:
    """A connection that traces."""

    def __init__(self, wire: Wire, **asked: Any) -> None:
        self._wire = wire
        self._asked = asked
        assert self.fetch() == []

    def fetch(self, wait_ms: int = 0) -> list[dict[str, Any]]:
        answer = self._wire.ask(question(**self._asked, wait_ms=wait_ms))
        assert answer.error_code == 0, answer.error_message
        found: list[dict[str, Any]] = json.loads(answer.unknown_tags[TRACE_TAG])["requests"]
        return found

    def one(self) -> dict[str, Any]:
        (found,) = until(lambda: self.fetch(wait_ms=1000) or None, "a request")
        return found


@pytest.fixture
def other(shared_broker: EmbeddedBroker) -> Any:
    with Wire(shared_broker.bootstrap, client_id="billing") as other:
        yield other


def test_a_request_is_told_with_its_size_times_and_errors(wire: Wire, other: Wire) -> None:
    wire.create_topic("followed")
    follower = Follower(wire, client_id="billing")
    other.ask(MetadataRequest(topics=[MetadataRequestTopic(name="followed")]))
    seen = follower.one()
    assert (seen["api"], seen["client_id"], seen["topics"]) == ("Metadata", "billing", ["followed"])
    assert seen["principal"] == "User:ANONYMOUS"
    assert seen["peer"].startswith("127.0.0.1:")
    assert seen["listener"] == "PLAINTEXT"
    assert seen["request_bytes"] > 20
    assert seen["response_bytes"] > 20
    assert seen["errors"] == ""
    assert seen["queue_ms"] >= 0
    assert seen["local_ms"] > 0
    other.ask(FindCoordinatorRequest(key_type=9, coordinator_keys=["x"]))
    assert follower.one()["errors"] == "INVALID_REQUEST"


def test_a_wait_is_told_apart_from_the_work(wire: Wire, other: Wire) -> None:
    wire.create_topic("waited-for")
    follower = Follower(wire, client_id="bill*", api="fetch")
    topic_id = wire.topic_id("waited-for")
    other.note_topic_id("waited-for", topic_id)
    other.send(*other.fetch_request("waited-for", max_wait_ms=300, min_bytes=1))
    seen = follower.one()
    other.receive()
    assert seen["wait_ms"] >= 250 > seen["local_ms"]
    assert seen["topics"] == ["waited-for"]  # the request has its id


def test_only_what_was_asked_for_is_told(wire: Wire, other: Wire) -> None:
    wire.create_topic("mine")
    wire.create_topic("others")
    follower = Follower(wire, topic="mine", principal="User:ANONYMOUS")
    for topic in ("others", "mine"):
        other.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]))
    assert follower.one()["topics"] == ["mine"]
    with_another = Follower(wire, principal="User:alice")  # another trace on the same connection
    other.ask(MetadataRequest(topics=[]))
    assert with_another.fetch() == []


def test_a_response_that_is_none_is_told_too(wire: Wire, other: Wire) -> None:
    wire.create_topic("unanswered")
    topic_id = wire.topic_id("unanswered")
    other.note_topic_id("unanswered", topic_id)
    follower = Follower(wire, client_id="billing")
    other.send(*other.produce_request("unanswered", batch([b"x"]), acks=0))
    seen = follower.one()
    assert (seen["api"], seen["response_bytes"]) == ("Produce", 0)


@pytest.mark.parametrize(
    "asked",
    [b"x" * 5000, b"[]", b"{", b"[" * 4000, b'{"api": "Nothing"}', b'{"client_id": 3}',
     b'{"wait_ms": -1}', b'{"wait_ms": "long"}'],
)  # fmt: skip
def test_a_trace_that_makes_no_sense_is_refused(wire: Wire, asked: bytes) -> None:
    request = DescribeClusterRequest(include_cluster_authorized_operations=False)
    request.unknown_tags = {TRACE_TAG: asked}
    assert wire.ask(request).error_code == ErrorCode.INVALID_REQUEST
    assert wire.is_served()


def test_traces_end_with_their_connections_and_are_bounded(make_broker: MakeBroker) -> None:
    broker = make_broker({"headwater.log.slow.ms": "0"})
    with ExitStack() as open_ones:
        first, *others = (open_ones.enter_context(Wire(broker.bootstrap)) for _ in range(17))
        codes = [wire.ask(question()).error_code for wire in (first, *others)]
        assert codes == [0] * 16 + [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        with first:
            pass  # closes it
        until(lambda: others[-1].ask(question()).error_code == 0, "a place")


def test_the_administrator_s_right_is_needed(make_broker: MakeBroker) -> None:
    settings = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
    broker = make_broker(settings)
    with Wire(broker.bootstrap) as wire:
        assert wire.ask(question()).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    (line,) = [each for each in broker.log_lines if "resource=CLUSTER" in each]
    assert "operation=ALTER" in line

    @story
    async def follow() -> None:
        async with Admin(broker.bootstrap) as admin:
            with pytest.raises(AuthorizationError):
                async for _ in admin.trace_requests():
                    pass

    follow()


def test_what_nobody_fetches_is_dropped_and_counted() -> None:
    trace = Trace(Filter())
    for n in range(1005):
        trace.add({"n": n})

    @story
    async def fetch() -> None:
        found, missed = await trace.fetch(0)
        assert (found[0], len(found), missed) == ({"n": 5}, 200, 5)
        assert (await trace.fetch(0))[1] == 0

    fetch()


# The client and the command


@contextmanager
def busy(client: Wire) -> Iterator[None]:
    """Has a client ask all the time."""
    is_over = Event()

    def ask() -> None:
        while not is_over.is_set():
            client.api_versions()

    thread = Thread(target=ask)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_the_admin_follows_a_client(shared_broker: EmbeddedBroker, other: Wire) -> None:
    with blocking.Admin(shared_broker.bootstrap) as admin:
        traced = admin.trace_requests(client_id="billing", api="api_versions")
        with busy(other), closing(traced):
            seen = next(traced)
        assert admin.describe_cluster().nodes  # it is free for other calls
    assert isinstance(seen, TracedRequest)
    assert (seen.api, seen.node, seen.client_id) == ("ApiVersions", 1, "billing")


@story
async def test_a_broker_that_knows_no_traces_is_told_apart() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        with pytest.raises(UnsupportedVersion, match="does not know traces"):
            async for _ in admin.trace_requests():
                pass


def test_topics_are_found_wherever_a_request_has_them() -> None:
    topic = MetadataRequestTopic(name="a")
    group = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestTopics(name="b", partition_indexes=[0])]
    )
    for request, topics in (
        (MetadataRequest(topics=[topic, topic]), ["a", "a"]),
        (OffsetFetchRequest(groups=[group]), ["b"]),
        (ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=0,
                                       subscribed_topic_names=["c", "d"]), ["c", "d"]),
        (FindCoordinatorRequest(key_type=0, coordinator_keys=["x"]), []),
    ):  # fmt: skip
        assert list(topics_of(request, None)) == topics


@story
async def test_a_node_that_is_not_there_is_said() -> None:
    async with FakeBroker() as broker, Admin(broker.bootstrap) as admin:
        with pytest.raises(BrokersUnavailable, match="node 99"):
            async for _ in admin.trace_requests(nodes=frozenset({1, 99})):
                pass


def test_the_command_prints_a_line_for_each_request(
    shared_broker: EmbeddedBroker, other: Wire, capsys: pytest.CaptureFixture[str]
) -> None:
    command = Command("trace", capsys)
    where = ("--bootstrap", shared_broker.bootstrap)
    with busy(other):
        lines = command("--client-id", "billing", "--max", "2", *where).splitlines()
        found = command("--max", "1", "--node", "1", "--output", "json", *where)
    assert len(lines) == 2
    assert " node=1 ApiVersions v4 client=billing User:ANONYMOUS 127.0.0.1:" in lines[0]
    assert " PLAINTEXT bytes=" in lines[0]
    assert json.loads(found)["api"]
    shown = re.findall(r"^20\d\d-.*", PAGE.read_text(), re.MULTILINE)
    assert len(shown) == 2
    for line in (*lines, *shown):
        assert LINE.fullmatch(line), line


def test_ctrl_c_ends_the_command_at_once(shared_broker: EmbeddedBroker, other: Wire) -> None:
    words = [
        str(HEADWATER),
        "trace",
        "--client-id",
        "billing",
        "--bootstrap",
        shared_broker.bootstrap,
    ]
    running = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with busy(other):
        assert running.stdout is not None
        assert "billing" in running.stdout.readline()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=60)
    assert (running.returncode, errors) == (-signal.SIGINT, "")
