"""Limits on connections: of all listeners, of one, and how quickly they come."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from headwater.io import Host
from headwater.io.memory import MemoryDisk
from headwater.net import NetLimits, Server
from headwater.net.pace import Pace
from tests.support.pipes import Pipe
from tests.unit.test_net_fairness import Clock


def test_nodes_that_connect_at_once_take_a_place_each() -> None:
    host = Host(Clock(), Random(1), MemoryDisk(), None, None)  # type: ignore[arg-type]
    limits = NetLimits(connections_max=3, reserved_listener="NODES")

    async def scene() -> None:
        server = Server(host, limits, lambda line: None)

        def connect(listener: str) -> Pipe:
            pipe: Any = Pipe()
            server._accept(pipe, listener, lambda connection, frame: ())
            return pipe  # type: ignore[no-any-return]

        users = [connect("USERS") for _ in range(3)]
        refused = connect("USERS")
        nodes = [connect("NODES") for _ in range(2)]
        await asyncio.sleep(0)
        assert [each.ended for each in users] == [True, True, False]
        assert refused.ended
        nodes += [connect("NODES"), connect("NODES")]
        await asyncio.sleep(0)
        assert users[2].ended
        assert [each.ended for each in nodes] == [False, False, False, True]

    asyncio.run(scene())


def test_a_burst_of_one_second_may_come_at_once() -> None:
    pace = Pace()
    assert [pace.count(10.0, 5) for _ in range(4)] == [0, 0, 0, 0]
    assert pace.count(10.0, 5) == pytest.approx(0.2)
    assert pace.count(10.2, 5) == pytest.approx(0.2)
    assert pace.count(20.0, 5) == 0


def test_the_pace_is_kept_over_time() -> None:
    pace, now = Pace(), 0.0
    for _ in range(1000):
        now += pace.count(now, 50)
    assert 1000 / now == pytest.approx(50, rel=0.06)
