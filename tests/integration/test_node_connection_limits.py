"""Limits on connections, for all listeners and for one, set while the node runs."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack

from harness.wire import Closed, Wire, until
from headwater import Admin
from headwater.client.admin.configs import broker_config
from headwater.testing import EmbeddedBroker

TWO = {
    "listeners": "PLAINTEXT://127.0.0.1:0,USERS://127.0.0.1:0",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,USERS:PLAINTEXT",
}


def is_served(wire: Wire) -> bool:
    try:
        return wire.is_served()
    except Closed:
        return False


def test_a_listener_has_a_limit_of_its_own_that_can_change() -> None:
    with EmbeddedBroker(TWO) as broker, ExitStack() as open_:

        def served(listener: str) -> bool:
            return is_served(open_.enter_context(Wire(broker.addresses[listener])))

        async def limit(value: str) -> None:
            async with Admin(broker.addresses["PLAINTEXT"]) as admin:
                await admin.alter_config(
                    broker_config(1), {"listener.name.users.max.connections": value}
                )

        assert [served("USERS") for _ in range(3)] == [True] * 3
        asyncio.run(limit("3"))
        assert until(lambda: not served("USERS"), "the limit")
        assert served("PLAINTEXT")
        assert any("for listener USERS" in line for line in broker.log_lines)


def test_a_listener_bounds_the_connections_from_one_address() -> None:
    settings = TWO | {"listener.name.users.max.connections.per.ip": "2"}
    with EmbeddedBroker(settings) as broker, ExitStack() as open_:

        def served(listener: str) -> bool:
            return is_served(open_.enter_context(Wire(broker.addresses[listener])))

        assert [served("USERS") for _ in range(3)] == [True, True, False]
        assert [served("PLAINTEXT") for _ in range(3)] == [True] * 3

        async def allow_more() -> None:
            async with Admin(broker.addresses["PLAINTEXT"]) as admin:
                key = "listener.name.users.max.connections.per.ip"
                await admin.alter_config(broker_config(1), {key: "3"})

        asyncio.run(allow_more())
        until(lambda: served("USERS"), "the new limit")
        assert not served("USERS")
        assert any("is 3 for 127.0.0.1 on listener USERS" in line for line in broker.log_lines)


def test_the_listener_of_the_nodes_keeps_its_places() -> None:
    settings = TWO | {"max.connections": "3"}
    with EmbeddedBroker(settings) as broker, ExitStack() as open_:
        users = [open_.enter_context(Wire(broker.addresses["USERS"])) for _ in range(3)]
        assert all(map(is_served, users))
        assert not is_served(open_.enter_context(Wire(broker.addresses["USERS"])))
        assert is_served(open_.enter_context(Wire(broker.addresses["PLAINTEXT"])))
        assert [is_served(each) for each in users] == [False, True, True]


def test_connections_that_come_too_quickly_wait(headwater_broker: EmbeddedBroker) -> None:
    with EmbeddedBroker({"max.connection.creation.rate": "20"}) as broker, ExitStack() as open_:
        wires = [open_.enter_context(Wire(broker.bootstrap)) for _ in range(30)]
        assert all(map(is_served, wires))  # late, but none is refused
