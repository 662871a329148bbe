"""Records of the metadata log about nodes, features and the log itself."""

from __future__ import annotations

from typing import Annotated

from headwater.protocol.schema import (
    Int8,
    Int16,
    Int32,
    Int64,
    Message,
    UInt16,
    Uuid,
    message,
    since,
    tag,
)


@message(api=0, versions=(0, 4), flexible=0)
class RegisterBrokerRecord(Message):
    """The message `RegisterBrokerRecord`."""

    broker_id: Int32
    is_migrating_zk_broker: Annotated[bool, since(2)] = False
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint] = []
    features: list[BrokerFeature] = []
    rack: str | None
    fenced: bool = True
    in_controlled_shutdown: Annotated[bool, since(1)] = False
    log_dirs: Annotated[list[Uuid], tag(0, since=3)] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, tag(1, since=4)] = None


class BrokerEndpoint(Message):
    """A part of `RegisterBrokerRecord`."""

    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class BrokerFeature(Message):
    """A part of `RegisterBrokerRecord`."""

    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(api=1, versions=(0, 0), flexible=0)
class UnregisterBrokerRecord(Message):
    """The message `UnregisterBrokerRecord`."""

    broker_id: Int32
    broker_epoch: Int64


@message(api=7, versions=(0, 0), flexible=0)
class FenceBrokerRecord(Message):
    """The message `FenceBrokerRecord`."""

    id: Int32
    epoch: Int64


@message(api=8, versions=(0, 0), flexible=0)
class UnfenceBrokerRecord(Message):
    """The message `UnfenceBrokerRecord`."""

    id: Int32
    epoch: Int64


@message(api=17, versions=(0, 3), flexible=0)
class BrokerRegistrationChangeRecord(Message):
    """The message `BrokerRegistrationChangeRecord`."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Annotated[Int8, tag(0)] = 0
    in_controlled_shutdown: Annotated[Int8, tag(1, since=1)] = 0
    log_dirs: Annotated[list[Uuid], tag(2, since=2)] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, tag(3, since=3)] = None


@message(api=27, versions=(0, 0), flexible=0)
class RegisterControllerRecord(Message):
    """The message `RegisterControllerRecord`."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    end_points: list[ControllerEndpoint] = []
    features: list[ControllerFeature] = []


class ControllerEndpoint(Message):
    """A part of `RegisterControllerRecord`."""

    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class ControllerFeature(Message):
    """A part of `RegisterControllerRecord`."""

    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(api=29, versions=(0, 0), flexible=0)
class UnregisterControllerRecord(Message):
    """The message `UnregisterControllerRecord`."""

    controller_id: Int32


@message(api=12, versions=(0, 0), flexible=0)
class FeatureLevelRecord(Message):
    """The message `FeatureLevelRecord`."""

    name: str
    feature_level: Int16


@message(api=21, versions=(0, 0), flexible=0)
class ZkMigrationStateRecord(Message):
    """The message `ZkMigrationStateRecord`."""

    zk_migration_state: Int8


@message(api=20, versions=(0, 0), flexible=0)
class NoOpRecord(Message):
    """The message `NoOpRecord`."""


@message(api=23, versions=(0, 0), flexible=0)
class BeginTransactionRecord(Message):
    """The message `BeginTransactionRecord`."""

    name: Annotated[str | None, tag(0)] = None


@message(api=24, versions=(0, 0), flexible=0)
class EndTransactionRecord(Message):
    """The message `EndTransactionRecord`."""


@message(api=25, versions=(0, 0), flexible=0)
class AbortTransactionRecord(Message):
    """The message `AbortTransactionRecord`."""

    reason: Annotated[str | None, tag(0)] = None
