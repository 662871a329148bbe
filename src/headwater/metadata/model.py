"""The parts of the image: brokers, controllers, topics, partitions, and their records.

All are immutable values. Each can be turned into the record that creates it again, which is what a
snapshot consists of. They are named tuples because these load ten times as fast as frozen
dataclasses, which matters at the start of a node.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from headwater.metadata.features import LEVEL_DIRECTORIES, LEVEL_ELR, LevelRange
from headwater.model import NO_NODE
from headwater.protocol.records.metadata_nodes import (
    BrokerEndpoint,
    BrokerFeature,
    BrokerRegistrationChangeRecord,
    ControllerEndpoint,
    ControllerFeature,
    RegisterBrokerRecord,
    RegisterControllerRecord,
)
from headwater.protocol.records.metadata_topics import (
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

NO_LEADER = NO_NODE
NO_LEADER_CHANGE = -2

RECOVERED = 0
RECOVERING = 1  # the leader was elected from outside the in-sync set and may lack records

# A replica's directory before its broker has assigned one.
DIRECTORY_UNASSIGNED = bytes(16)
DIRECTORY_LOST = bytes(15) + b"\x01"
DIRECTORY_MIGRATING = bytes(15) + b"\x02"
# Kafka reserves the first hundred ids for such meanings.
DIRECTORIES_RESERVED = frozenset(bytes(15) + bytes((number,)) for number in range(100))


class ResourceType:
    """Types of resources that have settings, by their number in the protocol."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class Resource(NamedTuple):
    """A resource that has settings. A broker's name is its id; an empty name means all brokers."""

    type: int
    name: str


CLUSTER_DEFAULT = Resource(ResourceType.BROKER, "")


class Endpoint(NamedTuple):
    name: str
    host: str
    port: int
    security_protocol: int = 0  # 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL


class BrokerRegistration(NamedTuple):
    id: int
    epoch: int
    incarnation_id: bytes
    endpoints: tuple[Endpoint, ...]
    features: dict[str, LevelRange]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    log_dirs: tuple[bytes, ...]
    cordoned_log_dirs: tuple[bytes, ...] | None
    is_migrating_zk_broker: bool = False

    @property
    def is_active(self) -> bool:
        return not self.fenced and not self.in_controlled_shutdown

    def has_online(self, directory: bytes) -> bool:
        """Returns whether a replica of this broker that is assigned to a directory can be served.
        Brokers of old releases name no directories."""
        if directory == DIRECTORY_LOST:
            return False
        known = self.log_dirs
        return directory in DIRECTORIES_RESERVED or not known or directory in known

    def endpoint(self, listener: str) -> Endpoint | None:
        return next((found for found in self.endpoints if found.name == listener), None)

    @classmethod
    def from_record(cls, record: RegisterBrokerRecord) -> BrokerRegistration:
        return cls(
            id=record.broker_id,
            epoch=record.broker_epoch,
            incarnation_id=record.incarnation_id,
            endpoints=tuple(
                Endpoint(end.name, end.host, end.port, end.security_protocol)
                for end in record.end_points
            ),
            features={
                feature.name: LevelRange(
                    feature.min_supported_version, feature.max_supported_version
                )
                for feature in record.features
            },
            rack=record.rack,
            fenced=record.fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
            log_dirs=tuple(record.log_dirs),
            cordoned_log_dirs=None
            if record.cordoned_log_dirs is None
            else tuple(record.cordoned_log_dirs),
            is_migrating_zk_broker=record.is_migrating_zk_broker,
        )

    def changed(self, record: BrokerRegistrationChangeRecord) -> BrokerRegistration:
        return self._replace(
            fenced=self.fenced if record.fenced == 0 else record.fenced > 0,
            in_controlled_shutdown=self.in_controlled_shutdown
            or record.in_controlled_shutdown == 1,
            log_dirs=tuple(record.log_dirs) or self.log_dirs,
            cordoned_log_dirs=self.cordoned_log_dirs
            if record.cordoned_log_dirs is None
            else tuple(record.cordoned_log_dirs),
        )

    def to_record(self) -> RegisterBrokerRecord:
        return RegisterBrokerRecord(
            broker_id=self.id,
            is_migrating_zk_broker=self.is_migrating_zk_broker,
            incarnation_id=self.incarnation_id,
            broker_epoch=self.epoch,
            end_points=[
                BrokerEndpoint(
                    name=end.name,
                    host=end.host,
                    port=end.port,
                    security_protocol=end.security_protocol,
                )
                for end in self.endpoints
            ],
            features=[
                BrokerFeature(
                    name=name, min_supported_version=levels.low, max_supported_version=levels.high
                )
                for name, levels in self.features.items()
            ],
            rack=self.rack,
            fenced=self.fenced,
            in_controlled_shutdown=self.in_controlled_shutdown,
            log_dirs=list(self.log_dirs),
            cordoned_log_dirs=None
            if self.cordoned_log_dirs is None
            else list(self.cordoned_log_dirs),
        )


