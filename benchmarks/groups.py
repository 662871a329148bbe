"""Groups: time to form and to recover, and the cost of heartbeats, commits and loading."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.clients import create_topic
from benchmarks.rows import Measurement, Session, at_least, at_most
from benchmarks.wire import NotReady, Wire, pipelined
from harness import wire as plain
from harness.group_storm import STORM_SETTINGS, read_by, start_member
from harness.nodes import Flavour, Node
from headwater.blocking import Admin
from headwater.cli.group_describe import find_group
from headwater.protocol import Message
from headwater.protocol.frame import encode_request
from headwater.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatRequestTopicPartitions,
)
from headwater.protocol.messages.heartbeat import HeartbeatRequest
from headwater.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from headwater.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from headwater.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
)
from headwater.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

_PATIENCE = 120.0
_MODERN = "consumer"
_PROTOCOLS = ("classic", _MODERN)
_SUBSCRIPTION = b"\x00\x00\x00\x00\x00\x01\x00\x05beats\xff\xff\xff\xff"
_OFFSETS_BY_NAME = 9


def groups(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Uses a node with a session timeout of six seconds for both protocols."""
    node = session.fresh_node(flavour)
    node.settings.update(STORM_SETTINGS)
    node.settings["group.consumer.session.timeout.ms"] = "6000"
    node.start()
    for protocol in _PROTOCOLS:
        yield _join(session, node, protocol)
    for protocol in _PROTOCOLS:
        yield _fail_over(session, node, protocol)
    create_topic(node, "beats", 16)
    for protocol in _PROTOCOLS:
        yield _heartbeats(session, node, protocol)
    yield _commits(session, node)
    node.remove()
    yield from _load(session, flavour)


def _join(session: Session, node: Node, protocol: str) -> Measurement:
    """Starts librdkafka consumers in one process and waits until all have partitions."""
    from confluent_kafka import Consumer

    count = session.size(50, 20)
    topic = f"join-{protocol}"
    create_topic(node, topic, 2 * count)
    config = {"bootstrap.servers": node.bootstrap, "group.id": topic, "log_level": 2}
    config |= {"group.protocol": protocol}
    started = time.monotonic()
    consumers = [Consumer(config) for _ in range(count)]
    for consumer in consumers:
        consumer.subscribe([topic])
    waiting = list(consumers)
    while waiting:
        for consumer in consumers:
            consumer.poll(0)
        waiting = [each for each in waiting if len(each.assignment()) != 2]
        assert time.monotonic() - started < _PATIENCE, f"{len(waiting)} of {count} did not join"
        time.sleep(0.005)
    elapsed = time.monotonic() - started
    for consumer in consumers:
        consumer.close()
    what = f"{count} consumers join and have their partitions, {protocol}"
    return Measurement(f"groups.join.{protocol}", what, "s", (elapsed,), at_most(1.1))


def _fail_over(session: Session, node: Node, protocol: str) -> Measurement:
    """Kills one of two members and waits until the other one reads from its partitions."""
    client = "librdkafka" if protocol == "classic" else "librdkafka-consumer"
    times = [
        _killed_until_read(node, client, f"fail-{protocol}-{number}")
        for number in range(session.size(3, 1))
    ]
    what = f"from killing a member (session 6 s) until its partitions are read again, {protocol}"
    return Measurement(f"groups.failover.{protocol}", what, "s", tuple(times), at_most(1.1))


def _killed_until_read(node: Node, client: str, topic: str) -> float:
    from confluent_kafka import Producer

    create_topic(node, topic, 4)
    folder = node.folder / topic
    folder.mkdir()
    victim, survivor = (
        start_member(client, node.bootstrap, topic, topic, name, folder)
        for name in ("victim", "survivor")
    )
    producer = Producer({"bootstrap.servers": node.bootstrap, "linger.ms": 0, "log_level": 2})
    try:
        lost = _wait(lambda: _owned(node, topic, "victim"), "two members")
        victim.process.kill()
        killed = time.monotonic()

        def read_again() -> bool:
            for partition in lost:
                producer.produce(topic, f"from {partition}", partition=partition)
            producer.flush(10)
            wanted = {f"from {partition}" for partition in lost}
            return not wanted.isdisjoint(read_by(survivor))

        _wait(read_again, "the partitions to be read again", 0.01)
        return time.monotonic() - killed
    finally:
        for member in (victim, survivor):
            member.process.kill()
            member.process.wait()


