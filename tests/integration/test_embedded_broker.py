"""The broker inside a test's own process, as users of the package meet it."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import socket
import threading
import warnings
from pathlib import Path

import pytest

from harness.wire import Wire, batch
from headwater import ConfigResource, RequestTimedOut, ResourceType, TopicExists
from headwater.blocking import Admin, Consumer, Producer
from headwater.config import ConfigError
from headwater.testing import EmbeddedBroker


def test_it_serves_inside_of_its_block_and_is_gone_behind_it() -> None:
    with EmbeddedBroker() as broker:
        host, _, port = broker.bootstrap.partition(":")
        with Wire(broker.bootstrap) as wire:
            assert wire.is_served()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)), timeout=5)


def test_several_live_side_by_side() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.bootstrap != other.bootstrap
        with Wire(one.bootstrap) as left, Wire(other.bootstrap) as right:
            assert left.describe_cluster().cluster_id != right.describe_cluster().cluster_id
            left.topic_id("here")
            left.produce("here", batch([b"x"]))
            right.topic_id("here")
            assert right.values("here") == []


def test_a_restart_keeps_the_address_and_the_data() -> None:
    with EmbeddedBroker() as broker:
        before = broker.bootstrap
        with Wire(before) as wire:
            wire.topic_id("t")
            wire.produce("t", batch([b"kept"]))
        broker.restart()
        assert broker.bootstrap == before
        with Wire(before) as wire:
            assert wire.values("t") == [b"kept"]


def test_it_can_be_stopped_and_looked_at_and_started_again(tmp_path: Path) -> None:
    broker = EmbeddedBroker(data=tmp_path)
    broker.start()
    with Wire(broker.bootstrap) as wire:
        wire.topic_id("t")
        wire.produce("t", batch([b"kept"]))
    broker.stop()
    broker.stop()
    assert (tmp_path / "t-0" / "00000000000000000000.log").stat().st_size > 0
    broker.start()
    with Wire(broker.bootstrap) as wire:
        assert wire.values("t") == [b"kept"]
    broker.stop()


def test_a_setting_that_cannot_be_is_raised_where_it_is_started() -> None:
    with pytest.raises(ConfigError, match=r"num\.partitions"):
        EmbeddedBroker({"num.partitions": "none"}).start()


def test_it_leaves_no_thread_behind() -> None:
    before = threading.active_count()
    with EmbeddedBroker() as broker, Wire(broker.bootstrap) as wire:
        wire.topic_id("t")
        wire.produce("t", batch([b"x"]))
    assert threading.active_count() == before


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_what_it_kept_in_memory_is_given_back_at_the_end() -> None:
    before = open_files()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        brokers = [EmbeddedBroker() for _ in range(3)]  # and held, as pytest may hold them
        for broker in brokers:
            with broker, Consumer(broker.bootstrap, group="g", topics=["t"]) as consumer:
                consumer.poll(timeout_ms=1)
                assert open_files() > before
        assert open_files() == before


def test_a_closed_one_begins_again_empty_on_its_port() -> None:
    broker = EmbeddedBroker(topics={"t": 1})
    with broker:
        broker.send("t", "x")
        address = broker.bootstrap
    with broker:
        assert broker.bootstrap == address
        assert broker.records("t") == []


def test_a_group_begins_at_once() -> None:
    """Kafka waits 3 s for other members."""
    with EmbeddedBroker() as broker, Admin(broker.bootstrap) as admin:
        configs = admin.describe_config(ConfigResource(ResourceType.BROKER, "1"))
        assert configs["group.initial.rebalance.delay.ms"].value == "0"


def test_topics_are_there_from_the_start_and_after_a_restart() -> None:
    with EmbeddedBroker(topics={"one": 1, "three": 3}) as broker:
        broker.restart()
        with Admin(broker.bootstrap) as admin:
            topics = {topic.name: topic for topic in admin.list_topics()}
            assert sorted(topics) == ["one", "three"]
            with pytest.raises(TopicExists):
                admin.create_topic("three")
        with Consumer(broker.bootstrap) as consumer:
            assert len(consumer.partitions_for("three")) == 3


def test_what_is_in_a_topic_can_be_put_there_and_looked_at() -> None:
    with EmbeddedBroker(topics={"t": 2}) as broker:
        assert broker.records("t") == []
        assert broker.records("not there") == []
        for number in range(4):
            broker.send("t", f"value {number}", key=f"key {number}", headers={"h": b"1"})
        records = broker.records("t", 4)
        assert sorted(record.value or b"" for record in records) == [
            b"value 0",
            b"value 1",
            b"value 2",
            b"value 3",
        ]
        assert records == broker.records("t", 2)  # at least so many: one too many shows
        with pytest.raises(TimeoutError, match=r"[0-4] of 5 records of t in 50 ms"):
            broker.records("t", 5, timeout_ms=50)


def test_records_of_a_topic_that_does_not_exist_yet_are_waited_for() -> None:
    with EmbeddedBroker() as broker:
        with pytest.raises(TimeoutError, match="0 of 1 records of later in 50 ms"):
            broker.records("later", 1, timeout_ms=50)
        found: list[bytes | None] = []
        reader = threading.Thread(
            target=lambda: found.extend(record.value for record in broker.records("later", 1))
        )
        reader.start()
        broker.send("later", "tea")
        reader.join()
        assert found == [b"tea"]


def test_a_paused_broker_answers_nobody_and_then_goes_on() -> None:
    with EmbeddedBroker(topics={"t": 1}) as broker:
        with Producer(broker.bootstrap) as producer:
            producer.send("t", "before")
            broker.pause()
            producer.submit("t", "meanwhile")
            with pytest.raises(RequestTimedOut):
                producer.flush(timeout_ms=50)
            broker.resume()
            producer.flush()
        assert [record.value for record in broker.records("t")] == [b"before", b"meanwhile"]
        broker.pause()  # and its end is not held up by that


def test_connections_can_be_cut() -> None:
    with EmbeddedBroker() as broker, Wire(broker.bootstrap) as wire:
        assert wire.is_served()
        assert broker.drop_connections() == 1
        assert wire.socket.recv(1) == b""
        assert broker.drop_connections() == 0
        with Wire(broker.bootstrap) as another:
            assert another.is_served()


def test_a_child_that_was_forked_does_not_keep_connections_and_port() -> None:
    with EmbeddedBroker() as broker, Wire(broker.bootstrap) as wire:
        assert wire.is_served()
        fork = multiprocessing.get_context("fork")
        may_end = fork.Event()
        child = fork.Process(target=may_end.wait)
        child.start()
        try:
            broker.stop()
            assert wire.socket.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                Wire(broker.bootstrap)
            broker.start()
            with Wire(broker.bootstrap) as again:
                assert again.is_served()
        finally:
            may_end.set()
            child.join()


def test_a_node_that_cannot_go_on_is_seen_to_have_ended(tmp_path: Path) -> None:
    with EmbeddedBroker(data=tmp_path / "data") as broker:
        background = broker._running()
        background._call(lambda: background._started.result()._fail("the disk is gone"))
        background._thread.join(10)
        assert not broker.is_running
        assert "the node ends: the disk is gone" in "".join(broker.log_lines)
        broker.restart()
        assert broker.is_running


class NoLoops(asyncio.DefaultEventLoopPolicy):
    """Stands for a policy with loops of another make."""

    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        raise AssertionError("the broker has a loop of its own")


def test_its_loop_is_the_same_whatever_the_policy_of_the_tests() -> None:
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(NoLoops())
    try:
        with EmbeddedBroker() as broker, Wire(broker.bootstrap) as wire:
            assert wire.is_served()
    finally:
        asyncio.set_event_loop_policy(before)
