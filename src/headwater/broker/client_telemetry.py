"""Metrics of clients (KIP-714): subscriptions from the metadata, pushes from clients.

`telemetry/` knows the rules; here are the clock, the connections, and the worker that unpacks what
was pushed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import TYPE_CHECKING

from headwater import _core
from headwater.errors import ApiError, ErrorCode
from headwater.metadata import Delta, Image, ResourceType
from headwater.protocol import DecodeError
from headwater.protocol.otlp import decode_metrics
from headwater.telemetry import ClientAttributes, Instance, Instances, PushedMetrics
from headwater.telemetry.pushed import Reading, readings_of

if TYPE_CHECKING:
    from headwater.broker.context import Context
    from headwater.config import NodeConfig
    from headwater.io import Host
    from headwater.net import Connection
    from headwater.observability.registry import Item, Registry
    from headwater.protocol.messages.push_telemetry import PushTelemetryRequest

_POINTS_MAX = 10_000  # of one push
_UNPACKED_AT_ONCE = 2
# What is smaller is unpacked faster than a worker is asked: a few dozen points.
_WORKER_BYTES_MIN = 2048
_NO_COMPRESSION = 0
_CLIENT_ID_MAX = 1000  # characters that subscriptions are matched with


class ClientTelemetry:
    def __init__(self, config: NodeConfig, host: Host) -> None:
        bytes_max = config.value("telemetry.max.bytes")
        assert isinstance(bytes_max, int)
        self.instances = Instances(host.random_id, bytes_max=bytes_max)
        self.pushed = PushedMetrics()
        self.pushes = 0
        self.refused = 0  # pushes that could not be read
        # Without somewhere to export to, clients are not told that they could push.
        self.is_exported = False
        self._now = host.clock.monotonic
        self._workers = host.workers
        self._unpacking = asyncio.Semaphore(_UNPACKED_AT_ONCE)

    def export(self, registry: Registry) -> None:
        """Has the metrics of clients in the node's own."""
        registry.register(self.collect)
        self.is_exported = True

    def collect(self) -> Iterator[Item]:
        from headwater.observability.registry import one

        self.pushed.expire(self._now())
        self.instances.expire(self._now())
        yield from one(
            "headwater_client_telemetry_instances",
            "gauge",
            "Client instances that this broker knows.",
            len(self.instances),
        )
        for name, meaning, value in (
            ("pushes", "Pushes that were accepted.", self.pushes),
            ("refused_pushes", "Pushes that could not be read.", self.refused),
            (
                "throttled_requests",
                "Requests that came before the end of the push interval.",
                self.instances.throttled,
            ),
            (
                "unknown_subscription_requests",
                "Pushes for subscriptions that have changed.",
                self.instances.unknown_subscriptions,
            ),
            (
                "dropped_points",
                "Pushed values that were dropped: too many, or of a type that is not exported.",
                self.pushed.dropped,
            ),
        ):
            yield from one(f"headwater_client_telemetry_{name}_total", "counter", meaning, value)
        yield from self.pushed.collect()

    def follow(self, image: Image, delta: Delta) -> None:
        for resource in delta.configs:
            if resource.type == ResourceType.CLIENT_METRICS:
                self.instances.subscribe(resource.name, image.config(resource))

    def ask(self, context: Context, instance_id: bytes) -> Instance:
        """Returns what is wanted of a client; raises ApiError if it asks too often."""
        instance = self.instances.ask(instance_id, _attributes(context), self._now())
        self._forget_with(context.connection, instance.id)
        return instance

    async def push(self, context: Context, request: PushTelemetryRequest) -> None:
        """Takes the metrics of a client; raises ApiError if it may not push, or not this."""
        attributes = _attributes(context)
        instance = self.instances.push(
            request.client_instance_id,
            attributes,
            self._now(),
            subscription_id=request.subscription_id,
            is_last=request.terminating,
            compression=request.compression_type,
            size=len(request.metrics),
        )
        self._forget_with(context.connection, instance.id)
        self.pushes += 1
        if not request.metrics:
            return
        try:
            readings, dropped = await self._unpacked(request.metrics, request.compression_type)
        except (DecodeError, ValueError) as error:
            self.refused += 1
            instance.last_error = ErrorCode.INVALID_RECORD
            raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from None
        self.pushed.dropped += dropped
        self.pushed.take(
            instance.id,
            instance.attributes,
            str(context.principal),
            readings,
            now=self._now(),
            lives_for=instance.lives_for(),
        )

    async def _unpacked(self, metrics: bytes, compression: int) -> tuple[list[Reading], int]:
        bytes_max = self.instances.bytes_max

        def unpack() -> tuple[list[Reading], int]:
            plain = metrics
            if compression != _NO_COMPRESSION:
                plain = _core.decompress(compression, metrics, bytes_max)
            return readings_of(decode_metrics(plain, points_max=_POINTS_MAX))

        if len(metrics) < _WORKER_BYTES_MIN and compression == _NO_COMPRESSION:
            return unpack()
        async with self._unpacking:
            return await self._workers.run(unpack)

    def _forget_with(self, connection: Connection, instance_id: bytes) -> None:
        """Forgets an instance when its connection ends, as Kafka does. What it has pushed stays for
        the next scrapes."""
        if connection.telemetry_id == instance_id:
            return
        if connection.telemetry_id is None:
            instances = self.instances

            def forget() -> None:
                if connection.telemetry_id is not None:
                    instances.forget(connection.telemetry_id)

            connection.on_gone[forget] = None
        connection.telemetry_id = instance_id


def _attributes(context: Context) -> ClientAttributes:
    name, version = context.connection.software
    peer = context.connection.stream.peer
    client_id = context.client_id
    if client_id is not None:
        client_id = client_id[:_CLIENT_ID_MAX]
    return ClientAttributes(client_id, name, version, peer.host, str(peer.port))