class ControllerRegistration(NamedTuple):
    id: int
    incarnation_id: bytes
    zk_migration_ready: bool
    endpoints: tuple[Endpoint, ...]
    features: dict[str, LevelRange]

    @classmethod
    def from_record(cls, record: RegisterControllerRecord) -> ControllerRegistration:
        return cls(
            id=record.controller_id,
            incarnation_id=record.incarnation_id,
            zk_migration_ready=record.zk_migration_ready,
            endpoints=tuple(
                Endpoint(end.name, end.host, end.port, end.security_protocol)
                for end in record.end_points
            ),
            features={
                feature.name: LevelRange(
                    feature.min_supported_version, feature.max_supported_version
                )
                for feature in record.features
            },
        )

    def to_record(self) -> RegisterControllerRecord:
        return RegisterControllerRecord(
            controller_id=self.id,
            incarnation_id=self.incarnation_id,
            zk_migration_ready=self.zk_migration_ready,
            end_points=[
                ControllerEndpoint(
                    name=end.name,
                    host=end.host,
                    port=end.port,
                    security_protocol=end.security_protocol,
                )
                for end in self.endpoints
            ],
            features=[
                ControllerFeature(
                    name=name, min_supported_version=levels.low, max_supported_version=levels.high
                )
                for name, levels in self.features.items()
            ],
        )


class PartitionState(NamedTuple):
    """The state of a partition. `directories` has one entry for each of `replicas`."""

    replicas: tuple[int, ...]
    directories: tuple[bytes, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    recovery_state: int = RECOVERED
    removing: tuple[int, ...] = ()
    adding: tuple[int, ...] = ()
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()

    @property
    def preferred_leader(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.removing or self.adding)

    def directory_of(self, replica: int) -> bytes:
        return self.directories[self.replicas.index(replica)]

    def moved(self, replica: int, directory: bytes) -> PartitionState:
        """Returns the state with a replica in another directory."""
        known = dict(zip(self.replicas, self.directories, strict=True)) | {replica: directory}
        return self._replace(directories=tuple(known[each] for each in self.replicas))

    @classmethod
    def from_record(cls, record: PartitionRecord) -> PartitionState:
        return cls(
            replicas=tuple(record.replicas),
            # Records from before directories have none: all replicas are unassigned then.
            directories=tuple(record.directories) or (DIRECTORY_MIGRATING,) * len(record.replicas),
            isr=tuple(record.isr),
            leader=record.leader,
            leader_epoch=record.leader_epoch,
            partition_epoch=record.partition_epoch,
            recovery_state=record.leader_recovery_state,
            removing=tuple(record.removing_replicas),
            adding=tuple(record.adding_replicas),
            elr=tuple(record.eligible_leader_replicas or ()),
            last_known_elr=tuple(record.last_known_elr or ()),
        )

    def changed(self, record: PartitionChangeRecord) -> PartitionState:
        """Returns the state after a change. A leader in the change, even the same one, starts a new
        epoch."""
        replicas = self.replicas if record.replicas is None else tuple(record.replicas)
        if record.directories:
            directories = tuple(record.directories)
        elif record.replicas is None:
            directories = self.directories
        else:
            known = dict(zip(self.replicas, self.directories, strict=True))
            directories = tuple(known.get(replica, DIRECTORY_UNASSIGNED) for replica in replicas)
        elected = record.leader != NO_LEADER_CHANGE
        return PartitionState(
            replicas=replicas,
            directories=directories,
            isr=self.isr if record.isr is None else tuple(record.isr),
            leader=record.leader if elected else self.leader,
            leader_epoch=self.leader_epoch + elected,
            partition_epoch=self.partition_epoch + 1,
            recovery_state=self.recovery_state
            if record.leader_recovery_state < 0
            else record.leader_recovery_state,
            removing=self.removing
            if record.removing_replicas is None
            else tuple(record.removing_replicas),
            adding=self.adding if record.adding_replicas is None else tuple(record.adding_replicas),
            elr=self.elr
            if record.eligible_leader_replicas is None
            else tuple(record.eligible_leader_replicas),
            last_known_elr=self.last_known_elr
            if record.last_known_elr is None
            else tuple(record.last_known_elr),
        )

    def to_record(self, topic_id: bytes, partition: int, metadata_version: int) -> PartitionRecord:
        """Returns the record that creates this state, with what this metadata.version knows."""
        has_directories = metadata_version >= LEVEL_DIRECTORIES
        has_elr = metadata_version >= LEVEL_ELR
        return PartitionRecord(
            partition_id=partition,
            topic_id=topic_id,
            replicas=list(self.replicas),
            isr=list(self.isr),
            removing_replicas=list(self.removing),
            adding_replicas=list(self.adding),
            leader=self.leader,
            leader_recovery_state=self.recovery_state,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.partition_epoch,
            directories=list(self.directories) if has_directories else [],
            # Null and empty mean the same; Kafka writes null, which takes no space.
            eligible_leader_replicas=(list(self.elr) or None) if has_elr else None,
            last_known_elr=(list(self.last_known_elr) or None) if has_elr else None,
        )


@dataclass(slots=True)
class Topic:
    """A topic. Partitions are numbered from 0 without gaps, in whatever order they were added."""

    name: str
    id: bytes
    partitions: dict[int, PartitionState] = field(default_factory=dict)

    def to_record(self) -> TopicRecord:
        return TopicRecord(name=self.name, topic_id=self.id)
