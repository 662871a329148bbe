"""The cluster's image: the state that the metadata log describes.

Only `apply` changes it, and it sees nothing but records. So a broker that followed the log, one
that loaded a snapshot, and the controller that wrote the records have the same image. Records that
contradict it are bugs of their writer: assertions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from headwater.metadata.features import LEVEL_MINIMUM, METADATA_VERSION
from headwater.metadata.model import (
    BrokerRegistration,
    ControllerRegistration,
    PartitionState,
    Resource,
    ResourceType,
    Topic,
)
from headwater.metadata.records import RecordType
from headwater.metadata.topic_names import collision_key, may_collide

if TYPE_CHECKING:
    from headwater.protocol import Message
    from headwater.protocol.records import metadata_nodes as nodes
    from headwater.protocol.records import metadata_security as security
    from headwater.protocol.records import metadata_topics as topic_records


def _states(image: Image) -> Iterator[tuple[tuple[bytes, int], PartitionState]]:
    for topic, index, state in image.partitions():
        yield (topic.id, index), state


QuotaEntity = tuple[tuple[str, str | None], ...]


@dataclass(slots=True)
class Delta:
    """The changes of a batch of records. It names what changed: the new state is in the image,
    and what no longer exists is kept here."""

    topics_created: set[bytes] = field(default_factory=set)
    topics_deleted: dict[bytes, Topic] = field(default_factory=dict)  # as they last were
    # The previous state of each changed partition; None if it is new.
    partitions: dict[tuple[bytes, int], PartitionState | None] = field(default_factory=dict)
    configs: set[Resource] = field(default_factory=set)
    brokers: dict[int, BrokerRegistration | None] = field(default_factory=dict)  # previous states
    controllers: set[int] = field(default_factory=set)
    features: set[str] = field(default_factory=set)
    client_quotas: set[tuple[tuple[str, str | None], ...]] = field(default_factory=set)
    acls: set[bytes] = field(default_factory=set)
    scram: set[tuple[str, int]] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    producer_ids: bool = False

    def __bool__(self) -> bool:
        return self.producer_ids or any(
            (
                self.topics_created,
                self.topics_deleted,
                self.partitions,
                self.configs,
                self.brokers,
                self.controllers,
                self.features,
                self.client_quotas,
                self.acls,
                self.scram,
                self.tokens,
            )
        )

    def note_removed(self, before: Image, after: Image) -> None:
        """Notes what another image no longer has. For an image that a snapshot has replaced: its
        records name only what exists."""
        for topic_id, topic in before.topics_by_id.items():
            if topic_id not in after.topics_by_id:
                self.topics_deleted[topic_id] = topic
        for key, state in (
            (key, state) for key, state in _states(before) if key in self.partitions
        ):
            self.partitions[key] = state
        self.topics_created.difference_update(before.topics_by_id)
        for broker_id, registration in before.brokers.items():
            self.brokers[broker_id] = registration
        self.configs.update(before.configs)
        self.controllers.update(before.controllers)
        self.features.update(before.features)
        self.client_quotas.update(before.client_quotas)
        self.acls.update(before.acls)
        self.scram.update(before.scram)
        self.tokens.update(before.tokens)

    def topics_changed(self) -> set[bytes]:
        """Returns existing topics with a new or changed partition."""
        return {topic_id for topic_id, _ in self.partitions}


@dataclass(slots=True)
class Image:
    features: dict[str, int] = field(default_factory=dict)
    brokers: dict[int, BrokerRegistration] = field(default_factory=dict)
    controllers: dict[int, ControllerRegistration] = field(default_factory=dict)
    topics: dict[str, Topic] = field(default_factory=dict)
    topics_by_id: dict[bytes, Topic] = field(default_factory=dict)
    configs: dict[Resource, dict[str, str]] = field(default_factory=dict)
    client_quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    next_producer_id: int = 0
    acls: dict[bytes, security.AccessControlEntryRecord] = field(default_factory=dict)
    scram: dict[tuple[str, int], security.UserScramCredentialRecord] = field(default_factory=dict)
    tokens: dict[str, security.DelegationTokenRecord] = field(default_factory=dict)
    # Names by collision key, so that a new topic is checked without a search.
    collisions: dict[str, set[str]] = field(default_factory=dict)

    @property
    def metadata_version(self) -> int:
        return self.features.get(METADATA_VERSION, LEVEL_MINIMUM)

    def partition(self, topic: str, partition: int) -> PartitionState | None:
        found = self.topics.get(topic)
        return found.partitions.get(partition) if found else None

    def offline_replicas(self, state: PartitionState) -> list[int]:
        """Returns the replicas whose broker is away or whose directory has failed."""
        offline: list[int] = []
        for replica, directory in zip(state.replicas, state.directories, strict=True):
            broker = self.brokers.get(replica)
            if broker is None or broker.fenced or not broker.has_online(directory):
                offline.append(replica)
        return offline

    def config(self, resource: Resource) -> dict[str, str]:
        """Returns the settings of this resource itself, without inherited ones."""
        return self.configs.get(resource, {})

    def partitions(self) -> Iterator[tuple[Topic, int, PartitionState]]:
        for topic in self.topics.values():
            for index, state in topic.partitions.items():
                yield topic, index, state

    def frozen(self) -> Image:
        """Returns a copy, for a snapshot that is written while this image changes."""
        by_id = {
            topic.id: Topic(topic.name, topic.id, dict(topic.partitions))
            for topic in self.topics.values()
        }
        return replace(
            self,
            features=dict(self.features),
            brokers=dict(self.brokers),
            controllers=dict(self.controllers),
            topics={topic.name: topic for topic in by_id.values()},
            topics_by_id=by_id,
            configs={resource: dict(configs) for resource, configs in self.configs.items()},
            client_quotas={entity: dict(quotas) for entity, quotas in self.client_quotas.items()},
            acls=dict(self.acls),
            scram=dict(self.scram),
            tokens=dict(self.tokens),
            collisions={key: set(names) for key, names in self.collisions.items()},
        )

    def apply(self, record: Message, delta: Delta | None = None) -> None:
        """Applies a record and notes the change in `delta`."""
        assert record.API is not None
        _APPLY[record.API](self, record, Delta() if delta is None else delta)

    # Nodes

    def _register_broker(self, record: nodes.RegisterBrokerRecord, delta: Delta) -> None:
        self._set_broker(BrokerRegistration.from_record(record), delta)

    def _set_broker(self, registration: BrokerRegistration, delta: Delta) -> None:
        delta.brokers.setdefault(registration.id, self.brokers.get(registration.id))
        self.brokers[registration.id] = registration

    def _registered(self, broker_id: int, epoch: int) -> BrokerRegistration:
        registration = self.brokers[broker_id]
        assert registration.epoch == epoch, (
            f"record for broker {broker_id} epoch {epoch}, registered is {registration.epoch}"
        )
        return registration

    def _unregister_broker(self, record: nodes.UnregisterBrokerRecord, delta: Delta) -> None:
        registration = self._registered(record.broker_id, record.broker_epoch)
        delta.brokers.setdefault(record.broker_id, registration)
        del self.brokers[record.broker_id]

    def _change_broker(self, record: nodes.BrokerRegistrationChangeRecord, delta: Delta) -> None:
        registration = self._registered(record.broker_id, record.broker_epoch)
        self._set_broker(registration.changed(record), delta)

    def _fence_broker(self, record: nodes.FenceBrokerRecord, delta: Delta) -> None:
        self._set_broker(self._registered(record.id, record.epoch)._replace(fenced=True), delta)

    def _unfence_broker(self, record: nodes.UnfenceBrokerRecord, delta: Delta) -> None:
        self._set_broker(self._registered(record.id, record.epoch)._replace(fenced=False), delta)

    def _register_controller(self, record: nodes.RegisterControllerRecord, delta: Delta) -> None:
        self.controllers[record.controller_id] = ControllerRegistration.from_record(record)
        delta.controllers.add(record.controller_id)

    def _unregister_controller(
        self, record: nodes.UnregisterControllerRecord, delta: Delta
    ) -> None:
        del self.controllers[record.controller_id]
        delta.controllers.add(record.controller_id)

    def _set_feature(self, record: nodes.FeatureLevelRecord, delta: Delta) -> None:
        if record.feature_level == 0:
            self.features.pop(record.name, None)
        else:
            self.features[record.name] = record.feature_level
        delta.features.add(record.name)

    # Topics

    def _create_topic(self, record: topic_records.TopicRecord, delta: Delta) -> None:
        assert record.name not in self.topics, f"topic {record.name} already exists"
        assert record.topic_id not in self.topics_by_id
        topic = Topic(record.name, record.topic_id)
        self.topics[record.name] = self.topics_by_id[record.topic_id] = topic
        if may_collide(record.name):
            self.collisions.setdefault(collision_key(record.name), set()).add(record.name)
        delta.topics_created.add(record.topic_id)

    def _remove_topic(self, record: topic_records.RemoveTopicRecord, delta: Delta) -> None:
        topic = self.topics_by_id.pop(record.topic_id)
        del self.topics[topic.name]
        if may_collide(topic.name):
            names = self.collisions[collision_key(topic.name)]
            names.remove(topic.name)
            if not names:
                del self.collisions[collision_key(topic.name)]
        resource = Resource(ResourceType.TOPIC, topic.name)
        if self.configs.pop(resource, None) is not None:
            delta.configs.add(resource)
        for index in topic.partitions:
            delta.partitions.pop((topic.id, index), None)
        if record.topic_id in delta.topics_created:
            delta.topics_created.remove(record.topic_id)  # created and deleted within this delta
        else:
            delta.topics_deleted[record.topic_id] = topic

    def _set_partition(self, record: topic_records.PartitionRecord, delta: Delta) -> None:
        topic = self.topics_by_id[record.topic_id]
        was = topic.partitions.get(record.partition_id)
        delta.partitions.setdefault((record.topic_id, record.partition_id), was)
        topic.partitions[record.partition_id] = PartitionState.from_record(record)

    def _change_partition(self, record: topic_records.PartitionChangeRecord, delta: Delta) -> None:
        topic = self.topics_by_id[record.topic_id]
        was = topic.partitions[record.partition_id]
        delta.partitions.setdefault((record.topic_id, record.partition_id), was)
        topic.partitions[record.partition_id] = was.changed(record)

    def _clear_elr(self, record: topic_records.ClearElrRecord, delta: Delta) -> None:
        """Clears the eligible leaders of one topic, or of all if none is named."""
        found = [self.topics[record.topic_name]] if record.topic_name else self.topics.values()
        for topic in found:
            for index, state in topic.partitions.items():
                if state.elr or state.last_known_elr:
                    delta.partitions.setdefault((topic.id, index), state)
                    topic.partitions[index] = state._replace(
                        elr=(),
                        last_known_elr=(),
                        partition_epoch=state.partition_epoch + 1,
                    )

    # Other records

    def _set_config(self, record: topic_records.ConfigRecord, delta: Delta) -> None:
        resource = Resource(record.resource_type, record.resource_name)
        configs = self.configs.setdefault(resource, {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if not configs:
            del self.configs[resource]
        delta.configs.add(resource)

    def _set_client_quota(self, record: security.ClientQuotaRecord, delta: Delta) -> None:
        entity = tuple(sorted((part.entity_type, part.entity_name) for part in record.entity))
        quotas = self.client_quotas.setdefault(entity, {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if not quotas:
            del self.client_quotas[entity]
        delta.client_quotas.add(entity)

    def _set_producer_ids(self, record: topic_records.ProducerIdsRecord, delta: Delta) -> None:
        self.next_producer_id = record.next_producer_id
        delta.producer_ids = True

    def _add_acl(self, record: security.AccessControlEntryRecord, delta: Delta) -> None:
        self.acls[record.id] = record
        delta.acls.add(record.id)

    def _remove_acl(self, record: security.RemoveAccessControlEntryRecord, delta: Delta) -> None:
        del self.acls[record.id]
        delta.acls.add(record.id)

    def _set_scram(self, record: security.UserScramCredentialRecord, delta: Delta) -> None:
        self.scram[record.name, record.mechanism] = record
        delta.scram.add((record.name, record.mechanism))

    def _remove_scram(self, record: security.RemoveUserScramCredentialRecord, delta: Delta) -> None:
        del self.scram[record.name, record.mechanism]
        delta.scram.add((record.name, record.mechanism))

    def _set_token(self, record: security.DelegationTokenRecord, delta: Delta) -> None:
        self.tokens[record.token_id] = record
        delta.tokens.add(record.token_id)

    def _remove_token(self, record: security.RemoveDelegationTokenRecord, delta: Delta) -> None:
        del self.tokens[record.token_id]
        delta.tokens.add(record.token_id)

    def _nothing(self, record: Message, delta: Delta) -> None:
        """Ignores no-op records and the state of past ZooKeeper migrations."""


_APPLY: dict[int, Callable[[Image, Any, Delta], None]] = {
    RecordType.REGISTER_BROKER: Image._register_broker,
    RecordType.UNREGISTER_BROKER: Image._unregister_broker,
    RecordType.TOPIC: Image._create_topic,
    RecordType.PARTITION: Image._set_partition,
    RecordType.CONFIG: Image._set_config,
    RecordType.PARTITION_CHANGE: Image._change_partition,
    RecordType.FENCE_BROKER: Image._fence_broker,
    RecordType.UNFENCE_BROKER: Image._unfence_broker,
    RecordType.REMOVE_TOPIC: Image._remove_topic,
    RecordType.DELEGATION_TOKEN: Image._set_token,
    RecordType.USER_SCRAM_CREDENTIAL: Image._set_scram,
    RecordType.FEATURE_LEVEL: Image._set_feature,
    RecordType.CLIENT_QUOTA: Image._set_client_quota,
    RecordType.PRODUCER_IDS: Image._set_producer_ids,
    RecordType.BROKER_REGISTRATION_CHANGE: Image._change_broker,
    RecordType.ACCESS_CONTROL_ENTRY: Image._add_acl,
    RecordType.REMOVE_ACCESS_CONTROL_ENTRY: Image._remove_acl,
    RecordType.NO_OP: Image._nothing,
    RecordType.ZK_MIGRATION_STATE: Image._nothing,
    RecordType.REMOVE_USER_SCRAM_CREDENTIAL: Image._remove_scram,
    RecordType.REMOVE_DELEGATION_TOKEN: Image._remove_token,
    RecordType.REGISTER_CONTROLLER: Image._register_controller,
    RecordType.CLEAR_ELR: Image._clear_elr,
    RecordType.UNREGISTER_CONTROLLER: Image._unregister_controller,
}


@dataclass(slots=True)
class Replay:
    """An image that follows the log, with its transactions.

    Records between Begin and End become visible at End, all at once; an Abort discards them. A
    transaction may span batches, and a controller that crashed leaves its transaction open.
    """

    image: Image = field(default_factory=Image)
    pending: list[Message] | None = None  # records of the open transaction

    @property
    def in_transaction(self) -> bool:
        return self.pending is not None

    def apply(self, records: Iterable[Message], delta: Delta | None = None) -> Delta:
        """Applies records in order; returns the delta of what became visible."""
        delta = Delta() if delta is None else delta
        for record in records:
            match record.API:
                case RecordType.BEGIN_TRANSACTION:
                    assert self.pending is None, "a transaction begins inside another"
                    self.pending = []
                case RecordType.END_TRANSACTION:
                    assert self.pending is not None, "a transaction ends that never began"
                    for held in self.pending:
                        self.image.apply(held, delta)
                    self.pending = None
                case RecordType.ABORT_TRANSACTION:
                    assert self.pending is not None, "a transaction is aborted that never began"
                    self.pending = None
                case _ if self.pending is not None:
                    self.pending.append(record)
                case _:
                    self.image.apply(record, delta)
        return delta
