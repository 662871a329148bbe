"""Registering a broker with the controller."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    Int16,
    Int32,
    Int64,
    Message,
    UInt16,
    Uuid,
    ignorable,
    message,
    since,
)


@message(api=62, versions=(0, 4), flexible=0)
class BrokerRegistrationRequest(Message):
    """Registers a node: its incarnation, listeners and features."""

    broker_id: Int32
    cluster_id: str
    incarnation_id: Uuid
    listeners: list[Listener] = []
    features: list[Feature] = []
    rack: str | None
    is_migrating_zk_broker: Annotated[bool, since(1)] = False
    log_dirs: Annotated[list[Uuid], since(2), ignorable] = []
    previous_broker_epoch: Annotated[Int64, since(3), ignorable] = -1


class Listener(Message):
    """A listener: its name, and where it is."""

    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class Feature(Message):
    """A feature and the levels a node could work at."""

    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(api=62, versions=(0, 4), flexible=0)
class BrokerRegistrationResponse(Message):
    """The epoch of the registration."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    broker_epoch: Int64 = -1
