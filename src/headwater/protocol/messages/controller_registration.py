"""Registering a controller with the active one."""

from __future__ import annotations

from headwater.protocol.schema import Int16, Int32, Message, UInt16, Uuid, message


@message(api=70, versions=(0, 0), flexible=0)
class ControllerRegistrationRequest(Message):
    """Registers a node: its incarnation, listeners and features."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    listeners: list[Listener] = []
    features: list[Feature] = []


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


@message(api=70, versions=(0, 0), flexible=0)
class ControllerRegistrationResponse(Message):
    """The outcome."""

    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: str | None = ""
