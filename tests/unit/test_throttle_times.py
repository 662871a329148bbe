"""Every response has a place for the throttle time, or can do without."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from harness.wire import all_versions
from headwater.broker.controller_role import SERVED as SERVED_BY_CONTROLLERS
from headwater.broker.dispatch import SERVED
from headwater.broker.throttling import Metered, Steps, Throttling
from headwater.config import node_config
from headwater.io.clock import SystemClock
from headwater.protocol import decode, encode
from headwater.protocol.apis import APIS, ApiKey, response_class
from headwater.quotas.clients import NO_LIMITS

# As in Kafka; the connections of their clients wait all the same.
_WITHOUT = {
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.DESCRIBE_QUORUM,
}


def throttling() -> Throttling:
    config = node_config({"log.dirs": "/d", "node.id": "1"})
    return Throttling(config, SystemClock())


@pytest.mark.parametrize(
    "api",
    sorted({key for key in (*SERVED, *SERVED_BY_CONTROLLERS) if APIS[key].on_broker} - _WITHOUT),
    ids=lambda api: api.name,
)
def test_a_response_says_how_long_to_wait(api: ApiKey) -> None:
    """In all versions that can; the others leave it out, and the connection waits anyway."""
    told = []
    for version in all_versions(api):
        message: Any = response_class(api)()
        held: list[float] = []
        connection: Any = SimpleNamespace(throttle=held.append)
        metered = Metered(throttling(), connection, NO_LIMITS, 0)
        message.throttle_time_ms = 1234
        metered.settle(message)  # as for a wait that the controller has told
        assert held == [1.234]
        answer: Any = decode(response_class(api), encode(message, version), version)
        told.append(answer.throttle_time_ms)
    assert set(told) <= {0, 1234}
    assert told[-1] == 1234
    assert told == sorted(told)


def test_the_steps_of_a_handler_are_timed_and_its_waits_are_not() -> None:
    now = 0.0
    made = throttling()
    made.now = lambda: now
    metered = Metered(made, cast(Any, None), NO_LIMITS, 0)

    async def handler(gate: asyncio.Future[None]) -> None:
        nonlocal now
        now += 1
        await gate
        now += 2

    async def run(*, cancelled: bool) -> None:
        nonlocal now
        gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def answer() -> None:
            await Steps(handler(gate), metered)

        task = asyncio.ensure_future(answer())
        await asyncio.sleep(0)
        now += 100
        if cancelled:
            task.cancel()
        else:
            gate.set_result(None)
        await asyncio.gather(task, return_exceptions=True)
        assert task.cancelled() == cancelled

    asyncio.run(run(cancelled=False))
    assert metered._seconds == 3
    asyncio.run(run(cancelled=True))
    assert metered._seconds == 4
