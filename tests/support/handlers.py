"""A node that consists of a controller only, for tests of handlers that do little but ask it."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from importlib import import_module
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

from headwater.broker.context import Context
from headwater.broker.controller_role import HANDLERS as CONTROLLER_HANDLERS
from headwater.broker.throttling import Throttling
from headwater.config import node_config
from headwater.controller import Controller, Decision
from headwater.io.clock import SystemClock
from headwater.observability import Log
from headwater.protocol import Message, decode, encode
from headwater.protocol.apis import APIS
from tests.support.controllers import Bench

R = TypeVar("R")


class Direct:
    """The controller's driver without a log: what is decided is so at once."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench

    async def ask(self, decide: Callable[[Controller], Decision[R]]) -> R:
        return self.bench.do(decide(self.bench.machine))


class HandlerBench:
    """A cluster of one broker, whose id is 1."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        settings = settings or {}
        self.cluster = Bench([1], node_id=1, settings=settings)
        parts: dict[str, Any] = {
            "config": node_config({"log.dirs": "/d", "node.id": "1"} | settings),
            "metadata": SimpleNamespace(kraft_version=1, all_committed=_nothing_to_wait_for),
            "log": Log(SystemClock(), lambda line: None),
            "authorizer": None,
            "security": None,
        }
        parts["throttling"] = Throttling(parts["config"], SystemClock())
        self.role: Any = SimpleNamespace(
            **parts, controller=Direct(self.cluster), check_active=lambda: None
        )
        self.broker: Any = _Broker(
            self.cluster, **parts, channel=SimpleNamespace(forward=self._forward)
        )

    @property
    def image(self) -> Any:
        return self.cluster.machine.image

    def ask(self, handler: ModuleType, request: Message, version: int) -> Any:
        """The handler's answer as it comes off the wire in this version."""
        context = Context(None, version, "test")  # type: ignore[arg-type]
        parts = self.role if handler.__name__.startswith(CONTROLLER_HANDLERS) else self.broker
        handled = handler.handle(parts, context, request)
        if inspect.isawaitable(handled):
            handled = asyncio.run(_awaited(handled))
        return decode(type(handled), encode(handled, version), version)

    async def _forward(self, context: Context, request: Message) -> Message:
        assert request.API is not None
        module = import_module(f"{CONTROLLER_HANDLERS}.{APIS[request.API].module}")
        answer: Message = await module.handle(self.role, context, request)
        return answer


class _Broker(SimpleNamespace):
    """The broker that handlers use. It sees decisions of the controller at once."""

    def __init__(self, cluster: Bench, **parts: Any) -> None:
        super().__init__(**parts)
        self._cluster = cluster

    @property
    def image(self) -> Any:
        return self._cluster.machine.image


async def _awaited(handled: Any) -> Any:
    return await handled


async def _nothing_to_wait_for() -> None:
    """One voter has committed what it has written."""
