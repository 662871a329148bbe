"""The broker inside a test's own process, as users of the package meet it."""

from __future__ import annotations

import socket
import threading
import time
from pathlib import Path

import pytest

from headwater.config import ConfigError
from headwater.testing import EmbeddedBroker
from tests.wire import Wire, batch


def test_it_is_there_in_well_under_a_second_and_gone_at_the_end() -> None:
    started = time.monotonic()
    with EmbeddedBroker() as broker:
        assert time.monotonic() - started < 1
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
