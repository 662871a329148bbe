"""kill -9 under load: what was acknowledged is there, once, where it was said to be.

The kernel keeps what a process wrote, so nothing may be lost; the idempotent client sends again
what was not acknowledged, so nothing may come twice.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from harness.wire import Closed, Wire, batch, records_of
from headwater.protocol.messages.metadata import MetadataRequest
from tests.support.processes import NodeProcess

PATIENCE = 60.0
PARTITIONS = 3


@pytest.fixture
def node(tmp_path: Path) -> Iterator[NodeProcess]:
    made = NodeProcess(tmp_path)
    yield made
    made.kill()


def everything(node: NodeProcess, topic: str) -> dict[tuple[int, int], bytes]:
    """Every record: (partition, offset) and its value."""
    found: dict[tuple[int, int], bytes] = {}
    with Wire(node.address) as wire:
        for partition in range(PARTITIONS):
            offset = 0
            while True:
                data = wire.fetch(topic, offset, partition=partition)
                assert data.error_code == 0
                records = records_of(data, offset)
                if not records:
                    assert offset == data.high_watermark
                    break
                for record in records:
                    assert record.offset == offset, "a hole in the log"
                    assert record.value is not None
                    found[partition, offset] = record.value
                    offset += 1
    return found


class Load:
    """Numbered messages through one idempotent producer, and what the broker said of each."""

    def __init__(self, address: str, topic: str) -> None:
        self.topic = topic
        self.acknowledged: dict[bytes, tuple[int, int]] = {}
        self.sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 1,
                "batch.num.messages": 50,
                "message.timeout.ms": int(PATIENCE * 1000),
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 10,
                "retry.backoff.max.ms": 100,
                "socket.timeout.ms": 5000,
            }
        )

    def _on_delivery(self, error: Any, message: Any) -> None:
        assert error is None, error
        assert message.value() not in self.acknowledged, "acknowledged twice"
        self.acknowledged[message.value()] = (message.partition(), message.offset())

    def until_acknowledged(self, count: int) -> None:
        """Sends until so many are acknowledged; more are on their way then."""
        deadline = time.monotonic() + PATIENCE
        while len(self.acknowledged) < count:
            assert time.monotonic() < deadline, f"{len(self.acknowledged)} acknowledged"
            if self.sent < len(self.acknowledged) + 2_000:
                self._producer.produce(
                    self.topic,
                    b"%d" % self.sent,
                    partition=self.sent % PARTITIONS,
                    on_delivery=self._on_delivery,
                )
                self.sent += 1
                self._producer.poll(0)
            else:
                self._producer.poll(0.01)

    def finish(self) -> None:
        assert self._producer.flush(PATIENCE) == 0
        assert len(self.acknowledged) == self.sent


def start_with_topic(node: NodeProcess, topic: str) -> None:
    node.start()
    admin = AdminClient({"bootstrap.servers": node.address})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(PATIENCE)


def check(node: NodeProcess, load: Load) -> None:
    found = everything(node, load.topic)
    assert {value: found.get(at) for value, at in load.acknowledged.items()} == {
        value: value for value in load.acknowledged
    }, "something acknowledged is not where it was said to be"
    assert len(found) == load.sent, "something is there twice"
    for partition in range(PARTITIONS):
        numbers = [int(value) for (at, _), value in sorted(found.items()) if at == partition]
        assert numbers == sorted(numbers), "out of order"


def test_nothing_acknowledged_is_lost_or_doubled_over_kills_under_load(node: NodeProcess) -> None:
    start_with_topic(node, "load")
    load = Load(node.address, "load")
    for _ in range(4):
        load.until_acknowledged(len(load.acknowledged) + 1_500)
        node.kill()
        node.start()
    load.until_acknowledged(len(load.acknowledged) + 500)
    load.finish()
    check(node, load)
    assert node.stop() == 0
    node.start()
    check(node, load)
    assert " ERROR " not in node.errors, node.errors


def test_small_segments_and_kills(node: NodeProcess) -> None:
    """Rolls, snapshots of producers and recovery of several segments, all of them interrupted."""
    node.settings["log.segment.bytes"] = str(1024 * 1024)
    node.settings["log.index.interval.bytes"] = "100"
    start_with_topic(node, "rolling")
    load = Load(node.address, "rolling")
    for _ in range(3):
        load.until_acknowledged(len(load.acknowledged) + 4_000)
        node.kill()
        node.start()
    load.finish()
    check(node, load)


def test_kills_while_it_starts_do_no_harm(node: NodeProcess) -> None:
    start_with_topic(node, "patient")
    load = Load(node.address, "patient")
    load.until_acknowledged(5_000)
    load.finish()
    node.kill()
    chance = random.Random(7)
    for _ in range(8):
        node.launch()
        time.sleep(chance.uniform(0.02, 0.3))  # not for luck: any moment will do
        node.kill()
    node.start()
    check(node, load)
    assert " ERROR " not in node.errors, node.errors


def test_a_torn_tail_is_cut_and_said_so(node: NodeProcess) -> None:
    node.start()
    with Wire(node.address) as wire:
        wire.topic_id("torn")
        for number in range(10):
            wire.produce("torn", batch([b"%d" % number]))
    node.kill()
    (segment,) = (node.data / "torn-0").glob("*.log")
    whole = segment.read_bytes()
    segment.write_bytes(whole + whole[:40])
    node.start()
    with Wire(node.address) as wire:
        assert wire.values("torn") == [b"%d" % number for number in range(10)]
        assert wire.produce("torn", batch([b"10"])).base_offset == 10
    assert "torn-0" in node.errors
    assert segment.read_bytes()[: len(whole)] == whole


def test_a_damaged_tail_is_cut_at_the_first_bad_batch(node: NodeProcess) -> None:
    node.start()
    with Wire(node.address) as wire:
        wire.topic_id("damaged")
        for number in range(10):
            wire.produce("damaged", batch([b"value %d" % number]))
    node.kill()
    (segment,) = (node.data / "damaged-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b"value 7")] ^= 1
    segment.write_bytes(content)
    node.start()
    with Wire(node.address) as wire:
        assert wire.values("damaged") == [b"value %d" % number for number in range(7)]
        assert wire.produce("damaged", batch([b"again"])).base_offset == 7
    assert "damaged-0" in node.errors


@pytest.mark.parametrize("suffix", ["index", "timeindex"])
def test_an_index_of_nonsense_is_built_again(node: NodeProcess, suffix: str) -> None:
    node.settings["log.index.interval.bytes"] = "0"
    node.start()
    with Wire(node.address) as wire:
        wire.topic_id("indexed")
        for number in range(50):
            wire.produce("indexed", batch([b"%d" % number]))
    node.kill()
    (index,) = (node.data / "indexed-0").glob(f"*.{suffix}")
    index.write_bytes(b"\x7f" * index.stat().st_size)
    node.start()
    with Wire(node.address) as wire:
        for offset in (0, 1, 25, 49):
            assert wire.values("indexed", offset) == [b"%d" % n for n in range(offset, 50)]
        assert wire.offset_at("indexed", 0).offset == 0
        assert wire.produce("indexed", batch([b"50"])).base_offset == 50


def test_with_a_flush_for_each_message_load_survives_too(node: NodeProcess) -> None:
    node.settings["log.flush.interval.messages"] = "1"
    start_with_topic(node, "flushed")
    load = Load(node.address, "flushed")
    load.until_acknowledged(500)
    node.kill()
    node.start()
    load.finish()
    check(node, load)


def test_what_an_administrator_was_told_is_done_stays_done(node: NodeProcess) -> None:
    """The metadata log is on disk before an answer leaves, so a kill cannot undo it."""
    node.start()
    kept: dict[str, bytes] = {}
    for turn in range(3):
        with Wire(node.address) as wire:
            for number in range(10):
                topic = f"topic-{turn}-{number}"
                kept[topic] = wire.create_topic(topic, partitions=2, retention_ms="123456")
        node.kill()
        node.start()
        with Wire(node.address) as wire:
            assert {topic: wire.topic_id(topic) for topic in kept} == kept
    admin = AdminClient({"bootstrap.servers": node.address})
    resource = ConfigResource(ResourceType.TOPIC, "topic-0-0")
    configs = admin.describe_configs([resource])[resource].result(PATIENCE)
    assert configs["retention.ms"].value == "123456"
    admin.delete_topics(["topic-0-0"])["topic-0-0"].result(PATIENCE)
    node.kill()
    node.start()
    with Wire(node.address) as wire:
        names = {about.name for about in wire.ask(MetadataRequest(topics=None)).topics}
    assert names == set(kept) - {"topic-0-0"}


def test_a_node_that_was_killed_leaves_no_lock_behind(node: NodeProcess) -> None:
    for _ in range(3):
        node.start()
        node.kill()
    node.start()
    assert node.stop() == 0


def test_a_pause_is_survived(node: NodeProcess) -> None:
    """SIGSTOP for longer than clients wait for an answer, then SIGCONT."""
    start_with_topic(node, "paused")
    load = Load(node.address, "paused")
    load.until_acknowledged(1_000)
    with Wire(node.address) as wire:
        node.signal(signal.SIGSTOP)
        wire.socket.settimeout(0.3)
        request, version = wire.produce_request("paused", batch([b"%d" % 10**9]), version=12)
        wire.send(request, version)
        with pytest.raises(TimeoutError):
            wire.receive()
        node.signal(signal.SIGCONT)
        wire.socket.settimeout(PATIENCE)
        answer = wire.receive().responses[0].partition_responses[0]
        assert answer.error_code == 0
    load.until_acknowledged(3_000)
    load.finish()
    found = everything(node, "paused")
    assert len(found) == load.sent + 1
    assert node.stop() == 0


def test_a_stop_under_load_is_clean(node: NodeProcess) -> None:
    start_with_topic(node, "bounced")
    load = Load(node.address, "bounced")
    for _ in range(3):
        load.until_acknowledged(len(load.acknowledged) + 1_000)
        assert node.stop() == 0
        node.start()
    load.finish()
    check(node, load)
    assert node.complaints() == []


def test_a_request_cut_off_by_a_kill_is_whole_or_not_there(node: NodeProcess) -> None:
    """Large batches on many partitions, killed in the middle of writing them."""
    node.start()
    chance = random.Random(11)
    value = chance.randbytes(500_000)
    for turn in range(3):
        with Wire(node.address) as wire:
            wire.topic_id("large")
            before = wire.values("large")
            assert all(found == value for found in before)
            acknowledged = 0
            for _ in range(20):
                request, version = wire.produce_request("large", batch([value]), version=12)
                wire.send(request, version)
            try:
                while acknowledged < 5 + turn * 5:
                    assert wire.receive().responses[0].partition_responses[0].error_code == 0
                    acknowledged += 1
                node.kill()
            except (Closed, OSError):
                pass
        node.start()
        with Wire(node.address) as wire:
            after = wire.values("large")
        assert len(after) >= len(before) + acknowledged
        assert all(found == value for found in after)