def _owned(node: Node, group_id: str, client_id: str) -> list[int] | None:
    """Waits for a stable group of two that share four partitions; returns those of one member."""
    with Admin(node.bootstrap) as admin:
        group = find_group(admin, group_id)
    if group is None or group.state != "Stable" or len(group.members) != 2:
        return None
    (member,) = [each for each in group.members if each.client_id == client_id]
    return [each.partition for each in member.assigned] if len(member.assigned) == 2 else None


def _heartbeats(session: Session, node: Node, protocol: str) -> Measurement:
    """Sends pipelined heartbeats of one member over one connection."""
    request, version = _modern_member(node) if protocol == _MODERN else _classic_member(node)
    seconds = session.size(4, 2)
    frame = _frame(request, version)
    size = _check_heartbeat(node, frame)
    pipelined(node.port, [frame], [size], seconds=seconds, window=32)  # warm
    costs = []
    for _ in range(session.size(3, 1)):
        before = node.cpu_seconds()
        started = time.monotonic()
        rate = pipelined(node.port, [frame], [size], seconds=seconds, window=32)
        count = rate * (time.monotonic() - started)
        costs.append((node.cpu_seconds() - before) / count * 1e6)
    _check_heartbeat(node, frame)
    what = f"broker CPU for a heartbeat, {protocol}"
    return Measurement(f"groups.heartbeat.{protocol}", what, "µs", tuple(costs))


def _classic_member(node: Node) -> tuple[Message, int]:
    group_id, protocol = (
        "beats-classic",
        JoinGroupRequestProtocol(name="range", metadata=_SUBSCRIPTION),
    )
    with plain.Wire(node.bootstrap) as coordinator:
        coordinator.await_coordinator(group_id)
        member_id = ""

        def join() -> Any:
            nonlocal member_id
            request = JoinGroupRequest(
                group_id=group_id,
                session_timeout_ms=300_000,
                rebalance_timeout_ms=60_000,
                member_id=member_id,
                protocol_type="consumer",
                protocols=[protocol],
            )
            answer = coordinator.ask(request)
            member_id = answer.member_id or member_id
            return None if answer.error_code else answer

        joined = _wait(join, "a place in the group")
        sync = SyncGroupRequest(
            group_id=group_id,
            generation_id=joined.generation_id,
            member_id=member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=member_id, assignment=b"\x00\x00")],
        )
        assert coordinator.ask(sync).error_code == 0
    request = HeartbeatRequest(
        group_id=group_id, generation_id=joined.generation_id, member_id=member_id
    )
    return request, 4


def _modern_member(node: Node) -> tuple[Message, int]:
    group_id, member_id = "beats-consumer", "AAAAAAAAAAAAAAAAAAAAAA"
    with plain.Wire(node.bootstrap) as coordinator:
        coordinator.await_coordinator(group_id)
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["beats"],
            topic_partitions=[],
        )
        joined = _wait(lambda: _good(coordinator.ask(request)), "a place in the group")
        # The member reports its assignment once; later heartbeats are empty.
        confirm = ConsumerGroupHeartbeatRequest(
            group_id=group_id, member_id=member_id, member_epoch=joined.member_epoch
        )
        given = joined.assignment
        if given is not None:
            confirm.topic_partitions = [
                ConsumerGroupHeartbeatRequestTopicPartitions(
                    topic_id=each.topic_id, partitions=each.partitions
                )
                for each in given.topic_partitions
            ]
        answer = _good(coordinator.ask(confirm))
        assert answer is not None
    quiet = ConsumerGroupHeartbeatRequest(
        group_id=group_id, member_id=member_id, member_epoch=answer.member_epoch
    )
    return quiet, 0


def _good(answer: Any) -> Any:
    return None if answer.error_code else answer


