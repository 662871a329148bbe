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
    """A broker has registered, with a new epoch."""

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
    """One of the `end_points` of `RegisterBrokerRecord`."""

    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class BrokerFeature(Message):
    """One of the `features` of `RegisterBrokerRecord`."""

    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(api=1, versions=(0, 0), flexible=0)
class UnregisterBrokerRecord(Message):
    """A broker is gone for good."""

    broker_id: Int32
    broker_epoch: Int64


@message(api=7, versions=(0, 0), flexible=0)
class FenceBrokerRecord(Message):
    """A broker was fenced. Old; BrokerRegistrationChangeRecord says it now."""

    id: Int32
    epoch: Int64


@message(api=8, versions=(0, 0), flexible=0)
class UnfenceBrokerRecord(Message):
    """A broker was unfenced. Old; BrokerRegistrationChangeRecord says it now."""

    id: Int32
    epoch: Int64


@message(api=17, versions=(0, 3), flexible=0)
class BrokerRegistrationChangeRecord(Message):
    """Something about a registered broker has changed."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Annotated[Int8, tag(0)] = 0
    in_controlled_shutdown: Annotated[Int8, tag(1, since=1)] = 0
    log_dirs: Annotated[list[Uuid], tag(2, since=2)] = []
    cordoned_log_dirs: Annotated[list[Uuid] | None, tag(3, since=3)] = None


@message(api=27, versions=(0, 0), flexible=0)
class RegisterControllerRecord(Message):
    """A controller has registered."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: bool
    end_points: list[ControllerEndpoint] = []
    features: list[ControllerFeature] = []


class ControllerEndpoint(Message):
    """One of the `end_points` of `RegisterControllerRecord`."""

    name: str
    host: str
    port: UInt16
    security_protocol: Int16


class ControllerFeature(Message):
    """One of the `features` of `RegisterControllerRecord`."""

    name: str
    min_supported_version: Int16
    max_supported_version: Int16


@message(api=29, versions=(0, 0), flexible=0)
class UnregisterControllerRecord(Message):
    """A controller is gone for good."""

    controller_id: Int32


@message(api=12, versions=(0, 0), flexible=0)
class FeatureLevelRecord(Message):
    """A feature was finalized at a level; 0 takes it away."""

    name: str
    feature_level: Int16


@message(api=21, versions=(0, 0), flexible=0)
class ZkMigrationStateRecord(Message):
    """The state of a migration from ZooKeeper; read, never written."""

    zk_migration_state: Int8


@message(api=20, versions=(0, 0), flexible=0)
class NoOpRecord(Message):
    """Nothing has happened; keeps the high watermark of the metadata log moving."""


@message(api=23, versions=(0, 0), flexible=0)
class BeginTransactionRecord(Message):
    """Begins records that are applied together or not at all (KIP-868)."""

    name: Annotated[str | None, tag(0)] = None


@message(api=24, versions=(0, 0), flexible=0)
class EndTransactionRecord(Message):
    """Ends such records: they are applied."""


@message(api=25, versions=(0, 0), flexible=0)
class AbortTransactionRecord(Message):
    """Aborts such records: they are dropped."""

    reason: Annotated[str | None, tag(0)] = None