def _commits(session: Session, node: Node) -> Measurement:
    """Commits one partition per request, by four groups with a connection each."""
    frames = []
    for number in range(4):
        group_id = f"commits-{number}"
        with plain.Wire(node.bootstrap) as coordinator:
            request = _commit(group_id, "beats", range(number, number + 1), 7)
            coordinator.await_coordinator(group_id)
            _until_committed(coordinator, request)
        frames.append(_frame(request, _OFFSETS_BY_NAME))
    sizes = [_answer_size(node, frame) for frame in frames]
    seconds = session.size(5, 2)
    pipelined(node.port, frames, sizes, seconds=seconds, window=16)  # warm
    rates = [
        pipelined(node.port, frames, sizes, seconds=seconds, window=16)
        for _ in range(session.size(3, 1))
    ]
    what = "offset commits, 4 groups, 16 in flight each"
    return Measurement(
        "groups.commits", what, "commits/s", tuple(rates), at_least(1.0), more_is_better=True
    )


def _commit(group_id: str, topic: str, partitions: range, offset: int) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group_id,
        member_id="",
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=each, committed_offset=offset, committed_metadata=""
                    )
                    for each in partitions
                ],
            )
        ],
    )


def _until_committed(coordinator: plain.Wire, request: OffsetCommitRequest) -> None:
    def committed() -> bool:
        (topic,) = coordinator.ask(request, _OFFSETS_BY_NAME).topics
        return not any(each.error_code for each in topic.partitions)

    _wait(committed, "a coordinator")


def _load(session: Session, flavour: Flavour) -> Iterator[Measurement]:
    """Restarts a node whose committed offsets are all in one partition."""
    node = session.fresh_node(flavour)
    node.settings["offsets.topic.num.partitions"] = "1"
    node.start()
    create_topic(node, "many", 100)
    count = session.size(1000, 300)
    with plain.Wire(node.bootstrap) as coordinator:
        coordinator.await_coordinator("load-0")
        for number in range(count):
            _until_committed(coordinator, _commit(f"load-{number}", "many", range(100), number))
    node.stop()
    times = []
    for _ in range(session.size(3, 1)):
        started = time.monotonic()
        node.launch()
        _wait(lambda: _serves_offsets(node, f"load-{count - 1}", count - 1), "the offsets", 0.002)
        times.append(time.monotonic() - started)
        node.stop()
    said = re.findall(r"loaded: \d+ records in ([\d.]+) s", node.output.read_text())
    node.remove()
    what = f"from start to offsets served, a shard with {count * 100:,} of them"
    yield Measurement("groups.load", what, "s", tuple(times), at_most(0.5))
    if said:  # only Headwater logs it
        what = "of which the load itself"
        yield Measurement("groups.load.shard", what, "s", tuple(map(float, said)))


def _serves_offsets(node: Node, group_id: str, offset: int) -> bool:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=None)])
    try:
        with plain.Wire(node.bootstrap, timeout=5) as wire:
            (group,) = wire.ask(request, _OFFSETS_BY_NAME).groups
    except (OSError, plain.Closed):
        node.raise_if_ended()
        return False
    if group.error_code or not group.topics:
        return False
    found = {each.committed_offset for each in group.topics[0].partitions}
    assert found == {offset}, f"{found} is not what was committed"
    return True


def _frame(request: Message, version: int) -> bytes:
    return bytes(encode_request(request, version, 7, "bench"))


def _check_heartbeat(node: Node, frame: bytes) -> int:
    """Returns the size of a successful response: correlation id, tags, throttle time, error."""
    answer = _answer(node, frame)
    assert answer[9:11] == b"\x00\x00", f"the heartbeat was refused: {answer.hex()}"
    return len(answer) + 4


def _answer_size(node: Node, frame: bytes) -> int:
    """Returns the length of the response to a frame, which is always the same."""
    return len(_answer(node, frame)) + 4


def _answer(node: Node, frame: bytes) -> bytes:
    wire = Wire.connect(node.port)
    try:
        return wire.ask(frame)
    finally:
        wire.close()


def _wait(look: Callable[[], Any], what: str, every: float = 0.02) -> Any:
    deadline = time.monotonic() + _PATIENCE
    while not (found := look()):
        if time.monotonic() > deadline:
            raise NotReady(f"waited {_PATIENCE:g} s in vain for {what}")
        time.sleep(every)
    return found
